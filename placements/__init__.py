"""What runs where: placements, their shapes, and what their blocks cost. Knows no solver and no torch."""

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
