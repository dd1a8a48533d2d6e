"""Models by name: published sizes as chains of layers.

- `shapes`: what sizes make a chain of layers; their defaults are in `shapes.yaml`
- `published`: models of YAML files; the project's are `language.yaml` and `images.yaml`
- `config_json`: models of Hugging Face's `config.json`, whose keys are in `config_types.yaml`
"""

from placements.models.zoo.config_json import read_config
from placements.models.zoo.published import MODELS, read_model
from placements.models.zoo.shapes import decoder, hybrid

__all__ = ["MODELS", "decoder", "hybrid", "read_config", "read_model"]
