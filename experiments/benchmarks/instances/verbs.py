"""The verbs of the library: search its instances, and check the stored answers."""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from experiments.benchmarks.command import add_options, run
from experiments.benchmarks.frame import BenchmarkError, Case
from experiments.benchmarks.instances.answers import AnswerError, Library
from experiments.benchmarks.instances.instance_file import FOLDER, Instance, InstanceError, read_instances
from experiments.benchmarks.measures.search import result_figures
from experiments.config.machine import commit
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.searches.search import search
from schedsearch.validate import validate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.benchmarks instances",
        description="Named placements with the best answers known; see README.md beside this module.",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of instances and answers (%(default)s)")
    verbs = parser.add_subparsers(metavar="verb", required=True)

    for name, do, text in (
        ("search", _search, "search instances, and say how far the answers are from the best"),
        ("check", _check, "rebuild every stored answer and compare it with best_known.csv"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(do=do)
        verb.add_argument("instances", nargs="*", metavar="name", help="groups or instances; default: all")
        if name == "search":
            add_options(verb)
            verb.add_argument(
                "--limit", type=float, default=20.0, metavar="S", help="seconds each (%(default)g)"
            )
            verb.add_argument("--work", type=float, metavar="UNITS", help="counted work each, and no --limit")
            verb.add_argument(
                "--seeds", type=int, default=1, metavar="N", help="seeds 0 to N - 1 (%(default)s)"
            )
            verb.add_argument(
                "--workers", type=int, default=1, metavar="N", help="instances side by side (%(default)s)"
            )
            verb.add_argument("--update", action="store_true", help="keep answers better than the best known")
    options = parser.parse_args(arguments)
    for name in ("limit", "work", "seeds", "workers"):
        value = getattr(options, name, None)
        if value is not None and not value > 0:
            parser.error(f"--{name}: {value:g} is not a positive number")
    try:
        return int(options.do(options))
    except (BenchmarkError, InstanceError, AnswerError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")


def _chosen(folder: Path, names: Sequence[str]) -> list[Instance]:
    """Return the instances of some groups or names; all where there are none."""
    instances = read_instances(sorted(folder.glob("*.yaml")))
    known = {name for each in instances for name in (each.name, each.group)}
    for name in names:
        if name not in known:
            groups = ", ".join(sorted({each.group for each in instances}))
            raise InstanceError(f"name: {name!r} is no group or instance; the groups are {groups}")
    return [each for each in instances if not names or each.name in names or each.group in names]


def _search(options: argparse.Namespace) -> int:
    Library(options.folder)  # its mistakes come before all searches
    limit = {"time_limit_s": options.limit} if options.work is None else {"work_limit": options.work}
    cases = [
        Case(
            instance.group + (" (held out)" if instance.is_held_out else ""),
            instance.name + (f", seed {seed}" if seed else ""),
            partial(searched, options.folder, instance, update=options.update),
            limit | {"seed": seed},
            is_quick=instance.is_quick,
        )
        for seed in range(options.seeds)
        for instance in _chosen(options.folder, options.instances)
    ]
    return run("instances", cases, options)


def searched(
    folder: Path, instance: Instance, *, update: bool, without: Collection[str] = (), **options: Any
) -> dict[str, Any]:
    """Search an instance, with an update of the library in a folder where it is better.

    Figures that end in ``_gap`` are percent above the best known, those in ``_open`` above the bound that is
    known. A device span is with the devices' first starts chosen for it.
    """
    number = instance.num_micro_batches
    result = search(instance.placement, number, without=without, **options)
    figures = result_figures(result, instance.placement, number)
    schedules = [] if result.schedule is None else [result.schedule]
    if result.repetend is not None:
        schedules.append(validate(result.repetend.unroll(number)))
        figures["period"] = Fraction(result.repetend.period, result.repetend.micro_batches)
    spans = (int(device_spans(with_least_device_span(schedule)).max()) for schedule in schedules)
    figures["device_span"] = min(spans, default=None)
    known = Library(folder).known(instance)
    for figure in known.best:
        if figures[figure] is not None:
            figures[f"{figure}_gap"] = 100 * float(figures[figure] / known.best[figure] - 1)
            figures[f"{figure}_open"] = 100 * float(figures[figure] / known.bound[figure] - 1)
    figures["period"] = None if figures["period"] is None else float(figures["period"])
    if update:
        repetends = [] if result.repetend is None else [result.repetend]
        bound = {
            "period": _fraction_not_above(result.universal_bound),
            "makespan": Fraction(result.makespan_bound),
            "device_span": Fraction(result.device_span_bound),
        }
        seconds = round(result.seconds, 2)
        with _locked(folder):
            better = Library(folder).offer(instance, [*repetends, *schedules], bound, seconds, commit())
        figures["better"] = ", ".join(better) or None
    return figures


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let no other process update a library meanwhile."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _fraction_not_above(bound: float) -> Fraction:
    """Return a float bound as the simple fraction that it is nearly equal to, or as one that is less."""
    simple = Fraction(bound).limit_denominator(1000)
    if abs(simple - Fraction(bound)) <= Fraction(1, 10**9) * simple:
        return simple
    return Fraction(math.floor(bound * 10**6), 10**6)


def _check(options: argparse.Namespace) -> int:
    library, instances = Library(options.folder), _chosen(options.folder, options.instances)
    strangers = sorted(library.best.keys() - {each.name for each in instances})
    if strangers and not options.instances:
        raise AnswerError(f"{strangers[0]}: is in best_known.csv and is no instance; remove the row")
    for instance in instances:
        library.check(instance)
    text = "every stored answer is valid and reaches what is written"
    sys.stdout.write(f"{len(instances)} instances: {text}\n")
    return 0
