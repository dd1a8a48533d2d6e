"""Checks that the sizes of all kinds of models share. Knows no model."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from placements.block import PlacementError
from placements.models.layers import PRECISIONS, Precision


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


def check_overrides(make: Callable[..., Any], name: str, overrides: Mapping[str, Any]) -> None:
    """Ensure that all sizes to change are such of a model.

    Args:
        make: What makes the model of its name and its sizes.
        name: What the model is known by.
        overrides: Sizes by their names.

    Raises:
        PlacementError: One is not.
    """
    known = [each for each in inspect.signature(make).parameters if each != "name"]
    for each in overrides:
        if each not in known:
            raise PlacementError(f"{each}: is no size of {name}; {suggestion(each, known)}")


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"
