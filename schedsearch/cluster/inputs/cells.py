"""Numbers and times in the files of a cluster, each with its limits; and fields that have several names."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

from placements.plain_data import Field
from placements.tables import Row
from schedsearch.cluster.gpu_cluster import ClusterError

_MAX = sys.float_info.max
"""The highest finite number: the limit of all numbers, so that infinity is rejected."""

_COMPACT = (8, 10, 12, 14)
"""Digits of a date without marks: to the day, the hour, the minute or the second."""

_DATE = re.compile(r"([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})[T ]*([0-9]{0,2})(.*)")
"""Year, month, day, hour, and what follows, such as minutes and the offset from UTC."""

_UNITS = (
    *(("nanoseconds", 1e17, 1e9), ("microseconds", 1e14, 1e6), ("milliseconds", 1e11, 1e3)),
    *(("seconds since 1970", 3e8, 1), ("seconds from 0 on", -math.inf, 1)),
)
"""Units of times: the least time that is taken to be in each, and how many are in a second."""


def at_least_0(cell: Field, wanted: str, remedy: str = "give 0 or more") -> float:
    """Return a finite number of 0 or more."""
    return float(cell.number(wanted, remedy, 0, _MAX))


def above_0(cell: Field, wanted: str, remedy: str = "give more than 0") -> float:
    """Return a finite number above 0."""
    return float(cell.number(wanted, remedy, math.ulp(0), _MAX))


def count_of_gpus(cell: Field) -> int:
    """Return a number of GPUs, 1 or more."""
    return cell.whole("a number of GPUs", "give 1 or more", min=1)


def date_of(text: str) -> datetime | None:
    """Return the time of a date, in UTC where it names no offset; None where the text is none.

    >>> [str(date_of(text)) for text in ("2020-04-01T12:30Z", "2020/4/1 9:30:00 UTC", "20200401", "20200431")]
    ['2020-04-01 12:30:00+00:00', '2020-04-01 09:30:00+00:00', '2020-04-01 00:00:00+00:00', 'None']
    """
    if text.isdigit():
        if len(text) not in _COMPACT or not "1970" <= text[:4] <= "2100":
            return None
        text = f"{text[:8]}T{text[8:] or '00'}"
    else:
        text = re.sub(" *(UTC|GMT)$", "Z", text.upper())
        if found := _DATE.fullmatch(text):
            year, month, day, hour, rest = found.groups()
            text = f"{year}-{month:0>2}-{day:0>2}T{hour:0>2}{rest.replace(' ', '') or ':00'}"
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)


def times_s(rows: Iterable[Row], column: str) -> dict[int, float]:
    """Return the times of a column by the lines of its rows, in seconds; they are all of one form.

    They are dates, in any form of ISO or as 20200401; or seconds; or seconds to nanoseconds since 1970, which
    are told apart by their size.

    Raises:
        ValueError: One is not of the form of the others, or no time.
    """
    cells = {row.line: row[column] for row in rows if column in row}
    digits = {line: re.sub(r"[.]0*$", "", cell.value) for line, cell in cells.items()}
    dates = {line: date_of(text) for line, text in digits.items()}
    num_dates = sum(date is not None for date in dates.values())
    are_dates = 2 * num_dates >= len(cells) or any(
        date is not None and not digits[line].isdigit() for line, date in dates.items()
    )
    found: dict[int, float] = {}
    units: dict[str, int] = {}
    for line, cell in cells.items():
        date = dates[line]
        if are_dates:
            if date is None:
                raise cell.wrong("a date as others of the column are", "write all as 2017-10-07 01:11:39")
            found[line] = date.timestamp()
            continue
        number = at_least_0(cell, "a time", "give seconds of 0 or more, or a date as 2017-10-07 01:11:39")
        unit, _, in_a_second = next(each for each in _UNITS if number >= each[1])
        units.setdefault(unit, line)
        if len(units) > 1:
            first = next(iter(units))
            raise cell.wrong(f"in {first} as line {units[first]} is", "give all times in one unit")
        found[line] = number / in_a_second
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like one that is not known; "" where none is."""
    return next(iter(get_close_matches(name, [*known], n=1, cutoff=0.0)), "")


def fields_of(data: Field, known: Mapping[str, Sequence[str]]) -> dict[str, Field]:
    """Return the fields of a mapping by the names that we use.

    Args:
        data: The mapping.
        known: Our name of each field, and the other names that it may have.

    Raises:
        ClusterError: It is no mapping, a field is not known, or two names of one field are there.
    """
    ours = {other: name for name, others in known.items() for other in (name, *others)}
    found: dict[str, Field] = {}
    for written in data.mapping(f"a mapping of {', '.join(known)}"):
        if written not in ours:
            raise ClusterError(
                f"{data.where + ': ' if data.where else ''}has an unknown field {written!r}; "
                f"write {nearest(written, ours)!r}, or remove it; known are {', '.join(known)}"
            )
        name = ours[written]
        if name in found:
            raise ClusterError(f"{data[written].where}: is there as {found[name].where} too; keep one")
        found[name] = data[written]
    return found
