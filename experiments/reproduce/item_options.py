"""What the options of several items are checked for, before any search begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.config.options import require, require_known, require_least, require_once


def check_names(option: str, values: Sequence[str], known: Collection[str]) -> None:
    """Check that names are known, and that each is there once.

    Raises:
        OptionError: One is not, or there is none.
    """
    require(bool(values), option, [], "a list of at least one", f"the options are {', '.join(known)}")
    for value in values:
        require_known(option, value, known)
    require_once(option, list(values))


def check_numbers(option: str, values: Sequence[int], least: int = 1) -> None:
    """Check that whole numbers are at least so much, and that each is there once.

    Raises:
        OptionError: One is not, or there is none.
    """
    require(bool(values), option, [], "a list of at least one", f"give whole numbers of at least {least}")
    for value in values:
        require_least(option, value, least)
    require_once(option, list(values))
