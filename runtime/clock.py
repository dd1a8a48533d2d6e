"""The command line ``python -m runtime.clock``: unlock clocks, measure their changes, set them for others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from runtime.clocks import helper, latency
from runtime.clocks.nvml import NvmlError, NvmlGpu, num_gpus


def reset_all() -> int:
    """Unlock the clocks of all GPUs, write a line for each, and return the exit code: 0 if all are."""
    code, gpus = 0, 0
    try:
        gpus = num_gpus()
    except NvmlError as error:
        code = _fail(error)
    for index in range(gpus):
        try:
            NvmlGpu(str(index)).unlock()
        except NvmlError as error:
            code = _fail(error)
        else:
            sys.stdout.write(f"GPU {index}: clocks are unlocked\n")
    return code


def _fail(error: NvmlError) -> int:
    sys.stderr.write(f"{error}\n")
    return 1


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return number


def main(arguments: list[str] | None = None) -> int:
    """Run the command line: ``reset``, ``latency`` or ``serve``."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime.clock",
        description="Unlock the clocks of all GPUs, measure their changes, or set them for other users.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("reset", help="give the clocks of all GPUs back to the driver")
    add = commands.add_parser("latency", help="measure how long changes of clock take").add_argument
    add("--gpu", default="0", help="NVML's index or UUID (default %(default)s)")
    for option, least, default, text in (
        ("--num-clocks", 2, 5, "number of clocks; every pair of them is measured"),
        ("--repeats", 1, 5, "measurements of each pair"),
        ("--window-ms", 1, 200, "time in ms in which a change must take effect"),
    ):
        add(option, type=_at_least(least), default=default, help=f"{text} (default %(default)s)")
    add("--output", default="clock_latency.json", help="the file (default %(default)s)")
    helper.add_options(
        commands.add_parser("serve", help="set clocks for users who may not, on a Unix socket")
    )
    parsed = parser.parse_args(arguments)
    if parsed.command == "serve":
        return helper.run(parsed)
    return latency.run(parsed) if parsed.command == "latency" else reset_all()


if __name__ == "__main__":
    sys.exit(main())
