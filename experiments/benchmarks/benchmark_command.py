"""What every benchmark's command does: choose cases, measure them one by one, write the rows so far."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from experiments.benchmarks.results import (
    COLUMNS,
    COMPARED,
    BenchmarkCase,
    BenchmarkRow,
    CaseResult,
    summary,
    write_results,
)
from experiments.benchmarks.timing import CpuClock
from experiments.config.command import INTERRUPTED
from experiments.config.machine import machine
from schedsearch.modulo.progress import StepBar


def add_options(parser: argparse.ArgumentParser, quick: str, output: str) -> None:
    """Add the options that all commands of benchmarks have: ``--quick``, and ``--output`` if there is one."""
    parser.add_argument("--quick", action="store_true", help=quick)
    if output:
        parser.add_argument("--output", type=Path, default=Path(output), help="results file (%(default)s)")


def go_through(title: str, steps: Sequence[tuple[str, Callable[[], str]]], kept: str) -> bool:
    """Take steps one after the other under a progress bar; return whether none was interrupted.

    A step is what the bar says, and a function that returns the line to print, or nothing. After an
    interruption ``kept`` says what becomes of the steps done.
    """
    try:
        with StepBar(title) as bar:
            for i, (text, step) in enumerate(steps):
                bar(text, i, len(steps))
                if line := step():
                    bar.write(line)
            bar("done", len(steps), len(steps))
    except KeyboardInterrupt:
        sys.stderr.write(f"{title}: interrupted; {kept}\n")
        return False
    return True


def goes_on(output: Path) -> str:
    """Return what to say where a run goes on with the rows of its results file."""
    return f"the rows done are in {output}, and the same command goes on"


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
    groups: Mapping[str, Callable[[], Iterable[BenchmarkCase]]]
    prepare: Callable[[], None] = lambda: None
    draw: Callable[[Sequence[BenchmarkRow], Path], None] | None = None

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command; return its exit code."""
        parser = argparse.ArgumentParser(
            prog=f"experiments.benchmarks.{self.name}", description=self.description
        )
        names = ", ".join(self.groups)
        parser.add_argument("groups", nargs="*", metavar="group", help=f"of {names}; default: all")
        parser.add_argument(
            "--case", default="", metavar="TEXT", help="only cases with this text in their name"
        )
        add_options(
            parser, "a few cases of each group, as a smoke test", f"outputs/{self.name}_benchmark.json"
        )
        options = parser.parse_args(arguments)
        for name in options.groups:
            if name not in self.groups:
                parser.error(f"group: {name!r} is not a group; use {names}")
        cases = {
            name: [
                case
                for case in self.groups[name]()
                if options.case in case.name and (case.is_quick or not options.quick)
            ]
            for name in options.groups or self.groups
        }
        if not any(cases.values()):
            parser.error("no case is left; leave out --quick or --case")
        try:
            rows, is_through = self.run(cases, options.output)
            if not is_through:
                return INTERRUPTED
            if self.draw is not None:
                self.draw(rows, options.output)
        except OSError as error:
            parser.error(f"--output: {options.output}: {error.strerror or error}")
        sys.stdout.write(f"{summary(rows)}; results in {options.output}\n")
        return 0

    def run(
        self, cases: Mapping[str, Iterable[BenchmarkCase]], output: Path
    ) -> tuple[list[BenchmarkRow], bool]:
        """Measure each case, print its row, and write the rows so far.

        Args:
            cases: The cases of each group, in this order.
            output: The results file; see `experiments.benchmarks.results.write_results`.

        Returns:
            The rows, and whether no case was interrupted.

        Raises:
            OSError: The file cannot be written; seen before anything is measured.
        """
        on, rows = machine(), list[BenchmarkRow]()
        write_results(output, on, rows)
        self.prepare()
        first = 0 if self.draw else len(COMPARED)

        def step(group: str, case: BenchmarkCase) -> str:
            rows.append(BenchmarkRow(group, case, measured(case)))
            write_results(output, on, rows)
            heads = " | ".join(COLUMNS[first:]) + "\n" if len(rows) == 1 else ""
            return heads + " | ".join(rows[-1].cells[first:])

        steps = [
            (f"{group}: {case.name}", partial(step, group, case))
            for group, some in cases.items()
            for case in some
        ]
        return rows, go_through(f"{self.name} benchmark", steps, f"the rows done are in {output}")


def measured(case: BenchmarkCase) -> CaseResult:
    """Return what a case reached, or why it cannot be measured here."""
    if reason := case.lacks():
        return CaseResult(0.0, skipped=reason)
    clock = CpuClock()
    result = case.measure()
    return result if result.cpu_s is not None else replace(result, cpu_s=clock.seconds)
