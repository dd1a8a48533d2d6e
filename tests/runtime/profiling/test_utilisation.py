"""How busy devices were: the table, its file and its line, by hand from one iteration of four blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from quarter_ms import PLACEMENT, PROFILE

from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import BlockRecord, CounterSample, Record
from runtime.profiling.utilisation import DeviceShares, UtilisationTable, utilisation_table
from schedsearch.schedule import as_soon_as_possible

RECORDS = (
    Record(
        *(0, 0, "here", 100.0, 15.0),
        blocks=(BlockRecord("F0", 0, 0.0, 0.0, 0.0, 2.0), BlockRecord("B0", 0, 2.0, 10.0, 10.0, 14.0)),
        held_bytes=(CounterSample(0.0, 5), CounterSample(2.0, 9), CounterSample(14.0, 3)),
    ),
    Record(
        *(1, 0, "here", 100.0, 9.0),
        blocks=(BlockRecord("F1", 0, 0.0, 3.0, 3.0, 5.0), BlockRecord("B1", 0, 5.0, 5.0, 5.0, 8.0)),
    ),
)
"""One micro-batch: with free transfers 2 + 2 + 3 + 4 ms, and as it was 14."""


def test_shares_are_of_the_lengths_that_they_belong_to() -> None:
    """Planned at the highest clocks: 2 ms, 1 of transfer, 3, 5, 1.5 of transfer, 4."""
    one = as_soon_as_possible(PLACEMENT, 1, [[("F0", 0), ("B0", 0)], [("F1", 0), ("B1", 0)]])
    planned = PlannedIteration.of(one, PROFILE, dict.fromkeys(PROFILE.points, (1100,)))
    table = utilisation_table(PLACEMENT, RECORDS, planned)
    assert (table.planned_ms, table.zero_comm_ms, table.measured_ms) == (16.5, 11.0, 14.0)
    assert table.ratio == pytest.approx(14 / 11)
    first, second = table.devices
    assert first.planned == pytest.approx(6 / 16.5) and second.planned == pytest.approx(8 / 16.5)
    assert first.zero_comm == pytest.approx(6 / 11) and second.zero_comm == pytest.approx(5 / 11)
    assert first.measured == pytest.approx(6 / 14) and second.measured == pytest.approx(5 / 14)
    assert first.waiting == pytest.approx(8 / 14) and second.waiting == pytest.approx(3 / 14)
    assert (first.peak_held_bytes, second.peak_held_bytes) == (9, None)
    bare = utilisation_table(PLACEMENT, RECORDS)
    assert bare.planned_ms is None and bare.devices[0].planned is None


TABLE = UtilisationTable(
    24.5,
    25.0,
    30.5,
    (DeviceShares(0.4, 0.5, 0.25, 0.125, 4096), DeviceShares(0.6, 0.625, 0.75, 0.0625, None)),
)


def test_the_file_has_each_share_in_its_column(tmp_path: Path) -> None:
    assert TABLE.write_csv(tmp_path / "trace.csv").read_text().splitlines() == [
        "device,planned_ms,free_transfers_ms,measured_ms,"
        "planned_busy,free_transfers_busy,measured_busy,waiting,peak_held_bytes",
        "0,24.5,25,30.5,0.4,0.5,0.25,0.125,4096",
        "1,24.5,25,30.5,0.6,0.625,0.75,0.0625,",
    ]


def test_the_line_tells_means_over_devices() -> None:
    text = TABLE.describe()
    assert "30.5 ms, 1.220 times the 25 ms" in text
    assert "computes for 50.0% of it (planned: 50.0%) and waits for 9.4%" in text
