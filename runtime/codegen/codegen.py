"""Programs as readable Python scripts, one per device: plain calls, and loops for steady states.

A script's docstring says which job it is of, how all are started, and shows the schedule as a picture.
A script is an order of actions with their clocks; ``job.json`` beside the scripts holds model and placement.
The text depends on nothing else, so equal plans give equal files. What the calls do is `runtime.device`'s
affair. Where every block of every device is in a loop and the clocks repeat with it, the loops are for any
number of micro-batches.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from placements import Placement
from placements.block import COMPUTE
from placements.forms.texts import write_text
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks, unrolled_clocks
from runtime.codegen.iteration_text import ClockPlanError, IterationText, check_clocks
from runtime.codegen.job import JOB_FILE, ScriptJob, write_job
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Programs
from runtime.program.loops import LoopedProgram, ParametricPrograms, best_loops, loops_of_each, parametric
from schedsearch.picture import shortened

__all__ = ["ClockPlanError", "generate"]

_END = '''def train() -> None:
    """Train, beside the processes of the other devices."""
    run(iteration, job=JOB, script=__file__)


if __name__ == "__main__":
    train()
'''


def generate(
    programs: Programs,
    clock_mhz: ScriptClocks,
    model: Mapping[str, object],
    directory: Path,
    shift: int | None = None,
    title: str = "",
    picture: str = "",
    versions: Mapping[str, str] | None = None,
    rows: Sequence[int] | None = None,
) -> list[Path]:
    """Write ``job.json`` and a script ``device_<d>.py`` for each device, each file in one step.

    Args:
        programs: Safe ones; see `runtime.program.deadlock.check`.
        clock_mhz: For each block the clock of each micro-batch, in MHz, or those of any number of them;
            empty to leave the clocks alone. Where a block has one for each, the scripts are for exactly
            this number.
        model: Options of the blocks' modules; data that JSON has a form for.
        directory: Made if it is not there. Scripts of devices that the programs lack are left alone.
        shift: Micro-batches per round of the loops, as of the repetend; by default as of the loops that cover
            most.
        title: Title in a few words; the placement's name if empty.
        picture: The schedule as text, with rows ``<device> | ...`` of each device; may be empty.
        versions: Versions of the software that the scripts were made with, by its name.
        rows: For each device its row of the picture, where a row stands for several GPUs.

    Returns:
        The scripts' paths, by device.

    Raises:
        ClockPlanError: There is no such block, or one lacks clocks or has not one for each micro-batch.
        JobError: The model holds something that JSON has no form for.
        ModelError: It is a user's file that makes no model of the placement.
    """
    placement, number = programs.placement, programs.num_micro_batches
    check_clocks(placement, number, clock_mhz)
    by_name = placement.by_name  # blocks that compute set a GPU's one clock, those beside them none
    clock_mhz = {name: of_block for name, of_block in clock_mhz.items() if by_name[name].stream == COMPUTE}
    if programs.batch:  # an order of micro-batches that differ has no rounds
        shift, looped = 1, tuple(LoopedProgram((program,)) for program in programs.instructions)
    else:
        shift, looped = best_loops(programs) if shift is None else (shift, loops_of_each(programs, shift))
    is_periodic = all(isinstance(of_block, PeriodicClocks) for of_block in clock_mhz.values())
    loops = _safe_loops(parametric(programs, looped, shift)) if is_periodic else None
    clocks = unrolled_clocks(clock_mhz, number) if loops is None else clock_mhz
    shared = (_with_forms(model, programs), placement, number, programs.channels)
    least, per_round = (loops.least, loops.shift) if loops else (None, 1)
    job = ScriptJob(*shared, least, per_round, programs.specs, versions or {}, programs.batch)
    name = write_job(job, directory / JOB_FILE)
    title = f"{title or placement.name}: {_number_text(programs, loops, is_periodic)}"
    folder = directory.resolve().name
    paths = []
    for device in range(placement.num_devices):
        row = None if rows is None else rows[device]
        iteration = IterationText(placement, number, looped[device], clocks, loops is not None)
        names = "Device, PeriodicClocks, run, unrolled_clocks" if iteration.is_periodic else "Device, run"
        pieces = [
            header(placement, device, row, title, folder, picture, job.versions),
            f"from runtime.device import {names}",
            f'JOB = "{name}"  # the hash of job.json',
            *filter(None, [iteration.table]),
            f"\n{iteration.text()}\n",
            _END,
        ]
        paths.append(directory / f"device_{device}.py")
        write_text(paths[-1], "\n\n".join(pieces))
    return paths


def _with_forms(model: Mapping[str, object], programs: Programs) -> Mapping[str, object]:
    """Return the model with the forms of a user's modules, so that the processes need not find them."""
    if model.get("name") != "module" or "handed_over" in model:
        return model
    from runtime.models import ModelOptions, traced  # They load torch, which other models do not need here.

    return traced(ModelOptions.from_dict(model), programs.placement).to_dict()


def _safe_loops(loops: ParametricPrograms | None) -> ParametricPrograms | None:
    """Return loops if more and fewer rounds are safe; one round more stands for all, launch checks each.

    Where too few rounds are not safe, they begin with the least that are.
    """
    if loops is None or not _is_safe(loops, loops.programs.num_micro_batches + loops.shift):
        return None
    numbers = range(loops.least, loops.programs.num_micro_batches, loops.shift)
    least = next((number for number in numbers if _is_safe(loops, number)), None)
    return None if least is None else replace(loops, least=least)


def _is_safe(loops: ParametricPrograms, num_micro_batches: int) -> bool:
    try:
        check(loops.at(num_micro_batches))
    except UnsafeProgramsError:
        return False
    return True


def _number_text(programs: Programs, loops: ParametricPrograms | None, is_periodic: bool) -> str:
    number = f"{programs.num_micro_batches} micro-batches"
    if loops is None:
        why = "not all of it repeats" if is_periodic else "each has clocks of its own"
        why = "which differ" if programs.batch else why
        return f"exactly {number} ({why})"
    if loops.shift == 1:
        return f"{number} (or any number from {loops.least} on)"
    return f"{number} (or {loops.least}, {loops.least + loops.shift} and so on)"


PICTURE_WIDTH = 106
"""Characters of a picture's line that leave room for the arrow."""


def launch_lines(devices_of_nodes: Sequence[int], folder: str) -> list[str]:
    """Return how the scripts of a folder are started, on one node and on several.

    One node has all devices where nobody has said which they have.
    """
    num_devices, num_nodes = sum(devices_of_nodes), len(devices_of_nodes)
    scripts = f"-m runtime.launch {shlex.quote(folder)}"
    lines = [
        "Start all devices, from the folder above this one, on one node with",
        f"    torchrun --nproc-per-node {num_devices} {scripts}",
    ]
    if num_devices == 1:
        return lines
    # Which node has which devices is the placement's matter; with the rendezvous c10d torchrun would choose.
    nodes, count = str(num_nodes), str(devices_of_nodes[0])
    has = f"{num_nodes} nodes with {count} devices each"
    if num_nodes == 1:
        nodes, count = "N", "G"
        has = f"N nodes with G devices each (N x G = {num_devices})"
    elif len(set(devices_of_nodes)) > 1:
        count = "G"
        has = f"{num_nodes} nodes with G = {', '.join(map(str, devices_of_nodes))} devices"
    return [
        *lines,
        f"or on {has}, on node R from 0 on, node 0 being HOST, with",
        f"    torchrun --nnodes {nodes} --node-rank R --nproc-per-node {count} --master-addr HOST {scripts}",
    ]


def header(
    placement: Placement,
    device: int,
    row: int | None,
    title: str,
    folder: str,
    picture: str,
    versions: Mapping[str, str],
) -> str:
    """Return the docstring of a device's script.

    The title, the picture (with rows ``<device> | ...``, or none) and the versions are those of
    `generate`; the row is the script's in the picture, where a row stands for several
    GPUs.
    """
    which = "" if row is None else f", a GPU of the schedule's device {row},"
    made_with = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        f"Device {device} of {placement.num_devices}{which} of {' '.join(title.split())}.",
        *([f"Made with {made_with}."] if made_with else []),
        *_picture(picture, device if row is None else row),
        "",
        *launch_lines(placement.gpus_of_nodes, folder),
        "",
        "You may change the lines below. Whether they are still safe tells",
        f"    python -m runtime.check {shlex.quote(folder)}",
        "Model and placement are in job.json beside this script.",
    ]
    return '"""' + "\n".join(map(_docstring_line, lines)) + '\n"""'


def _picture(picture: str, row: int) -> list[str]:
    """Return the picture's lines with arrows at one device, after an empty line; of many only some."""
    lines, is_row = list[str](), re.compile(r" *\d+ \|").match
    for are_rows, group in itertools.groupby(picture.splitlines(), lambda line: bool(is_row(line))):
        part = [*group]
        lines += shortened(part, row) if are_rows else part
    marked = [("  > " if line.lstrip().startswith(f"{row} |") else "    ") + line for line in lines]
    return ["", *marked] if marked else []


def _docstring_line(line: str) -> str:
    """Return text that a docstring shows as the line, whatever it holds."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line.rstrip())
    return visible.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
