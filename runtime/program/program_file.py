"""Programs in a file: ``programs.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placements import Placement, PlacementError
from placements.forms.reading import Field, json_file
from placements.placement_file import placement_from_dict, placement_to_dict
from runtime.program.instructions import Instruction, Programs, ProgramTextError, parse_instruction
from runtime.program.tensor_spec import TensorSpecs, specs_from_plain, specs_to_plain

SCHEMA_VERSION = 2
"""Version of the file form of programs; version 1 has no specs of messages."""


class ProgramFileError(ValueError):
    """A file or folder holds no programs; the message names it, the field and the remedy in one line."""


def programs_to_dict(programs: Programs) -> dict[str, Any]:
    """Return the file form as plain data: each device's program as lines, and the specs of its messages."""
    batch = {"batch": list(programs.batch)} if programs.batch else {}
    return {
        "schema_version": SCHEMA_VERSION,
        "placement": placement_to_dict(programs.placement),
        **batch,
        "num_micro_batches": programs.num_micro_batches,
        "forms": [specs_to_plain(specs) for specs in programs.specs] or None,
        "programs": [[str(instruction) for instruction in program] for program in programs.instructions],
    }


def read_programs(path: str | Path) -> Programs:
    """Return the programs of a ``programs.json``; they need not be safe.

    Raises:
        ProgramFileError: The file cannot be read, lacks a field, or a line is no instruction.
    """
    with json_file(path, "a programs.json", ProgramFileError) as data:
        fields = data.mapping("a mapping", "give a programs.json")
        if "programs" not in fields and "blocks" in fields:
            raise data.mistake("is a schedule; check it with schedsearch check schedule=PATH")
        version = data.version(SCHEMA_VERSION)
        placement = read_placement_field(data["placement"])
        programs = _of_each_device(data["programs"], placement)
        number = data["num_micro_batches"].whole("a whole number from 1 on", min=1)
        instructions = tuple(tuple(map(_instruction, lines.items("a list of lines"))) for lines in programs)
        specs = specs_of_devices(data["forms"], placement) if version > 1 else ()
        batch = batch_from_plain(data["batch"], placement, number) if "batch" in fields else ()
        return Programs(placement, number, instructions, specs, batch)


def batch_from_plain(field: Field, placement: Placement, num_micro_batches: int) -> tuple[int, ...]:
    """Return which choice of the placement's one decision each micro-batch is."""
    if len(placement.decisions) != 1:
        raise field.wrong("a batch of a placement with one decision", "leave it out")
    most = len(placement.decisions[0].choices) - 1
    rows = field.items("a list of choices")
    if len(rows) != num_micro_batches:
        raise field.wrong(f"a list for {num_micro_batches} micro-batches", "give one entry for each")
    return tuple(row.whole(f"a choice from 0 to {most}", min=0, max=most) for row in rows)


def specs_of_devices(field: Field, placement: Placement) -> tuple[TensorSpecs, ...]:
    """Return the specs of each device; nothing for null, where no model was known."""
    if field.value is None:
        return ()
    return tuple(map(specs_from_plain, _of_each_device(field, placement)))


def _of_each_device(field: Field, placement: Placement) -> list[Field]:
    rows, number = field.items(), placement.num_devices
    if len(rows) != number:
        text = f"has {len(rows)} entries; give one for each of {placement.name}'s {number} devices"
        raise field.mistake(text)
    return rows


def read_placement_field(field: Field) -> Placement:
    """Return a placement if each of its devices is one GPU."""
    try:
        placement = placement_from_dict(field.value)
    except PlacementError as error:
        raise field.error(str(error)) from None
    if placement.num_gpus:
        raise field["num_gpus"].mistake(
            f"is {list(placement.num_gpus)}, but a program is for one GPU; give each GPU as a device of "
            "its own and leave it out"
        )
    return placement


def _instruction(field: Field) -> Instruction:
    try:
        return parse_instruction(field.text("a line", "write such as 'run F0 #0'"))
    except ProgramTextError as error:
        raise field.mistake(str(error)) from None
