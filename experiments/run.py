"""Search, tune, generate, run, compare, report: ``python -m experiments.run`` (see README)."""

from __future__ import annotations

import importlib.util
import sys

from experiments.command import FAILED, run_command


def main() -> None:
    """Run the command, if torch is there."""
    if importlib.util.find_spec("torch") is None:
        print("run: error: torch is not installed; pip install 'schedsearch[runtime]'", file=sys.stderr)  # noqa: T201
        sys.exit(FAILED)
    from experiments.job import task  # needs torch, which search and frontier do without

    run_command("run", task)


if __name__ == "__main__":
    main()
