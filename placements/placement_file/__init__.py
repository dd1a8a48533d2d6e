"""The file form of a placement: ``placement.yaml``.

- `form`: its records and fields.
- `yaml_text`: YAML as plain data.
- `fields`: numbers, names and memory, refused in one line where they are wrong.
- `ticks`: ticks fine enough that each time is whole.
- `reading`: a placement from its file.
- `writing`: a placement as its file.
"""

from placements.placement_file.reading import placement_from_dict, read_placement
from placements.placement_file.writing import placement_to_dict, placement_to_yaml

__all__ = ["placement_from_dict", "placement_to_dict", "placement_to_yaml", "read_placement"]
