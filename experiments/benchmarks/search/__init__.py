"""Measure what the search must reach: ``python -m experiments.benchmarks.search`` (see README)."""

from __future__ import annotations

from experiments.benchmarks.benchmark_command import Benchmark, Groups


def _groups() -> Groups:
    from experiments.benchmarks.search.cases import GROUPS

    return GROUPS


def _prepare() -> None:
    from experiments.benchmarks.search.measuring import load_solvers

    load_solvers()


BENCHMARK = Benchmark("search", __doc__, _groups, _prepare)
main, run = BENCHMARK.main, BENCHMARK.run
