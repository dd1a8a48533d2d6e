"""Numbers and dates in the files of a cluster."""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime

from placements.forms.reading import Field

_MAX = sys.float_info.max
"""The highest finite number: the limit of all numbers, so that infinity is rejected."""


_DATE = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]+(\d{1,2})(:.*?))? *(?:UTC|GMT)?")
"""Year, month, day, hour, and minutes with all behind them."""


def at_least_0(cell: Field, wanted: str, remedy: str = "give 0 or more") -> float:
    """Return a finite number of 0 or more."""
    return float(cell.number(wanted, remedy, 0, _MAX))


def above_0(cell: Field, wanted: str, remedy: str = "give more than 0") -> float:
    """Return a finite number above 0."""
    return float(cell.number(wanted, remedy, math.ulp(0), _MAX))


def date_of(text: str) -> datetime | None:
    """Return a date's time, taken as UTC without an offset; None if the text is no date.

    >>> [str(date_of(text)) for text in ("2020-04-01T12:30Z", "2020/4/1 9:30:00 UTC", "20200401", "soon")]
    ['2020-04-01 12:30:00+00:00', '2020-04-01 09:30:00+00:00', '2020-04-01 00:00:00+00:00', 'None']
    """
    if compact := re.fullmatch(r"((?:19|20)\d{6})(\d{2}|\d{4}|\d{6})?(\.0*)?", text):
        text = f"{compact[1]}T{compact[2] or '00'}"
    elif match := _DATE.fullmatch(text):
        year, month, day, hour, rest = match.groups()
        text = f"{year}-{month:0>2}-{day:0>2}T{hour or '':0>2}{rest or ':00'}"
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
