"""Programs as readable Python scripts, one per device: plain calls, and loops for steady states.

A script is an order of actions with their clocks; ``job.json`` beside the scripts holds model and placement.
The text depends on nothing else, so equal plans give equal files. What the calls do is `runtime.device`'s
affair. Where every block of every device is in a loop and the clocks repeat with it, the loops are for any
number of micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from placements.block import COMPUTE
from placements.forms.texts import write_text
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks, unrolled_clocks
from runtime.codegen.header import header
from runtime.codegen.iteration_text import ClockPlanError, IterationText, check_clocks
from runtime.codegen.job import JOB_FILE, ScriptJob, write_job
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Programs
from runtime.program.loops import LoopedProgram, ParametricPrograms, best_loops, loops_of_each, parametric

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
    clock_mhz = {name: own for name, own in clock_mhz.items() if by_name[name].stream == COMPUTE}
    if programs.batch:  # an order of micro-batches that differ has no rounds
        shift, looped = 1, tuple(LoopedProgram((program,)) for program in programs.instructions)
    else:
        shift, looped = best_loops(programs) if shift is None else (shift, loops_of_each(programs, shift))
    is_periodic = all(isinstance(own, PeriodicClocks) for own in clock_mhz.values())
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
