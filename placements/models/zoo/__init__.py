"""Models by name: published sizes as chains of layers.

- `shapes`: chains of layers from sizes; defaults of sizes are in `shapes.yaml`
- `model_files`: models of YAML files, the project's `language.yaml` and `images.yaml`, and of Hugging Face's
  `config.json`, whose keys are in `config_types.yaml`
"""

from placements.models.zoo.model_files import MODELS, read_config, read_model
from placements.models.zoo.shapes import decoder, hybrid

__all__ = ["MODELS", "decoder", "hybrid", "read_config", "read_model"]
