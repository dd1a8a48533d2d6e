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
from pathlib import Path
from statistics import mean

from experiments.benchmarks.instances.command import ResultsError, by_turns, chosen_instances
from experiments.benchmarks.instances.instance_file import FOLDER, Instance, InstanceError
from experiments.config.command import INTERRUPTED
from experiments.config.machine import commit
from placements.files import read_json, write_json, write_text
from placements.plain_data import Field, in_file
from schedsearch.modulo.progress import StepBar
from schedsearch.modulo.result import SearchError
from schedsearch.modulo.search import OBJECTIVES, read_objectives, search
from schedsearch.modulo.strategies.registry import NAMES

ALL = "-"
"""The name of the row with all strategies."""


@dataclass(frozen=True)
class AblationRow:
    """The answer of a search without one strategy.

    Attributes:
        instance: Name of the instance.
        group: Group of the instance.
        without: Name of the strategy that was left out; `ALL` for none.
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
    parser.add_argument("instances", nargs="*", metavar="name", help="groups or instances; default: all")
    parser.add_argument("--quick", action="store_true", help="the twenty for every day")
    parser.add_argument("--work", type=float, default=20.0, help="work limit of each search (%(default)g)")
    parser.add_argument(
        "--without", nargs="+", choices=NAMES, default=NAMES, metavar="strategy", help="those to leave out"
    )
    parser.add_argument(
        "--objectives", nargs="+", default=list(OBJECTIVES), metavar="objective", help="default: %(default)s"
    )
    output = Path("outputs/ablation.json")
    parser.add_argument("--output", type=Path, default=output, help="results file (%(default)s)")
    options = parser.parse_args(arguments)
    if not options.work > 0:
        parser.error(f"--work: {options.work:g} is not a positive number")
    try:
        instances = by_turns(chosen_instances(FOLDER, options.instances))
        return _run(
            [each for each in instances if each.is_quick or not options.quick],
            [ALL, *options.without],
            options.work,
            options.objectives,
            options.output,
        )
    except (InstanceError, ResultsError, SearchError) as error:
        parser.error(str(error))


def _run(
    instances: Sequence[Instance],
    without: Sequence[str],
    work: float,
    objectives: Sequence[str],
    output: Path,
) -> int:
    about = {
        "schema_version": 1,
        "version": commit(),
        "work_limit": work,
        "objectives": list(read_objectives(objectives)),
    }
    rows = _rows_before(output, about)
    try:
        with StepBar("ablation") as bar:
            cases = [(instance, name) for instance in instances for name in without]
            for i, (instance, name) in enumerate(cases):
                done = {row.without: row for row in rows if row.instance == instance.name}
                if name not in done:
                    bar(f"{instance.name} without {name}", i, len(cases))
                    if name != ALL and name not in done[ALL].work:  # it did nothing that could be missed
                        rows.append(replace(done[ALL], without=name))
                    else:
                        rows.append(measured(instance, name, work, objectives))
                    write_json(output, about | {"rows": [asdict(row) for row in rows]})
            bar("done", len(cases), len(cases))
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; the rows done are in {output}, and the same command goes on\n")
        return INTERRUPTED
    text = f"version {about['version']}, work limit {work:g}\n\n{table(rows)}"
    write_text(output.with_suffix(".md"), text)
    sys.stdout.write(f"{text}\nresults in {output}\n")
    return 0


def measured(
    instance: Instance, without: str, work: float, objectives: Sequence[str] = OBJECTIVES
) -> AblationRow:
    """Search an instance without a strategy.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    left_out = () if without == ALL else (without,)
    result = search(
        instance.placement,
        instance.num_micro_batches,
        work_limit=work,
        without=left_out,
        objectives=objectives,
    )
    if result.interrupted:
        raise KeyboardInterrupt
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
    lines = [
        "| strategy | group | instances | work | period | better with | better without | makespan |",
        "|---|---|---|---|---|---|---|---|",
    ]
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
            lines.append(
                f"| {name} | {group} | {len(pairs)} | {share:.0%} | {_percent(periods)} | "
                f"{sum(gain > 0 for gain in periods)} | {sum(gain < 0 for gain in periods)} | "
                f"{_percent(makespans)} |"
            )
    return "\n".join(lines) + "\n"


def _gain(base: str | int | None, other: str | int | None) -> Iterator[float]:
    if base is not None and other is not None:
        yield float(Fraction(other) / Fraction(base) - 1)


def _percent(gains: Sequence[float]) -> str:
    return f"{100 * mean(gains):+.2f} %" if gains else "-"


def _rows_before(path: Path, about: dict[str, object]) -> list[AblationRow]:
    if not path.exists():
        return []
    top = Field(read_json(path, "a results file of 'ablation'", ResultsError), "", ResultsError)
    with in_file(path, ResultsError):
        for name, value in about.items():
            if top.mapping().get(name) != value:
                raise ResultsError(f"{path}: is of another {name}; give another --output")
        return [AblationRow(**each.mapping()) for each in top["rows"].items()]
