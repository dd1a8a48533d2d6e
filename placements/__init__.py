"""What runs where: placements, their shapes, and what their blocks cost. Knows no solver and no torch.

- `files`, `plain_data`: whole files, and plain data read field by field
- `spec`, `placement_file`, `shapes`: placements, as files, and by name
- `operating_point`, `profile`, `profile_csv`: what blocks cost at each clock, as files
- `hardware`: GPUs of data sheets; `models`, `planners`: placements made of models and of plans
"""

from placements.operating_point import OperatingPoint, ProfileError
from placements.profile import BlockingPower, Profile
from placements.spec import Block, Kind, Placement, PlacementError

__all__ = [
    "Block",
    "BlockingPower",
    "Kind",
    "OperatingPoint",
    "Placement",
    "PlacementError",
    "Profile",
    "ProfileError",
]
