"""Programs as readable Python scripts, one per device: plain calls, and a loop for the steady state.

The scripts hold all they need: the model, the placement, the clocks. The text depends on nothing else, so
equal plans give equal files. What the calls do is `runtime.device`'s affair.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from placements.placement_file import placement_to_dict
from runtime.literal import literal, text_literal
from runtime.program import Instruction, Programs, Receive, Run
from runtime.roll import Rolled, roll
from schedsearch.files import write_text


class ClockPlanError(ValueError):
    """The clocks do not fit the programs; the message names the block, the value and the remedy."""


def generate(
    programs: Programs,
    clock_mhz: Mapping[str, Sequence[int]],
    model: Mapping[str, object],
    directory: Path,
    shift: int = 1,
    title: str = "",
    picture: str = "",
) -> list[Path]:
    """Write a script ``device_<d>.py`` for each device, each file in one step.

    Args:
        programs: Safe ones; see `runtime.deadlock.check`.
        clock_mhz: For each block the clock of each micro-batch, in MHz; empty to leave the clocks alone.
        model: What `runtime.device` builds the blocks' modules from; data that has a literal form.
        directory: Made if it is not there. Scripts of devices that the programs lack are left alone.
        shift: Micro-batches per round of the loops; the repetend's number of lanes.
        title: What the programs are, in a few words; the placement's name if empty.
        picture: The schedule as text, with a row ``<device> | ...`` for each device; may be empty.

    Returns:
        The scripts' paths, by device.

    Raises:
        ClockPlanError: There is no such block, or one lacks clocks or has not one for each micro-batch.
        LiteralError: The model holds something that has no literal form.
    """
    _check_clocks(programs, clock_mhz)
    title = title or programs.placement.name
    data = _data(programs, model)
    plan = plan_hash(programs, clock_mhz)
    paths = []
    for device in range(programs.placement.num_devices):
        parts = [
            _docstring(programs, device, title, plan, directory.resolve().name, picture),
            "from runtime.device import Device, main",
            data,
            *_clock_data(programs, device, clock_mhz),
            "\n" + _iteration(roll(programs.instructions[device], shift), bool(clock_mhz)),
            "\n" + _MAIN,
        ]
        paths.append(directory / f"device_{device}.py")
        write_text(paths[-1], "\n\n".join(parts) + "\n")
    return paths


def plan_hash(programs: Programs, clock_mhz: Mapping[str, Sequence[int]]) -> str:
    """Return twelve hexadecimal digits that tell plans apart: placement, programs and clocks."""
    clocks = {block: [int(clock) for clock in clocks] for block, clocks in clock_mhz.items()}
    content = [placement_to_dict(programs.placement), programs.num_micro_batches, str(programs), clocks]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


_MAIN = (
    'if __name__ == "__main__":\n'
    "    main(iteration, model=MODEL, placement=PLACEMENT, "
    "num_micro_batches=NUM_MICRO_BATCHES, channels=CHANNELS)"
)


def _check_clocks(programs: Programs, clock_mhz: Mapping[str, Sequence[int]]) -> None:
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


def _docstring(programs: Programs, device: int, title: str, plan: str, directory: str, picture: str) -> str:
    num_devices = programs.placement.num_devices
    lines = [
        f"Device {device} of {num_devices} of {' '.join(title.split())}: "
        f"{programs.num_micro_batches} micro-batches, plan {plan}.",
        "",
        "Run all devices, where schedsearch is installed and from the folder above this one, with:",
        f"    torchrun --nproc-per-node {num_devices} -m runtime.launch {shlex.quote(directory)}",
        *_picture(picture, device),
    ]
    return '"""' + "\n".join(_docstring_line(line) for line in lines) + '\n"""'


def _picture(picture: str, device: int) -> list[str]:
    """Return the picture's lines with an arrow at the device's row, after an empty line."""
    rows = [
        ("  > " if row.lstrip().startswith(f"{device} |") else "    ") + row for row in picture.splitlines()
    ]
    return ["", *rows] if rows else []


def _docstring_line(line: str) -> str:
    """Return text that a docstring shows as the line, whatever it holds."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line.rstrip())
    return visible.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _data(programs: Programs, model: Mapping[str, object]) -> str:
    """Return the constants that all scripts share."""
    constants: dict[str, object] = {
        "MODEL": dict(model),
        "PLACEMENT": placement_to_dict(programs.placement),
        "NUM_MICRO_BATCHES": programs.num_micro_batches,
        "CHANNELS": list(programs.channels),
    }
    return "\n".join(_constant(name, value) for name, value in constants.items())


def _clock_data(programs: Programs, device: int, clock_mhz: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the clocks of the device's blocks as a constant, or nothing if it has none."""
    clocks = {
        block.name: [int(clock) for clock in clock_mhz[block.name]]
        for block in programs.placement.on(device)
        if clock_mhz
    }
    return [_constant("CLOCK_MHZ", clocks)] if clocks else []


def _constant(name: str, value: object) -> str:
    return f"{name} = {literal(value, name.lower(), used=len(name) + len(' = '))}"


def _iteration(rolled: Rolled, has_clocks: bool) -> str:
    lines = [
        "def iteration(device: Device) -> None:",
        '    """Run one iteration of this device\'s blocks."""',
    ]
    lines += _straight("Warmup." if rolled.rounds else "Nothing repeats.", rolled.warmup, has_clocks)
    lines += _loop(rolled, has_clocks)
    lines += _straight("Cooldown.", rolled.cooldown, has_clocks)
    return "\n".join(lines)


def _straight(title: str, instructions: Sequence[Instruction], has_clocks: bool) -> list[str]:
    if not instructions:
        return []
    calls = (_call(instruction, str(instruction.micro_batch), has_clocks) for instruction in instructions)
    return [f"    # {title}", *(f"    {call}" for call in calls)]


def _loop(rolled: Rolled, has_clocks: bool) -> list[str]:
    """Return the loop over n, the lowest micro-batch of each round."""
    if not rolled.rounds:
        return []
    first, shift = rolled.first_micro_batch, rolled.shift
    last = first + rolled.rounds * shift
    bounds = f"{first}, {last}, {shift}" if shift > 1 else f"{first}, {last}" if first else f"{last}"
    number = "one micro-batch" if shift == 1 else f"{shift} micro-batches"
    lines = [f"    # Repetend: {number} per round.", f"    for n in range({bounds}):"]
    for instruction in rolled.body:
        offset = instruction.micro_batch - first
        lines.append(f"        {_call(instruction, f'n + {offset}' if offset else 'n', has_clocks)}")
    return lines


def _call(instruction: Instruction, micro_batch: str, has_clocks: bool) -> str:
    """Return an instruction as a call of a device's method.

    Args:
        instruction: What to call.
        micro_batch: The expression to take instead of the instruction's micro-batch.
        has_clocks: Whether a run is given its clock.
    """
    if isinstance(instruction, Run):
        block = text_literal(instruction.block)
        clock = f", CLOCK_MHZ[{block}][{micro_batch}]" if has_clocks else ""
        return f"device.run({block}, {micro_batch}{clock})"
    ends = f"{text_literal(instruction.producer)}, {text_literal(instruction.consumer)}, {micro_batch}"
    if isinstance(instruction, Receive):
        return f"device.receive({ends}, source={instruction.source})"
    return f"device.send({ends}, target={instruction.target})"
