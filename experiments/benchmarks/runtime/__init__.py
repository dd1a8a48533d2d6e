"""Measure the runtime: ``python -m experiments.benchmarks.runtime`` (see README)."""

from __future__ import annotations

from experiments.benchmarks.benchmark_command import Benchmark, Groups


def _groups() -> Groups:
    from experiments.benchmarks.runtime.cases import GROUPS

    return GROUPS


def _prepare() -> None:
    from experiments.benchmarks.search.measuring import load_solvers

    load_solvers()


BENCHMARK = Benchmark("runtime", __doc__, _groups, _prepare)
main, run = BENCHMARK.main, BENCHMARK.run
