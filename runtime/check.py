"""Proves saved programs before they are launched.

As a program::

    python -m runtime.check FILES...

Each file is a folder of generated scripts, a ``programs.json``, or a CSV of torch.distributed.pipelining,
with or without sends and receives. There is a line for each on the standard output: what was proved, or the
fault and the place where it is. Exit code 0 if all are safe, 1 if one is not, 2 if one cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.codegen.job import JOB_FILE
from runtime.codegen.script import programs_of, read_scripts
from runtime.program import deadlock
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check_updates
from runtime.program.instructions import Programs, Run, Send
from runtime.program.lower import schedule_of
from runtime.program.program_file import ProgramFileError, read_programs
from runtime.program.tensor_flow import UnrunnablePlacementError
from runtime.torch_pipelining.check import proof_of
from runtime.torch_pipelining.table import TorchCsvError, read_torch_csv
from runtime.transport.communicators import communicators
from schedsearch.metrics import peak_host_memory, peak_memory

SAFE, UNSAFE, UNREADABLE = 0, 1, 2
"""Exit codes."""


_TO_GIVE = "give a folder of generated scripts, a programs.json or a CSV of torch"


def check_file(path: str | Path) -> str:
    """Return the proof of a file or folder, in one line.

    Args:
        path: See above.

    Raises:
        UnsafeProgramsError: Programs or a table are not safe; the message has the place of the fault.
        ProgramFileError: Programs cannot be read.
        ScriptError: Scripts cannot be read.
        TorchCsvError: A table cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise ProgramFileError(f"{path}: cannot be read (No such file or directory); {_TO_GIVE}")
    if path.name == JOB_FILE:
        raise ProgramFileError(f"{path}: is shared by the scripts; give the folder with the scripts")
    if path.suffix == ".py":
        raise ProgramFileError(f"{path}: is one script; give the folder with the scripts of all devices")
    if path.is_dir():
        return _check_scripts(path)
    if path.suffix == ".json":
        return _proved(read_programs(path))
    return proof_of(read_torch_csv(path))


def _check_scripts(folder: Path) -> str:
    """Return the proof of scripts, which also use no other channels than are opened."""
    scripts = read_scripts(folder)
    programs = programs_of(scripts)
    proved = _proved(programs)
    if not scripts[0].is_flushed:
        check_updates(programs, scripts[0].model_data.get("micro_batches_per_update", 1))
    if missing := sorted(set(programs.channels) - set(scripts[0].channels)):
        source, target = missing[0]
        raise UnsafeProgramsError(f"the channels lack ({source}, {target}), on which device {source} sends")
    return proved


def _proved(programs: Programs) -> str:
    try:
        deadlock.check(programs)
        _check_memory(programs)
    except UnrunnablePlacementError as error:
        raise UnsafeProgramsError(str(error)) from None
    placement = programs.placement
    instructions = [instruction for program in programs.instructions for instruction in program]
    shared = {block.name for block in placement.blocks if len(block.devices) > 1}
    together = {run for run in instructions if isinstance(run, Run) and run.block in shared}
    num_messages = sum(isinstance(instruction, Send) for instruction in instructions)
    return (
        f"programs: {placement.num_devices} devices, {programs.num_micro_batches} micro-batches, "
        f"{num_messages} messages on {len(programs.channels)} channels, {len(together)} collective blocks "
        "(run by several devices together); finish even if every send and receive blocks its device"
        + ("; shapes and types are the same at both ends" if programs.specs else "")
        + f"; {len(communicators(placement, programs.channels))} communicators on NCCL"
    )


def _check_memory(programs: Programs) -> None:
    """Ensure that no device holds more than it has, each block in the mode that it runs in."""
    placement, schedule = programs.placement, schedule_of(programs)
    for name, held, has in (
        ("memory", peak_memory(schedule), placement.memory),
        ("host_memory", peak_host_memory(schedule), placement.host_memory),
    ):
        for device, capacity in enumerate(has or ()):
            if held[device] > capacity:
                other = ", or more of them in a mode that holds less" if placement.decisions else ""
                text = f"{name}: device {device} holds {held[device]} and has {capacity}"
                raise UnsafeProgramsError(f"{text}; run forward blocks later{other}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check files; return the exit code.

    Args:
        arguments: Arguments of the command line; by default this process's.
    """
    parser = argparse.ArgumentParser("python -m runtime.check", description="Prove programs before a launch.")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a folder of scripts, a programs.json or a CSV"
    )
    worst = SAFE
    for path in map(Path, parser.parse_args(arguments).files):
        try:
            sys.stdout.write(f"{path}: safe: {check_file(path)}\n")
        except UnsafeProgramsError as error:
            sys.stdout.write(f"{path}: unsafe: {error}\n")
            worst = max(worst, UNSAFE)
        except (ProgramFileError, ScriptError, TorchCsvError) as error:
            sys.stderr.write(f"{error}\n")
            worst = UNREADABLE
    return worst


if __name__ == "__main__":
    sys.exit(main())
