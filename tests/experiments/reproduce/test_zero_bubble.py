"""Bubble rates of measured times beside the published ones, and wrong files."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.config.options import OptionError
from experiments.reproduce.measured.zero_bubble import (
    ITEMS,
    SCHEDULES,
    StageTimes,
    ZeroBubbleOptions,
    by_hand,
)
from placements.profiles.operating_point import ProfileError

PUBLISHED = SHARED_DATA / "zero_bubble"
HEADER = "model,p,m,F_us,B_us,W_us,comm_us,hidden,heads,bubble_1F1B,bubble_ZB_2p"
ROW = "GPT-6.2B,8,24,29718,29444,19927,527,4096,32,0.2347,0.0029"
(ITEM,) = ITEMS


def folder(tmp_path: Path, *lines: str) -> str:
    """Write a table; return its folder."""
    (tmp_path / "measured_times.csv").write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    return str(tmp_path)


def test_a_run_beside_what_is_published(tmp_path: Path) -> None:
    """The rates of 1F1B and ZB-2p from the repository; the columns of the others are missing here."""
    options = ZeroBubbleOptions(data=folder(tmp_path, ROW), work_limit=2.0)
    rows = ITEM.rows(options)
    rates = {row.label: round(row.ours or 0, 4) for row in rows}
    assert [rates[name] for name in SCHEDULES[:4]] == [0.2347, 0.1323, 0.0698, 0.1323]
    assert rates["ZB_2p"] <= (rows[-1].published or 0)
    assert all(trend.holds for trend in ITEM.trends(rows))


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published rates are not there")
def test_hand_made_schedules_are_as_published() -> None:
    """Nine runs of 8 and 16 stages, to the four digits printed."""
    runs = ITEM.cases(ZeroBubbleOptions(data=str(PUBLISHED)))
    assert len(runs) == 9
    for case, times in runs.items():
        for name, rate in by_hand(times).items():
            assert round(rate, 4) == times.published[name], (case, name)


def test_the_span_of_zb_h2_follows_its_formula() -> None:
    """A device is idle for (p - 1)(F + B + 2 transfers - 2 W) where that is above 0, also on 32 devices."""
    times = StageTimes(32, 96, 110, 100, 60, 7, 4096, 32)
    idle = 31 * (110 + 100 + 2 * 7 - 2 * 60)
    assert by_hand(times)["ZB_H2"] == pytest.approx(idle / (idle + times.work_us))


def test_memory_follows_from_the_model() -> None:
    times = StageTimes(8, 24, 3, 3, 2, 1, 4096, 32)
    placement = times.with_split_backward(16)
    released = [placement.by_name[name].memory for name in ("F0", "I0", "W0")]
    held = 34 * 4096 + 5 * 32 * 1024
    assert [units * (held // 37) for units in released] == [held, -(held - 32 * 4096), -32 * 4096]
    assert placement.memory == (16 * 37,) * 8


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("a,8,24,0,1,1,0,64,1,,",), "line 2, column F_us: '0' is not a whole number from 1"),
        (("a,8,24,1,1,1,0,64,1,2,",), "line 2, column bubble_1F1B: '2' is not a number from 0 to 1"),
        (("a,999,99999,1,1,1,0,64,1,,",), "line 2, column m: '99999' is not a whole number from 1 to 10000"),
    ],
)
def test_wrong_runs_are_named(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProfileError, match=f"^{tmp_path}/measured_times.csv: {message}"):
        ITEM.cases(ZeroBubbleOptions(data=folder(tmp_path, *lines)))


def test_wrong_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="^data: has no value; give the folder"):
        ITEM.cases(ZeroBubbleOptions())
    with pytest.raises(OptionError, match="^work_limit: 0.0 is not a number above 0"):
        ITEM.cases(ZeroBubbleOptions(data=folder(tmp_path, ROW), work_limit=0.0))
