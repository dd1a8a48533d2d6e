"""Checks that the sizes of all kinds of models share. Knows no model."""

from __future__ import annotations

from placements.models.layers import PRECISIONS, Precision
from placements.spec import PlacementError


def whole(name: str, value: object) -> int:
    """Return a size that is a whole number of at least 1.

    Raises:
        PlacementError: It is not.
    """
    if type(value) is not int or value < 1:
        raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
    return value


def precision_of(name: str) -> Precision:
    """Return a precision by its name.

    Raises:
        PlacementError: There is none.
    """
    if not isinstance(name, str) or name not in PRECISIONS:
        raise PlacementError(f"precision: {name!r} is not known; use one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]
