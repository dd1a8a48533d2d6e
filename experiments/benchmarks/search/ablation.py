"""Measures the gain of each strategy of the search: the instance library, with one left out at a time.

Searches end by counted work, so that the table does not depend on the machine. A run that is interrupted
goes on where it ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from statistics import mean
from typing import Any

from experiments.benchmarks.benchmark_command import go_through, goes_on
from experiments.benchmarks.instances.command import add_instances, by_turns, chosen_instances
from experiments.benchmarks.instances.instance_file import FOLDER, Instance, InstanceError
from experiments.benchmarks.results import ResultsError, markdown_table, resumed
from experiments.benchmarks.search.measuring import search_timed
from experiments.config.command import INTERRUPTED
from experiments.config.machine import commit
from placements.files import write_json, write_text
from schedsearch.modulo.result import SearchError
from schedsearch.modulo.search import OBJECTIVES, read_objectives
from schedsearch.modulo.strategies.registry import NAMES

HEADS = ("strategy", "group", "instances", "work", "period", "better with", "better without", "makespan")

ALL = "-"
"""The name of the row with all strategies."""


@dataclass(frozen=True)
class AblationRow:
    """The answer of a search without one strategy, or with all of them (`ALL`).

    Attributes:
        period: Ticks per micro-batch as a fraction; None where nothing was found.
        makespan: Ticks; None where nothing was found.
        work: Counted work by strategy.
        total_work: Counted work of the whole search for the period.
    """

    instance: str
    group: str
    without: str
    period: str | None
    makespan: int | None
    work: dict[str, float]
    total_work: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.benchmarks.search ablation", description=__doc__.partition("\n")[0]
    )
    add_instances(parser, "outputs/ablation.json")
    parser.add_argument("--work", type=float, default=20.0, help="work limit of each search (%(default)g)")
    parser.add_argument(
        "--without", nargs="+", choices=NAMES, default=NAMES, metavar="strategy", help="those to leave out"
    )
    parser.add_argument(
        "--objectives", nargs="+", default=list(OBJECTIVES), metavar="objective", help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    if not options.work > 0:
        parser.error(f"--work: {options.work:g} is not a positive number")
    try:
        return _run(options)
    except (InstanceError, ResultsError, SearchError) as error:
        parser.error(str(error))


def _run(options: argparse.Namespace) -> int:
    instances = by_turns(chosen_instances(FOLDER, options.instances), quick=options.quick)
    about = {
        "schema_version": 1,
        "version": commit(),
        "work_limit": options.work,
        "objectives": list(read_objectives(options.objectives)),
    }
    _, rows = resumed(options.output, about, AblationRow)

    def step(instance: Instance, name: str) -> str:
        done = {row.without: row for row in rows if row.instance == instance.name}
        if name not in done:
            if name != ALL and name not in done[ALL].work:  # it did nothing that could be missed
                rows.append(replace(done[ALL], without=name))
            else:
                rows.append(measured(instance, name, options.work, options.objectives))
            write_json(options.output, about | {"rows": [asdict(row) for row in rows]})
        return ""

    cases = [(instance, name) for instance in instances for name in (ALL, *options.without)]
    steps = [(f"{each.name} without {name}", partial(step, each, name)) for each, name in cases]
    if not go_through("ablation", steps, goes_on(options.output)):
        return INTERRUPTED
    text = f"version {about['version']}, work limit {options.work:g}\n\n{table(rows)}"
    write_text(options.output.with_suffix(".md"), text)
    sys.stdout.write(f"{text}\nresults in {options.output}\n")
    return 0


def measured(
    instance: Instance, without: str, work: float, objectives: Sequence[str] = OBJECTIVES
) -> AblationRow:
    """Search an instance without a strategy.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    left_out = () if without == ALL else (without,)
    limits: dict[str, Any] = {"work_limit": work, "without": left_out, "objectives": objectives}
    result, _ = search_timed(instance.placement, instance.num_micro_batches, **limits)
    repetend, schedule = result.repetend, result.schedule
    by_strategy = {each.name: round(each.work, 3) for each in result.strategies}
    return AblationRow(
        instance.name,
        instance.group,
        without,
        str(repetend.period_per_micro_batch) if repetend else None,
        schedule.makespan if schedule else None,
        by_strategy,
        round(sum(by_strategy.values()), 3),
    )


def table(rows: Sequence[AblationRow]) -> str:
    """Return the gain of each strategy by group as Markdown.

    A gain is the mean, in percent, by which the period (and the makespan) is longer without the strategy.
    """
    whole = {row.instance: row for row in rows if row.without == ALL}
    lines = []
    for name in dict.fromkeys(row.without for row in rows if row.without != ALL):
        ran = [row for row in rows if row.without == name and row.instance in whole]
        for group in [*dict.fromkeys(row.group for row in ran), "all"]:
            pairs = [(whole[row.instance], row) for row in ran if group in (row.group, "all")]
            if not any(base.work.get(name) for base, _ in pairs):
                continue  # nothing was done by it
            periods = [gain for base, row in pairs for gain in _gain(base.period, row.period)]
            makespans = [gain for base, row in pairs for gain in _gain(base.makespan, row.makespan)]
            spent = sum(base.work.get(name, 0.0) for base, _ in pairs)
            share = spent / (sum(base.total_work for base, _ in pairs) or 1.0)
            better, worse = sum(gain > 0 for gain in periods), sum(gain < 0 for gain in periods)
            counts = f"{len(pairs)}", f"{share:.0%}", _percent(periods), f"{better}", f"{worse}"
            lines.append((name, group, *counts, _percent(makespans)))
    return markdown_table(HEADS, lines) + "\n"


def _gain(base: str | int | None, other: str | int | None) -> Iterator[float]:
    if base is not None and other is not None:
        yield float(Fraction(other) / Fraction(base) - 1)


def _percent(gains: Sequence[float]) -> str:
    return f"{100 * mean(gains):+.2f} %" if gains else "-"
