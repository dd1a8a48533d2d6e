"""Measure what the search must reach: ``python -m experiments.benchmarks.search`` (see README)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks.results import COLUMNS, Case, Row, machine, write_results
from experiments.command import INTERRUPTED
from experiments.progress import StepBar


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    from experiments.benchmarks.search_cases import GROUPS

    parser = argparse.ArgumentParser(prog="experiments.benchmarks.search", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a few cases of each group, as a smoke test")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases with this text in their name")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("outputs/search_benchmark.json"),
        help="results file (%(default)s)",
    )
    options = parser.parse_args(arguments)
    for name in options.groups:
        if name not in GROUPS:
            parser.error(f"group: {name!r} is not a group; use {', '.join(GROUPS)}")
    cases = [
        case
        for name in options.groups or GROUPS
        for case in GROUPS[name]()
        if options.case in case.name and (case.is_quick or not options.quick)
    ]
    if not cases:
        parser.error("no case is left; leave out --quick or --case")
    try:
        rows = run(cases, options.output)
    except KeyboardInterrupt:
        sys.stderr.write(f"search benchmark: interrupted; the rows done are in {options.output}\n")
        return INTERRUPTED
    except OSError as error:
        parser.error(f"--output: {options.output}: {error.strerror or error}")
    met = sum(row.outcome.is_met for row in rows)
    sys.stdout.write(f"{met} of {len(rows)} met; results in {options.output}\n")
    return 0


def run(cases: Sequence[Case], output: Path) -> list[Row]:
    """Measure each case, print its row, and write the rows so far.

    Args:
        cases: In this order.
        output: The results file; see `experiments.benchmarks.results.write_results`.

    Raises:
        KeyboardInterrupt: It was interrupted; the rows done are written.
        OSError: The file cannot be written; seen before anything is measured.
    """
    from experiments.benchmarks.measuring import load_solvers

    on, rows = machine(), list[Row]()
    write_results(output, on, rows)
    load_solvers()
    with StepBar("benchmark") as bar:
        bar.write(" | ".join(COLUMNS))
        for i, case in enumerate(cases):
            bar(f"{case.group}: {case.name}", i, len(cases))
            rows.append(Row(case, case.measure()))
            bar.write(" | ".join(rows[-1].cells))
            write_results(output, on, rows)
        bar("done", len(cases), len(cases))
    return rows


if __name__ == "__main__":
    sys.exit(main())
