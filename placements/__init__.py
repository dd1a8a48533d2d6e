"""What runs where: placements, their shapes, and what their blocks cost. Knows no solver and no torch."""

from placements.profile import OperatingPoint, Profile, ProfileError
from placements.spec import Block, Kind, Placement, PlacementError

__all__ = ["Block", "Kind", "OperatingPoint", "Placement", "PlacementError", "Profile", "ProfileError"]
