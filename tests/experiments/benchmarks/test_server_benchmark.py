from __future__ import annotations

from pathlib import Path

from quick_rows import quick_rows

from experiments.benchmarks.server.cases import BENCHMARK


def test_the_storm_of_the_quick_cases_loses_nothing(tmp_path: Path) -> None:
    (row,) = quick_rows(BENCHMARK, tmp_path / "results.json", "storm")
    assert row["case"] == "10 jobs, 1000 messages of 8 senders"
    assert row["note"].endswith("; lost: 0")
    # Whether it was quick enough depends on the machine; what is lost does not.
    assert all("CPU is" in text for text in row["missed"]), row
