"""The torch modules behind the blocks: a transformer for chains, and a synthetic model for any graph."""

from runtime.models.blocks import Blocks
from runtime.models.model import Model, ParameterShard, fits, layers, suitable_model
from runtime.models.options import ModelError, ModelOptions
from runtime.models.shards import WHOLE, EmulatedShards, ProcessShards, Shards
from runtime.models.tokens import Text, Tokens

__all__ = [
    "WHOLE",
    "Blocks",
    "EmulatedShards",
    "Model",
    "ModelError",
    "ModelOptions",
    "ParameterShard",
    "ProcessShards",
    "Shards",
    "Text",
    "Tokens",
    "fits",
    "layers",
    "suitable_model",
]
