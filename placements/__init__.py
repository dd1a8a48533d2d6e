"""What runs where: placements, their shapes, and what their blocks cost. Knows no solver and no torch."""

from placements.profile import BlockingPower, OperatingPoint, Profile, ProfileError
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
