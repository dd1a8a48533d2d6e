"""The torch modules behind the blocks: transformers for Tessel's shapes, a synthetic model, and one's own."""

from runtime.models.blocks import Blocks
from runtime.models.body import MODEL_NAMES, body_of, layers
from runtime.models.core.options import USER_MODEL, ModelError, ModelOptions
from runtime.models.core.tokens import Text, Tokens
from runtime.models.model import Model, ParameterShard, fits, suitable_model
from runtime.models.user.cut import cut
from runtime.transport.shards import WHOLE, Shards

__all__ = [
    "MODEL_NAMES",
    "USER_MODEL",
    "WHOLE",
    "Blocks",
    "Model",
    "ModelError",
    "ModelOptions",
    "ParameterShard",
    "Shards",
    "Text",
    "Tokens",
    "body_of",
    "cut",
    "fits",
    "layers",
    "suitable_model",
]
