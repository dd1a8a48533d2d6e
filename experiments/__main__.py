"""The front door: ``schedsearch COMMAND ...`` is ``python -m experiments.COMMAND ...``."""

from __future__ import annotations

import importlib
import os
import sys

import schedsearch
from experiments.config.rooms import PURPOSES, names

_HELP = """\
Pipeline schedules for any placement: searched, proved, energy-tuned and run.

schedsearch COMMAND [NAME=VALUE ...]
schedsearch COMMAND --help    every option of a command
schedsearch --version         {version}

{commands}

Try first (seconds each; the output goes to outputs/):

  schedsearch search placement=v_shape search.memory=4
  schedsearch frontier placement=x_shape energy.slowdown=1.1
  schedsearch plan model=llama2_13b cluster=a100_32 batch=512

Programs beside them, each with --help: python -m runtime.check,
runtime.torch_csv, runtime.clock, runtime.server. In Python: import schedsearch.
Completion of a bash shell: eval "$(schedsearch -sc install=bash)"
"""

_COLLECT = "collect"
"""The command that has no config."""

_EVERY = (*names(), _COLLECT)


def main() -> None:
    """Run the command that the command line names; exit with its code."""
    given = sys.argv[1:]
    if not given or given[0] in ("--help", "-h", "help"):
        print(_help(), end="")  # noqa: T201
    elif given[0] == "--version":
        print(schedsearch.__version__)  # noqa: T201
    elif given[0] in ("-sc", "--shell-completion"):
        _complete()
    elif given[0] in _EVERY:
        _run(given[0])
    else:
        print(f"schedsearch: error: {_remedy(given[0])}", file=sys.stderr)  # noqa: T201
        sys.exit(2)  # a user's error, as of each command


def _run(command: str) -> None:
    del sys.argv[1]
    if command == _COLLECT:
        importlib.import_module("experiments.collect").main()
    else:
        from experiments.config.command import run  # which help of all commands does not wait for

        run(command)


def _help() -> str:
    width = max(map(len, _EVERY))
    purposes = {name: PURPOSES[name] for name in names()} | {_COLLECT: "Make one table of many runs."}
    lines = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in purposes.items())
    return _HELP.format(version=schedsearch.__version__, commands=lines)


def _remedy(given: str) -> str:
    if "=" in given or given.startswith("-"):
        return f"{given}: needs a command before it, as in schedsearch search placement=v_shape"
    from experiments.config.options import did_you_mean  # loads more than help waits for

    return f"{given}: is not a command; {did_you_mean(given, _EVERY)}"


def _complete() -> None:
    """Let Hydra complete the options of the command that the line begins with; else show the commands."""
    line = os.environ.get("COMP_LINE", "")
    front, _, rest = line.partition(" ")
    command, space, _ = rest.partition(" ")
    if line and not (space and command in names()):
        print(*(name for name in _EVERY if name.startswith(command)))  # noqa: T201
        return
    point = int(os.environ.get("COMP_POINT", len(line))) - len(front) - 1
    os.environ |= {"COMP_LINE": rest, "COMP_POINT": str(point)}
    sys.argv.insert(1, command or names()[0])
    _run(sys.argv[1])


if __name__ == "__main__":
    main()
