"""Programs in files: ``programs.json``, and the scripts of a folder read without running their model."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from placements import Placement, PlacementError
from placements.files import read_json
from placements.placement_file import placement_from_dict, placement_to_dict
from runtime.program.calls import Calls
from runtime.program.instructions import Instruction, Programs, ProgramTextError, parse_instruction
from runtime.program.tensor_spec import TensorSpecError, TensorSpecs, specs_from_plain, specs_to_plain

SCHEMA_VERSION = 2
"""Version of the file form of programs; version 1 has no forms of messages."""


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
    placement = _of_single_gpus(placement_from_dict(data["placement"]))
    rows = data["programs"]
    if not isinstance(rows, list) or len(rows) != placement.num_devices:
        raise ProgramFileError(
            f"programs: is not a list with one program for each of {placement.name}'s "
            f"{placement.num_devices} devices; give one"
        )
    instructions = tuple(_program(row, f"programs[{device}]") for device, row in enumerate(rows))
    number = _number(data["num_micro_batches"], "num_micro_batches")
    specs = _specs(data["forms"], placement) if data["schema_version"] > 1 else ()
    return Programs(placement, number, instructions, specs)


def _specs(rows: object, placement: Placement) -> tuple[TensorSpecs, ...]:
    """Return the forms of each device; nothing for null, where no model was known."""
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) != placement.num_devices:
        raise ProgramFileError(
            f"forms: is not a list with the forms of each of {placement.name}'s {placement.num_devices} "
            "devices; give one, or null"
        )
    return tuple(specs_from_plain(row, f"forms[{device}]") for device, row in enumerate(rows))


def _of_single_gpus(placement: Placement) -> Placement:
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


def _number(value: object, where: str) -> int:
    if type(value) is not int or value < 1:
        raise ProgramFileError(f"{where}: {value!r} is not a whole number from 1 on; give one")
    return value


@dataclass(frozen=True)
class Scripts:
    """The scripts of a folder, read.

    Attributes:
        programs: What they call; need not be safe.
        channels: For each script, by device, the (source, target) pairs that it opens, in its order.
    """

    programs: Programs
    channels: tuple[tuple[tuple[int, int], ...], ...]


def read_scripts(directory: str | Path) -> Scripts:
    """Return what the scripts ``device_<d>.py`` of a folder call; they are executed, but their model is not.

    Raises:
        ProgramFileError: There is none, one is missing or fails, or they are not of one placement and model.
    """
    directory = Path(directory)
    found = {
        int(match[1]): path
        for path in directory.glob("device_*.py")
        if (match := re.fullmatch(r"device_(0|[1-9][0-9]*)\.py", path.name))
    }
    if not found:
        raise ProgramFileError(f"{directory}: has no device_0.py; give a folder of generated scripts")
    read = {device: _read_script(path) for device, path in sorted(found.items())}
    same = read[min(read)][:3]
    placement, number = same[:2]
    for device in range(placement.num_devices):
        if device not in read:
            raise ProgramFileError(
                f"{directory}: has no device_{device}.py for the {placement.num_devices} devices of "
                f"{placement.name}; generate the scripts again"
            )
        if read[device][:3] != same:
            raise ProgramFileError(
                f"{found[device]}: has another PLACEMENT, NUM_MICRO_BATCHES or MODEL than device_0.py; "
                "generate the scripts again"
            )
    if extra := sorted(read.keys() - range(placement.num_devices)):
        raise ProgramFileError(
            f"{found[extra[0]]}: {placement.name} has {placement.num_devices} devices only; delete the script"
        )
    scripts = [read[device] for device in sorted(read)]
    calls = tuple(script.calls for script in scripts)
    has_specs = any(script.specs is not None for script in scripts)
    specs = tuple(script.specs or {} for script in scripts) if has_specs else ()
    return Scripts(Programs(placement, number, calls, specs), tuple(script.channels for script in scripts))


class _Script(NamedTuple):
    placement: Placement
    num_micro_batches: int
    model: object
    calls: tuple[Instruction, ...]
    channels: tuple[tuple[int, int], ...]
    specs: TensorSpecs | None


def _read_script(path: Path) -> _Script:
    try:
        script: Mapping[str, Any] = runpy.run_path(str(path), run_name="script")
        placement = _of_single_gpus(placement_from_dict(script["PLACEMENT"]))
        num_micro_batches = _number(script["NUM_MICRO_BATCHES"], "NUM_MICRO_BATCHES")
        calls = Calls()
        script["iteration"](calls, num_micro_batches)
        channels = tuple((int(source), int(target)) for source, target in script["CHANNELS"])
        specs = specs_from_plain(script["FORMS"], "FORMS") if "FORMS" in script else None
        instructions = tuple(calls.instructions)
        return _Script(placement, num_micro_batches, script["MODEL"], instructions, channels, specs)
    except KeyError as error:
        raise ProgramFileError(f"{path}: has no {error.args[0]}; generate the scripts again") from None
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ProgramFileError(f"{path}: fails ({reason}); generate the scripts again") from None
