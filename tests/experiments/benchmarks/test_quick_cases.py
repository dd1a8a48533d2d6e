"""The quick cases of every benchmark: one of each group, small enough for a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from quick_rows import quick_rows

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.cluster.cases import BENCHMARK as CLUSTER
from experiments.benchmarks.frontier.cases import BENCHMARK as FRONTIER
from experiments.benchmarks.frontier.lowtime_plans import reason_to_skip as no_lowtime
from experiments.benchmarks.layouts.cases import BENCHMARK as LAYOUTS
from experiments.benchmarks.modes.cases import BENCHMARK as MODES
from experiments.benchmarks.peers.cases import BENCHMARK as PEERS
from experiments.benchmarks.planners.cases import BENCHMARK as PLANNERS
from experiments.benchmarks.results import COMPARED
from experiments.benchmarks.runtime.cases import BENCHMARK as RUNTIME
from experiments.benchmarks.runtime.one_device import no_gpu
from experiments.benchmarks.search.cases import BENCHMARK as SEARCH
from experiments.benchmarks.server.cases import BENCHMARK as SERVER
from experiments.benchmarks.unequal.cases import BENCHMARK as UNEQUAL

SLOW = re.compile("CPU s|CPU is|p50 is|look-up|is not within|more than")
"""What may be missed here: how long things take depends on the machine, and on what else it does."""

WITHOUT_QUICK = {
    "search": {"tight8_16", "large", "real_times", "random_placements"},
    "modes": {"layers", "modelled", "chunks"},
    "frontier": {"lowtime", "large", "orders"},
    "cluster": {"simulations"},
    "server": {"long"},
    "unequal": {"sequences", "quick", "replicas", "slices"},
}
"""Groups that have no small case."""


@pytest.mark.parametrize(
    "benchmark",
    [SEARCH, MODES, LAYOUTS, FRONTIER, PLANNERS, CLUSTER, PEERS, RUNTIME, SERVER, UNEQUAL],
    ids=lambda benchmark: str(benchmark.name),
)
def test_quick_cases_reach_what_they_must(benchmark: Benchmark, tmp_path: Path) -> None:
    rows = quick_rows(benchmark, tmp_path / "results.json")
    assert {row["group"] for row in rows} == set(benchmark.groups) - WITHOUT_QUICK.get(benchmark.name, set())
    for row in rows:
        assert all(SLOW.search(text) for text in row["missed"]), row
        assert (
            not row["skipped"]
            or row["skipped"] in (no_gpu(), no_lowtime())
            or "is not there" in row["skipped"]
        )
        if row["comparison"]:
            cost = row["ours_over_theirs"]["cost"]
            assert 0 < cost["least"] <= cost["median"] <= cost["most"]
            assert len(row["comparison"]["ours_s"]) == len(row["comparison"]["peer_s"])
    head = (tmp_path / "results.md").read_text(encoding="utf-8").partition("\n| ")[2]
    assert head.startswith(COMPARED[0]) == (benchmark is PEERS), "no empty columns, and ratios come first"
