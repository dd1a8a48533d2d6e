"""Measures what each generator of plans brings: the frontier of all profiles, with one left out at a time.

Plans are made with counted work, so that the table does not depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.benchmarks.benchmark_command import add_options
from experiments.benchmarks.frontier.cases import (
    MICRO_BATCHES,
    PROFILES,
    made_up,
    measured_profile,
    measured_task,
)
from experiments.benchmarks.frontier.measuring import NUM_PLANS, ClockTask
from experiments.benchmarks.results import markdown_table
from placements.shapes import nn_shape, v_shape
from schedsearch.energy import Frontier, compute_frontier
from schedsearch.energy.planning import GENERATORS

HEADS = ("case", "without", "plans of it", "mean gap, %", "gap at the shortest time, %")

_ALWAYS = "fastest"
"""The generator that is never left out: without it there may be no plan for the shortest time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.benchmarks.frontier ablation", description=__doc__.partition("\n")[0]
    )
    add_options(parser, "the smallest cases", output="")
    parser.add_argument("--work", type=float, default=0.0, help="work to improve plans with, in units (0)")
    options = parser.parse_args(arguments)
    for i, (name, task) in enumerate(cases(quick=options.quick)):
        for j, row in enumerate(rows(task, options.work)):
            lines = markdown_table(HEADS, [(name, *row)]).splitlines(keepends=True)
            sys.stdout.write("".join(lines if i + j == 0 else lines[2:]) + "\n")
            sys.stdout.flush()
    return 0


def cases(*, quick: bool) -> Iterator[tuple[str, ClockTask]]:
    """Yield the cases by name: made-up profiles, and measured ones where they are there."""
    for seed, noise in ((1, 0.01), (2, 0.05)):
        yield f"4 stages, 12 micro-batches, {noise:.0%} noise", made_up(v_shape(4), 12, 12, seed, noise)
    if quick:
        return
    yield "NN-shape, 4 devices, 16 micro-batches", made_up(nn_shape(4), 16, 20, 3, 0.01)
    for gpu in PROFILES:
        for number in MICRO_BATCHES if measured_profile(gpu).is_file() else ():
            yield f"GPT-3 175B, {gpu}, {number} micro-batches", measured_task(gpu, number)


def rows(task: ClockTask, work_limit: float) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is left out, how many plans it had, and the gaps without it; first with nothing left out."""
    whole = _frontier(task, (), work_limit)
    made = Counter(plan.made_by for plan in whole.plans)
    yield ("-", str(len(whole.plans)), *_gaps(whole))
    for name in GENERATORS:
        if name != _ALWAYS and (made[name] or name in ("fixed", "neighbourhoods")):
            yield (name, str(made[name]), *_gaps(_frontier(task, (name,), work_limit)))


def _frontier(task: ClockTask, without: Sequence[str], work_limit: float) -> Frontier:
    return compute_frontier(task.schedule, task.profile, NUM_PLANS, work_limit=work_limit, without=without)


def _gaps(frontier: Frontier) -> tuple[str, str]:
    mean = float(np.mean([plan.gap for plan in frontier.plans]))
    return f"{100 * mean:.4f}", f"{100 * frontier.shortest.gap:.4f}"
