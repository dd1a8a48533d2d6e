"""Verbs of the library's command: search problems, and keep an answer that was sent in."""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from experiments.benchmarks.best_known.answers import RECORD, answers_from, keep, placement_of_problem
from experiments.benchmarks.command import add_options, run
from experiments.benchmarks.frame import BenchmarkError, Case
from experiments.benchmarks.instances.check import FOLDER, CheckError, Json, read_json, read_problems
from experiments.benchmarks.measures.search import result_figures
from experiments.config.machine import commit
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.searches.search import search
from schedsearch.validate import validate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    text = "Named problems with the best answers known; see README.md in the folder instances."
    parser = argparse.ArgumentParser(prog="experiments.benchmarks instances", description=text)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the data set (%(default)s)")
    verbs = parser.add_subparsers(metavar="verb", required=True)

    text = "search problems, and print how far the answers are from the best known"
    verb = verbs.add_parser("search", help=text, description=text)
    verb.set_defaults(do=_search)
    verb.add_argument("instances", nargs="*", metavar="name", help="classes or problems; default: all")
    add_options(verb)
    verb.add_argument("--limit", type=float, default=20.0, metavar="S", help="seconds each (%(default)g)")
    verb.add_argument("--work", type=float, metavar="UNITS", help="counted work each, and no --limit")
    verb.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N - 1 (%(default)s)")
    verb.add_argument("--workers", type=int, default=1, metavar="N", help="side by side (%(default)s)")
    verb.add_argument("--update", action="store_true", help="keep answers better than the best known")
    text = "check an answer that was sent in, and store its figures that are better than the best known"
    verb = verbs.add_parser("keep", help=text, description=text)
    verb.set_defaults(do=_keep)
    verb.add_argument("answer", type=Path, help="a file named as its problem, such as sent/NAME.json")
    options = parser.parse_args(arguments)
    for name in ("limit", "work", "seeds", "workers"):
        value = getattr(options, name, None)
        if value is not None and not value > 0:
            parser.error(f"--{name}: {value:g} is not a positive number")
    try:
        return int(options.do(options))
    except (BenchmarkError, CheckError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")


def _chosen(folder: Path, names: Sequence[str]) -> list[Json]:
    """Return the problems of some classes or names; all if there are none."""
    problems = read_problems(folder).values()
    groups = sorted({problem["class"] for problem in problems})
    for name in names:
        if name not in (*groups, *(problem["name"] for problem in problems)):
            raise CheckError(f"name: {name!r} is no class or problem; the classes are {', '.join(groups)}")
    return [problem for problem in problems if not names or {problem["name"], problem["class"]} & {*names}]


def _search(options: argparse.Namespace) -> int:
    read_json(options.folder / "best_known.json")  # faults in files come before all searches
    problems = _chosen(options.folder, options.instances)
    for problem in problems:
        placement_of_problem(problem)
    limit = {"time_limit_s": options.limit} if options.work is None else {"work_limit": options.work}
    cases = [
        Case(
            problem["class"] + (" (held out)" if problem["held_out"] else ""),
            problem["name"] + (f", seed {seed}" if seed else ""),
            partial(searched, options.folder, problem, update=options.update),
            limit | {"seed": seed},
            is_quick=problem["quick"],
        )
        for seed in range(options.seeds)
        for problem in problems
    ]
    return run("instances", cases, options)


def searched(
    folder: Path, problem: Json, *, update: bool, without: Collection[str] = (), **options: Any
) -> dict[str, Any]:
    """Search a problem, and update the data set of a folder with better answers.

    Figures that end in ``_gap`` are percent above the best known, those in ``_open`` percent above the known
    bound. A device span is with the devices' first starts chosen for it.
    """
    placement, number = placement_of_problem(problem), problem["num_micro_batches"]
    result = search(placement, number, without=without, **options)
    figures = result_figures(result, placement, number)
    schedules = [] if result.schedule is None else [result.schedule]
    if result.repetend is not None:
        schedules.append(validate(result.repetend.unroll(number)))
        figures["period"] = Fraction(result.repetend.period, result.repetend.micro_batches)
    spans = (int(device_spans(with_least_device_span(schedule)).max()) for schedule in schedules)
    figures["device_span"] = min(spans, default=None)
    for figure, known in read_json(folder / "best_known.json").get(problem["name"], {}).items():
        if figures[figure] is not None:
            figures[f"{figure}_gap"] = 100 * float(figures[figure] / Fraction(known["value"]) - 1)
            figures[f"{figure}_open"] = 100 * float(figures[figure] / Fraction(known["bound"]) - 1)
    figures["period"] = None if figures["period"] is None else float(figures["period"])
    if update:
        bounds = {
            "period": _fraction_not_above(result.universal_bound),
            "makespan": Fraction(result.makespan_bound),
            "device_span": Fraction(result.device_span_bound),
        }
        today = datetime.now(UTC).date().isoformat()
        values = ("the schedsearch authors", today, commit(), "search", round(result.seconds, 2))
        record = dict(zip(RECORD, values, strict=True))
        answers = [answers_from(candidate) for candidate in (*schedules, result.repetend) if candidate]
        with _locked(folder):
            better = [figure for of in answers for figure in keep(folder, problem, of, record, bounds)]
        figures["better"] = ", ".join(dict.fromkeys(better)) or None
    return figures


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let no other process update a data set meanwhile."""
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


def _keep(options: argparse.Namespace) -> int:
    problem, answer = read_problems(options.folder).get(options.answer.stem), read_json(options.answer)
    if problem is None or (missing := [field for field in RECORD if field not in answer]):
        fault = f"{missing[0]}: is missing" if problem else "no problem has the name of this file"
        raise CheckError(f"{options.answer}: {fault}; see SCHEMA.md")
    with _locked(options.folder):
        better = keep(options.folder, problem, answer, {field: answer[field] for field in RECORD}, {})
    sys.stdout.write(f"{problem['name']}: kept: {', '.join(better) or 'nothing, as nothing is better'}\n")
    return 0
