"""The command line ``python -m runtime.clock``: unlock clocks, measure their changes, set them for others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from runtime.clocks import latency
from runtime.clocks.access import serve
from runtime.clocks.nvml import NvmlError, NvmlGpu, num_gpus


def reset_all() -> bool:
    """Unlock the clocks of all GPUs, write a line for each, and tell whether it was done for all."""
    try:
        indices = range(num_gpus())
    except NvmlError as error:
        sys.stderr.write(f"{error}\n")
        return False
    done = [_reset(index) for index in indices]
    return all(done)


def _reset(index: int) -> bool:
    try:
        NvmlGpu(str(index)).unlock()
    except NvmlError as error:
        sys.stderr.write(f"{error}\n")
        return False
    _say(f"GPU {index}: clocks are unlocked")
    return True


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _add_latency_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", default="0", help="NVML's index or UUID (default 0)")
    parser.add_argument(
        "--num-clocks",
        type=_at_least(2),
        default=5,
        help="number of clocks; every pair of them is measured (default 5)",
    )
    parser.add_argument(
        "--repeats", type=_at_least(1), default=5, help="measurements of each pair (default 5)"
    )
    parser.add_argument(
        "--window-ms",
        type=_at_least(1),
        default=200,
        help="time in ms in which a change must take effect (default 200)",
    )
    parser.add_argument("--output", default="clock_latency.json", help="the file (default %(default)s)")


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
    _add_latency_options(commands.add_parser("latency", help="measure how long changes of clock take"))
    serve.add_options(commands.add_parser("serve", help="set clocks for users who may not, on a Unix socket"))
    parsed = parser.parse_args(arguments)
    if parsed.command == "serve":
        return serve.run(parsed)
    if parsed.command == "latency":
        return latency.run(parsed)
    return 0 if reset_all() else 1
