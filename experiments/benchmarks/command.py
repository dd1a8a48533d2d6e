"""The command: choose cases of a group, run them, write their table."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from experiments.benchmarks.frame import (
    GROUPS,
    BenchmarkError,
    Case,
    Row,
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
from schedsearch.solver.side_by_side import side_by_side


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.benchmarks", description="Measure benchmark cases against their targets."
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
    """Measure cases, write the rows so far after each, and print how they compare.

    The preparation is part of no case. With the option `workers`, cases are measured side by side.

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
    left = [case for case in cases if (case.part, case.name) not in done]
    calls = [partial(_measured, prepare, case, _without(case, options.without)) for case in left]
    write, num_before = partial(write_rows, output, about, rows), len(rows)
    try:
        write()
        with StepBar(f"{group} benchmark") as bar:

            def show() -> None:
                step = next((f"{case.part}: {case.name}" for case in left[len(rows) - num_before :]), "done")
                bar(step, len(cases) - len(left) + len(rows) - num_before, len(cases))

            def keep(i: int, row: Row) -> None:
                rows.append(row)
                write()
                bar.write(line(row))
                show()

            show()
            measured_rows = side_by_side(calls, getattr(options, "workers", 1), keep)
        if None in measured_rows:
            raise KeyboardInterrupt
        rows[num_before:] = filter(None, measured_rows)  # in the order of the cases
        write()
    except KeyboardInterrupt:
        sys.stderr.write(f"{group} benchmark: interrupted; {output} has the rows done, --resume goes on\n")
        return INTERRUPTED
    except OSError as error:
        raise BenchmarkError(f"--output: {output}: {error.strerror or error}") from None
    comparison = beside(rows, earlier) + "\n" if earlier else ""
    sys.stdout.write(f"{comparison}{summary(rows)}; results in {output}\n")
    return 0


def _measured(prepare: Callable[[], None], case: Case, more: Mapping[str, Any]) -> Row:
    """Measure a case, in a process that has been prepared."""
    _once(prepare)
    return measured(case, **more)


@cache
def _once(prepare: Callable[[], None]) -> None:
    prepare()


def _without(case: Case, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the argument that leaves strategies out, for measures that have one."""
    if names and "without" not in inspect.signature(case.measure).parameters:
        raise BenchmarkError(f"--without: nothing can be left out of {case.part}; name other parts")
    return {"without": names} if names else {}
