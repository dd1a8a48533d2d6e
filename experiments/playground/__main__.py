"""The command ``python -m experiments.playground``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.config.command import INTERRUPTED
from experiments.playground.page_data import page_data, problem_to_dict, write_page_data
from experiments.playground.problems import problems
from schedsearch.modulo.progress import StepBar


def main(arguments: Sequence[str] | None = None) -> int:
    """Search every problem of the playground and write the file of its page; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.playground", description="Search the schedules of the playground in the docs."
    )
    output = Path("docs/playground/schedules.js")
    parser.add_argument("--output", type=Path, default=output, help="the file to write (%(default)s)")
    options = parser.parse_args(arguments)
    if not options.output.parent.is_dir():
        parser.error(
            f"--output: {options.output.parent} is not a directory; give a file in one that is there"
        )
    wanted = list(problems())
    solved = []
    try:
        with StepBar("playground") as bar:
            for i, problem in enumerate(wanted):
                name = f"{problem.preset.name}, {problem.num_devices} x {problem.num_micro_batches}"
                bar(name, i, len(wanted))
                solved.append((problem, problem_to_dict(problem)))
            bar("done", len(wanted), len(wanted))
    except KeyboardInterrupt:
        sys.stderr.write("playground: interrupted; nothing is written\n")
        return INTERRUPTED
    write_page_data(options.output, page_data(solved))
    return 0


if __name__ == "__main__":
    sys.exit(main())
