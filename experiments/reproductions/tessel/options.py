"""What the options of several items are checked for, before any search begins."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


class ItemOptionError(ValueError):
    """An option of a reproduced item is wrong; the message names it, its value and the remedy in one line."""


def check_names(option: str, values: Sequence[str], known: Collection[str]) -> None:
    """Check that names are known, and that each is there once.

    Raises:
        ItemOptionError: One is not, or there is none.
    """
    if not values:
        raise ItemOptionError(f"{option}: is empty; give some of {', '.join(known)}")
    for value in values:
        if value not in known:
            raise ItemOptionError(f"{option}: {value!r} is not known; use {' or '.join(known)}")
    _check_once(option, values)


def check_numbers(option: str, values: Sequence[int], least: int = 1) -> None:
    """Check that whole numbers are at least so much, and that each is there once.

    Raises:
        ItemOptionError: One is not, or there is none.
    """
    if not values:
        raise ItemOptionError(f"{option}: is empty; give some whole numbers")
    for value in values:
        if type(value) is not int or value < least:
            raise ItemOptionError(
                f"{option}: {value!r} is not a whole number of at least {least}; give such numbers"
            )
    _check_once(option, values)


def check_limit(time_limit_s: float, option: str = "time_limit_s") -> None:
    """Check a time limit in seconds.

    Raises:
        ItemOptionError: It is not a number above 0.
    """
    if type(time_limit_s) not in (int, float) or not 0 < time_limit_s < math.inf:
        raise ItemOptionError(f"{option}: {time_limit_s!r} is not a number of seconds above 0; give one")


def _check_once(option: str, values: Sequence[object]) -> None:
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise ItemOptionError(f"{option}: {twice!r} is there twice; give it once")
