"""The time that a search may take. The module does not know what is searched."""

from __future__ import annotations

from collections.abc import Callable


class StageTimeError(Exception):
    """The time that a search may take is over."""


Check = Callable[[], None]
"""Raises `StageTimeError` when the time is over."""


def no_limit() -> None:
    """Go on for ever."""


def deadline(time_limit_s: float, clock: Callable[[], float]) -> Check:
    """Return a check that begins now.

    Args:
        time_limit_s: What may pass.
        clock: In seconds.

    >>> check = deadline(2.0, iter([0.0, 1.0, 2.0]).__next__)
    >>> check()
    >>> check()
    Traceback (most recent call last):
    placements.planners.stage_search.deadline.StageTimeError
    """
    end_s = clock() + time_limit_s

    def check() -> None:
        if clock() >= end_s:
            raise StageTimeError

    return check
