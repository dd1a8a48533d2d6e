"""Figures of a checked schedule are in ms, where ticks are 0.25 ms."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

from quarter_ms import SCHEDULE

from experiments.check.task import _schedule_claims
from schedsearch.schedule_file import Claims


def test_the_makespan_of_a_checked_schedule_is_in_ms() -> None:
    """It is 98 ticks."""
    unclaimed = dict.fromkeys(("makespan_bound", "device_span", "device_span_bound", "certificate"))
    claims = cast(Claims, SimpleNamespace(schedule=SCHEDULE, makespan=98, **unclaimed))
    (claim,) = _schedule_claims(claims, time.monotonic() + 9)
    assert "24.5 ms" in str(claim) and "0.25 ms" in str(claim)
