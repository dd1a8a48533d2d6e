"""Programs in a file: ``programs.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placements import Placement, PlacementError
from placements.files import read_json
from placements.placement_file import placement_from_dict, placement_to_dict
from runtime.program.instructions import Instruction, Programs, ProgramTextError, parse_instruction
from runtime.program.tensor_spec import TensorSpecError, TensorSpecs, specs_from_plain, specs_to_plain

SCHEMA_VERSION = 2
"""Version of the file form of programs; version 1 has no specs of messages."""


class ProgramFileError(ValueError):
    """A file or folder holds no programs; the message names it, the field and the remedy in one line."""


def programs_to_dict(programs: Programs) -> dict[str, Any]:
    """Return the file form as plain data: each device's program as lines, and what its messages carry."""
    return {
        "schema_version": SCHEMA_VERSION,
        "placement": placement_to_dict(programs.placement),
        "num_micro_batches": programs.num_micro_batches,
        "forms": [specs_to_plain(specs) for specs in programs.specs] or None,
        "programs": [[str(instruction) for instruction in program] for program in programs.instructions],
    }


def read_programs(path: str | Path) -> Programs:
    """Return the programs of a ``programs.json``; they need not be safe.

    Raises:
        ProgramFileError: The file cannot be read, lacks a field, or a line is no instruction.
    """
    data = read_json(path, "a programs.json", ProgramFileError)
    try:
        return _programs(data)
    except KeyError as error:
        raise ProgramFileError(f"{path}: lacks the field {error}; give a programs.json") from None
    except (PlacementError, TensorSpecError, ProgramFileError) as error:
        raise ProgramFileError(f"{path}: {error}") from None


def _programs(data: Any) -> Programs:
    if not isinstance(data, dict):
        raise ProgramFileError("is not a mapping; give a programs.json")
    if "programs" not in data and "blocks" in data:
        raise ProgramFileError("is a schedule; check it with python -m experiments.check schedule=PATH")
    if data["schema_version"] not in range(1, SCHEMA_VERSION + 1):
        raise ProgramFileError(
            f"schema_version: {data['schema_version']!r} is not known; write {SCHEMA_VERSION}"
        )
    placement = for_single_gpus(placement_from_dict(data["placement"]))
    rows = data["programs"]
    if not isinstance(rows, list) or len(rows) != placement.num_devices:
        raise ProgramFileError(
            f"programs: is not a list with one program for each of {placement.name}'s "
            f"{placement.num_devices} devices; give one"
        )
    instructions = tuple(_program(row, f"programs[{device}]") for device, row in enumerate(rows))
    number = positive_number(data["num_micro_batches"], "num_micro_batches")
    specs = _specs(data["forms"], placement) if data["schema_version"] > 1 else ()
    return Programs(placement, number, instructions, specs)


def _specs(rows: object, placement: Placement) -> tuple[TensorSpecs, ...]:
    """Return the specs of each device; nothing for null, where no model was known."""
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) != placement.num_devices:
        raise ProgramFileError(
            f"forms: is not a list with the forms of each of {placement.name}'s {placement.num_devices} "
            "devices; give one, or null"
        )
    return tuple(specs_from_plain(row, f"forms[{device}]") for device, row in enumerate(rows))


def for_single_gpus(placement: Placement) -> Placement:
    """Return a placement if each of its devices is one GPU.

    Raises:
        ProgramFileError: One stands for several.
    """
    if placement.num_gpus:
        raise ProgramFileError(
            f"placement.num_gpus: is {list(placement.num_gpus)}, but a program is that of one GPU; give each "
            "GPU as a device of its own and leave it out"
        )
    return placement


def _program(row: object, where: str) -> tuple[Instruction, ...]:
    if not isinstance(row, list) or not all(isinstance(line, str) for line in row):
        raise ProgramFileError(f"{where}: is not a list of lines; write such as ['run F0 #0']")
    program = []
    for i, line in enumerate(row):
        try:
            program.append(parse_instruction(line))
        except ProgramTextError as error:
            raise ProgramFileError(f"{where}[{i}]: {error}") from None
    return tuple(program)


def positive_number(value: object, where: str) -> int:
    """Return a value if it is a whole number from 1 on.

    Raises:
        ProgramFileError: It is none.
    """
    if type(value) is not int or value < 1:
        raise ProgramFileError(f"{where}: {value!r} is not a whole number from 1 on; give one")
    return value
