"""The command: choose cases of a group, run them, write their table."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.benchmarks.frame import (
    GROUPS,
    BenchmarkError,
    Case,
    beside,
    line,
    measured,
    measures_of,
    read_cases,
    read_rows,
    summary,
    write_rows,
)
from experiments.benchmarks.timing import load_solvers
from experiments.config.command import INTERRUPTED
from experiments.config.machine import commit, machine
from schedsearch.core.progress import StepBar


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.benchmarks", description="Measure what must be reached, case by case."
    )
    parser.add_argument("group", help=f"{', '.join(GROUPS)}; or instances, which has verbs of its own")
    parser.add_argument("parts", nargs="*", metavar="part", help="parts of the group; default: all")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases with this text in their name")
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        cases = read_cases(options.group)
        known = list(dict.fromkeys(case.part for case in cases))
        for name in options.parts:
            if name not in known:
                raise BenchmarkError(f"part: {name!r} is not a part; use {', '.join(known)}")
        chosen = [case for case in cases if options.case in case.name]
        chosen = [case for case in chosen if not options.parts or case.part in options.parts]
        measures = measures_of(options.group)
        return run(options.group, chosen, options, measures.prepare)
    except BenchmarkError as error:
        parser.error(str(error))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all that runs cases."""
    parser.add_argument("--quick", action="store_true", help="the smallest case of each part")
    parser.add_argument("--without", nargs="+", metavar="NAME", help="strategies to leave out")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="compare with an earlier results file")
    parser.add_argument("--resume", action="store_true", help="keep the rows that --output has already")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="results file (outputs/GROUP_benchmark.json)"
    )


def run(
    group: str, cases: Sequence[Case], options: argparse.Namespace, prepare: Callable[[], None] = load_solvers
) -> int:
    """Measure cases one by one, write the rows so far after each, and print how they compare.

    The preparation is part of no case.

    Raises:
        BenchmarkError: No case is left, a file is wrong, or cannot be written.
    """
    cases = [case for case in cases if case.is_quick or not options.quick]
    if not cases:
        raise BenchmarkError("no case is left; leave out --quick or --case")
    output: Path = options.output or Path(f"outputs/{group}_benchmark.json")
    earlier = read_rows(options.beside) if options.beside else []
    rows = read_rows(output) if options.resume and output.exists() else []
    done = {(row.part, row.case) for row in rows}
    about = {"group": group, "version": commit(), "machine": machine()}
    if options.without:
        about["without"] = options.without
    write = partial(write_rows, output, about, rows)
    try:
        write()
        prepare()
        with StepBar(f"{group} benchmark") as bar:
            for i, case in enumerate(cases):
                bar(f"{case.part}: {case.name}", i, len(cases))
                if (case.part, case.name) not in done:
                    rows.append(measured(case, **_without(case, options.without)))
                    write()
                    bar.write(line(rows[-1]))
            bar("done", len(cases), len(cases))
    except KeyboardInterrupt:
        sys.stderr.write(f"{group} benchmark: interrupted; {output} has the rows done, --resume goes on\n")
        return INTERRUPTED
    except OSError as error:
        raise BenchmarkError(f"--output: {output}: {error.strerror or error}") from None
    comparison = beside(rows, earlier) + "\n" if earlier else ""
    sys.stdout.write(f"{comparison}{summary(rows)}; results in {output}\n")
    return 0


def _without(case: Case, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the argument that leaves strategies out, for measures that have one."""
    if names and "without" not in inspect.signature(case.measure).parameters:
        raise BenchmarkError(f"--without: nothing can be left out of {case.part}; name other parts")
    return {"without": names} if names else {}
