"""Models of the blocks: transformers for Tessel's shapes, a synthetic one for any graph, and users' own.

A forward block is a torch module, with its shards if it is cut over several devices; all are called in one
way, wherever they come from. It knows placements and the collectives between shards, and neither schedules
nor messages. `core` has the options and the layers, `zoo` the modules of the models that come with the
project, `user` the ways in which a user's module comes in. At the root: `architectures` are the models by
name, and make of options the `body` that calls the modules; `loss_shares` weighs losses, `model` has
the parameters of one device, `state_dict` reads and writes them in files, `optimizer` moves them,
`weight_versions` keeps older versions while they are read, `split_backward` cuts a backward in two halves,
`offloading` puts saved tensors on the host, and `blocks` runs forward and backward blocks one by one.
"""

from runtime.models.architectures import body_of, fits, suitable_model, traced, zoo_blocks
from runtime.models.blocks import Blocks
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.core.tokens import Text
from runtime.models.model import Model, ParameterShard
from runtime.models.state_dict import load_state_dict_file, save_state_dict_file
from runtime.models.user.cut import cut
from runtime.models.weight_versions import ReadVersions, read_versions
from runtime.transport.shards import WHOLE

__all__ = [
    "GIVEN_MODEL",
    "USER_MODEL",
    "WHOLE",
    "Blocks",
    "Model",
    "ModelError",
    "ModelOptions",
    "ParameterShard",
    "ReadVersions",
    "Text",
    "body_of",
    "cut",
    "fits",
    "load_state_dict_file",
    "read_versions",
    "save_state_dict_file",
    "suitable_model",
    "traced",
    "zoo_blocks",
]
