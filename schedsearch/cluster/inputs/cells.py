"""Numbers and dates in the files of a cluster."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime

from placements.plain_data import Field

_MAX = sys.float_info.max
"""The highest finite number: the limit of all numbers, so that infinity is rejected."""


def at_least_0(cell: Field, wanted: str, remedy: str = "give 0 or more") -> float:
    """Return a finite number of 0 or more."""
    return float(cell.number(wanted, remedy, 0, _MAX))


def above_0(cell: Field, wanted: str, remedy: str = "give more than 0") -> float:
    """Return a finite number above 0."""
    return float(cell.number(wanted, remedy, math.ulp(0), _MAX))


def date_of(text: str) -> datetime | None:
    """Return the time of a date in ISO's form, in UTC where it names no offset; None where the text is none.

    >>> str(date_of("2020-04-01T12:30Z")), str(date_of("2020-04-01 02:00+02:00")), date_of("soon")
    ('2020-04-01 12:30:00+00:00', '2020-04-01 00:00:00+00:00', None)
    """
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
