"""Programs as readable Python scripts, one per device: plain calls, and loops for what repeats.

The scripts hold all they need: the model, the placement, the clocks. The text depends on nothing else, so
equal plans give equal files. What the calls do is `runtime.device`'s affair. Where every block of every
device is in a loop and the clocks repeat with it, the loops are for any number of micro-batches.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from placements.files import write_text
from placements.placement_file import placement_to_dict
from runtime.clocks.periodic_clocks import PeriodicClocks
from runtime.codegen.iteration_text import ClockText, iteration_text
from runtime.codegen.literal import LINE_LENGTH, literal
from runtime.program.any_number import ParametricPrograms, parametric
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Programs
from runtime.program.loops import best_loops, loops_of_each
from runtime.program.tensor_spec import specs_to_plain


class ClockPlanError(ValueError):
    """The clocks do not fit the programs; the message names the block, the value and the remedy."""


Clocks = Mapping[str, Sequence[int]] | PeriodicClocks
"""For each block the clock of each micro-batch, in MHz; or clocks that repeat with the loop."""


def generate(
    programs: Programs,
    clock_mhz: Clocks,
    model: Mapping[str, object],
    directory: Path,
    shift: int | None = None,
    title: str = "",
    picture: str = "",
    versions: Mapping[str, str] | None = None,
    rows: Sequence[int] | None = None,
) -> list[Path]:
    """Write a script ``device_<d>.py`` for each device, each file in one step.

    Args:
        programs: Safe ones; see `runtime.program.deadlock.check`.
        clock_mhz: For each block the clock of each micro-batch, in MHz; or clocks that repeat with the
            loop; empty to leave the clocks alone. With a clock for each micro-batch, or without a steady
            state of some block, the scripts are for exactly so many.
        model: What `runtime.device` builds the blocks' modules from; data that has a literal form.
        directory: Made if it is not there. Scripts of devices that the programs lack are left alone.
        shift: Micro-batches per round of the loops; those of the repetend. None: that of the loops that cover
            most.
        title: What the programs are, in a few words; the placement's name if empty.
        picture: The schedule as text, with a row ``<device> | ...`` for each device; may be empty.
        versions: Of the software that the scripts were made with, by its name, for the header.
        rows: For each device its row of the picture, where a row stands for several GPUs and a device is
            one of them; None where each has its own.

    Returns:
        The scripts' paths, by device.

    Raises:
        ClockPlanError: There is no such block, or one lacks clocks or has not one for each micro-batch.
        LiteralError: The model holds something that has no literal form.
        ModelError: It is a user's file that makes no model of the placement.
    """
    _check_clocks(programs, clock_mhz)
    model = _with_forms(model, programs)
    title = title or programs.placement.name
    shift, looped = best_loops(programs) if shift is None else (shift, loops_of_each(programs, shift))
    why_exact = _why_exact(programs, clock_mhz)
    loops = None if why_exact else _safe_loops(parametric(programs, looped, shift))
    number = _number_text(programs, loops, why_exact)
    plan = plan_hash(programs, clock_mhz)
    data = _data(programs, model, loops)
    paths = []
    for device in range(programs.placement.num_devices):
        clocks = _clock_data(programs, device, clock_mhz)
        text = ClockText.NONE
        if clocks:
            text = ClockText.PERIODIC if isinstance(clock_mhz, PeriodicClocks) else ClockText.LISTED
        names = "Device, PeriodicClocks, main" if text is ClockText.PERIODIC else "Device, main"
        heading = f"{title}: {number}, plan {plan}"
        pieces = [
            _docstring(programs, device, heading, directory.resolve().name, picture, versions, rows),
            f"from runtime.device import {names}",
            data,
            *_spec_data(programs, device),
            *clocks,
            "\n" + iteration_text(looped[device], programs.num_micro_batches, text, loops is not None),
            "\n" + _main(programs, loops),
        ]
        paths.append(directory / f"device_{device}.py")
        write_text(paths[-1], "\n\n".join(pieces) + "\n")
    return paths


def _with_forms(model: Mapping[str, object], programs: Programs) -> Mapping[str, object]:
    """Return the model with what a user's modules hand over, so that the processes need not find it."""
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


def _why_exact(programs: Programs, clock_mhz: Clocks) -> str:
    """Return why the clocks are for no other number of micro-batches; nothing if they are for any."""
    if not isinstance(clock_mhz, PeriodicClocks):
        return "each has clocks of its own" if clock_mhz else ""
    repeats = all(clock_mhz.repeats(block.name) for block in programs.placement.blocks)
    return "" if repeats else "there is no clock for more"


def _number_text(programs: Programs, loops: ParametricPrograms | None, why_exact: str) -> str:
    number = f"{programs.num_micro_batches} micro-batches"
    if loops is None:
        return f"exactly {number} ({why_exact or 'not all of it repeats'})"
    if loops.shift == 1:
        return f"{number} (or any number from {loops.least} on)"
    return f"{number} (or {loops.least}, {loops.least + loops.shift} and so on)"


def plan_hash(programs: Programs, clock_mhz: Clocks) -> str:
    """Return twelve hexadecimal digits that tell plans apart: placement, programs and clocks."""
    clocks: object
    if isinstance(clock_mhz, PeriodicClocks):
        clocks = asdict(clock_mhz)
    else:
        clocks = {block: [int(clock) for clock in clocks] for block, clocks in clock_mhz.items()}
    content = [placement_to_dict(programs.placement), programs.num_micro_batches, str(programs), clocks]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _main(programs: Programs, loops: ParametricPrograms | None) -> str:
    arguments = [
        "iteration",
        *("model=MODEL", "placement=PLACEMENT", "num_micro_batches=NUM_MICRO_BATCHES", "channels=CHANNELS"),
    ]
    if programs.specs:
        arguments.append("forms=FORMS")
    if loops is not None:
        arguments.append("least_micro_batches=LEAST_MICRO_BATCHES")
        arguments.append("micro_batches_per_round=MICRO_BATCHES_PER_ROUND")
    line = f"    main({', '.join(arguments)})"
    if len(line) > LINE_LENGTH:
        line = "    main(\n" + "".join(f"        {argument},\n" for argument in arguments) + "    )"
    return f'if __name__ == "__main__":\n{line}'


def _check_clocks(programs: Programs, clock_mhz: Clocks) -> None:
    if isinstance(clock_mhz, PeriodicClocks):
        for block in programs.placement.blocks:
            for n in range(programs.num_micro_batches):
                try:
                    clock_mhz.at(block.name, n, programs.num_micro_batches)
                except KeyError as error:
                    raise ClockPlanError(f"clock_mhz: {error.args[0]}; give it one") from None
        return
    for name in clock_mhz:
        if name not in programs.placement.by_name:
            raise ClockPlanError(
                f"clock_mhz: {programs.placement.name} has no block {name!r}; use the names of the placement"
            )
    for block in programs.placement.blocks if clock_mhz else ():
        if block.name not in clock_mhz:
            raise ClockPlanError(
                f"clock_mhz: has no clocks for block {block.name!r}; give one for each of the "
                f"{programs.num_micro_batches} micro-batches"
            )
        if (given := len(clock_mhz[block.name])) != programs.num_micro_batches:
            raise ClockPlanError(
                f"clock_mhz: has {given} clocks for block {block.name!r}; give one for each of the "
                f"{programs.num_micro_batches} micro-batches"
            )


def _docstring(
    programs: Programs,
    device: int,
    title: str,
    directory: str,
    picture: str,
    versions: Mapping[str, str] | None,
    rows: Sequence[int] | None,
) -> str:
    num_devices = programs.placement.num_devices
    row = device if rows is None else rows[device]
    which = "" if rows is None else f", a GPU of the schedule's device {row},"
    made_with = ", ".join(f"{name} {version}" for name, version in (versions or {}).items())
    lines = [
        f"Device {device} of {num_devices}{which} of {' '.join(title.split())}.",
        *([f"Made with {made_with}."] if made_with else []),
        "",
        "Run all devices, where schedsearch is installed and from the folder above this one, with:",
        f"    torchrun --nproc-per-node {num_devices} -m runtime.launch {shlex.quote(directory)}",
        *_picture(picture, row),
    ]
    return '"""' + "\n".join(_docstring_line(line) for line in lines) + '\n"""'


def _picture(picture: str, row: int) -> list[str]:
    """Return the picture's lines with an arrow at one row, after an empty line."""
    rows = [
        ("  > " if line.lstrip().startswith(f"{row} |") else "    ") + line for line in picture.splitlines()
    ]
    return ["", *rows] if rows else []


def _docstring_line(line: str) -> str:
    """Return text that a docstring shows as the line, whatever it holds."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line.rstrip())
    return visible.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _data(programs: Programs, model: Mapping[str, object], loops: ParametricPrograms | None) -> str:
    """Return the constants that all scripts share."""
    constants: dict[str, object] = {
        "MODEL": dict(model),
        "PLACEMENT": placement_to_dict(programs.placement),
        "NUM_MICRO_BATCHES": programs.num_micro_batches,
    }
    if loops is not None:
        constants |= {"LEAST_MICRO_BATCHES": loops.least, "MICRO_BATCHES_PER_ROUND": loops.shift}
    constants["CHANNELS"] = list(programs.channels)
    return "\n".join(_constant(name, value) for name, value in constants.items())


def _spec_data(programs: Programs, device: int) -> list[str]:
    """Return the specs of the device's messages as a constant, or nothing if no model was known."""
    return [_constant("FORMS", specs_to_plain(programs.specs[device]))] if programs.specs else []


def _clock_data(programs: Programs, device: int, clock_mhz: Clocks) -> list[str]:
    """Return the clocks of the device's blocks as a constant, or nothing if it has none."""
    names = [block.name for block in programs.placement.on(device)]
    if isinstance(clock_mhz, PeriodicClocks):
        return [_periodic_constant(clock_mhz, names)] if names else []
    clocks = {name: [int(clock) for clock in clock_mhz[name]] for name in names if clock_mhz}
    return [_constant("CLOCK_MHZ", clocks)] if clocks else []


def _periodic_constant(clocks: PeriodicClocks, names: Sequence[str]) -> str:
    lines = ["CLOCK_MHZ = PeriodicClocks("]
    for phase in ("warmup", "steady", "cooldown"):
        of_blocks: Mapping[str, Sequence[Sequence[int]]] = getattr(clocks, phase)
        data = {
            name: [[int(clock) for clock in each] for each in of_blocks[name]]
            for name in names
            if name in of_blocks
        }
        text = literal(data, phase, used=len(f"    {phase}=,"), indent=4)
        lines.append(f"    {phase}={text},")
    if clocks.micro_batches_per_round != 1:
        lines.append(f"    micro_batches_per_round={clocks.micro_batches_per_round},")
    return "\n".join([*lines, ")"])


def _constant(name: str, value: object) -> str:
    return f"{name} = {literal(value, name.lower(), used=len(name) + len(' = '))}"
