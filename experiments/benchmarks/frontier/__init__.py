"""Measure what the energy frontier must reach: ``python -m experiments.benchmarks.frontier`` (see README)."""

from __future__ import annotations

from experiments.benchmarks.benchmark_command import Benchmark, Groups


def _groups() -> Groups:
    from experiments.benchmarks.frontier.cases import GROUPS

    return GROUPS


def _prepare() -> None:
    from experiments.benchmarks.frontier.measuring import load_solvers

    load_solvers()


BENCHMARK = Benchmark("frontier", __doc__, _groups, _prepare)
main, run = BENCHMARK.main, BENCHMARK.run
