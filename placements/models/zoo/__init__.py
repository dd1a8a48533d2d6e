"""Models by name: published sizes as chains of layers.

- `sizes`: checks that all kinds share
- `language`: kinds of language models; `images`: kinds of models of images, alone or with text
- `convolutional`: convolutional networks, layer by layer
- `config_json`: models of Hugging Face's `config.json`; `config_details`: what it says beside sizes
- `published`: the models by name, and how to change their sizes
"""

from placements.models.zoo.config_json import read_config
from placements.models.zoo.images import (
    image_encoder,
    joined_encoders,
    residual_network,
    window_encoder,
)
from placements.models.zoo.language import decoder, encoder_decoder, hybrid
from placements.models.zoo.published import MODELS, read_model

__all__ = [
    "MODELS",
    "decoder",
    "encoder_decoder",
    "hybrid",
    "image_encoder",
    "joined_encoders",
    "read_config",
    "read_model",
    "residual_network",
    "window_encoder",
]
