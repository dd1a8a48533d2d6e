"""What every benchmark's command does: choose cases, measure them one by one, write the rows so far."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.benchmarks.results import COLUMNS, COMPARED, Case, Row, summary, write_results
from experiments.config.command import INTERRUPTED
from experiments.config.machine import machine
from schedsearch.modulo.progress import StepBar


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: As in ``python -m experiments.benchmarks.<name>``.
        description: What ``--help`` says first.
        groups: The cases by the name that the command line uses.
        prepare: Called once before the first case, so that no case pays for it.
        draw: Draws the rows of a whole run beside the results file; its arguments are the rows and that file.
    """

    name: str
    description: str
    groups: Mapping[str, Callable[[], Iterable[Case]]]
    prepare: Callable[[], None] = lambda: None
    draw: Callable[[Sequence[Row], Path], None] | None = None

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command; return its exit code."""
        groups = self.groups
        parser = argparse.ArgumentParser(
            prog=f"experiments.benchmarks.{self.name}", description=self.description
        )
        names = ", ".join(groups)
        parser.add_argument("groups", nargs="*", metavar="group", help=f"of {names}; default: all")
        parser.add_argument("--quick", action="store_true", help="a few cases of each group, as a smoke test")
        parser.add_argument(
            "--case", default="", metavar="TEXT", help="only cases with this text in their name"
        )
        output = Path(f"outputs/{self.name}_benchmark.json")
        parser.add_argument("--output", type=Path, default=output, help="results file (%(default)s)")
        options = parser.parse_args(arguments)
        for name in options.groups:
            if name not in groups:
                parser.error(f"group: {name!r} is not a group; use {names}")
        cases = [
            case
            for name in options.groups or groups
            for case in groups[name]()
            if options.case in case.name and (case.is_quick or not options.quick)
        ]
        if not cases:
            parser.error("no case is left; leave out --quick or --case")
        try:
            rows = self.run(cases, options.output)
            if self.draw is not None:
                self.draw(rows, options.output)
        except KeyboardInterrupt:
            sys.stderr.write(f"{self.name} benchmark: interrupted; the rows done are in {options.output}\n")
            return INTERRUPTED
        except OSError as error:
            parser.error(f"--output: {options.output}: {error.strerror or error}")
        sys.stdout.write(f"{summary(rows)}; results in {options.output}\n")
        return 0

    def run(self, cases: Sequence[Case], output: Path) -> list[Row]:
        """Measure each case, print its row, and write the rows so far.

        Args:
            cases: In this order.
            output: The results file; see `experiments.benchmarks.results.write_results`.

        Raises:
            KeyboardInterrupt: It was interrupted; the rows done are written.
            OSError: The file cannot be written; seen before anything is measured.
        """
        on, rows = machine(), list[Row]()
        write_results(output, on, rows)
        self.prepare()
        with StepBar("benchmark") as bar:
            first = 0 if self.draw else len(COMPARED)
            bar.write(" | ".join(COLUMNS[first:]))
            for i, case in enumerate(cases):
                bar(f"{case.group}: {case.name}", i, len(cases))
                rows.append(Row(case, case.measure()))
                bar.write(" | ".join(rows[-1].cells[first:]))
                write_results(output, on, rows)
            bar("done", len(cases), len(cases))
        return rows
