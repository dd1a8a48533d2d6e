"""Load the server of plans with requests: ``python -m experiments.benchmarks.server`` (see README)."""

from __future__ import annotations

from experiments.benchmarks.benchmark_command import Benchmark, Groups


def _groups() -> Groups:
    from experiments.benchmarks.server.cases import GROUPS

    return GROUPS


def _prepare() -> None:
    """Do nothing: each case starts a server of its own."""


BENCHMARK = Benchmark("server", __doc__, _groups, _prepare)
main, run = BENCHMARK.main, BENCHMARK.run
