"""The file that the playground's page loads: a script of one constant, so that it loads from a disk too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.playground.presets import Preset
from experiments.playground.problems import TIME_LIMIT_S, PlaygroundProblem
from placements import Placement
from placements.files import write_text

SCHEMA_VERSION = 1
"""Version of the file form."""

_BEFORE, _AFTER = "const SCHEDULES = ", ";\n"


def preset_to_dict(preset: Preset) -> dict[str, Any]:
    """Return a preset as plain data: what the page says of it, and its options of a command line."""
    return {
        "name": preset.name,
        "shape": preset.shape,
        "times": preset.times.title,
        "source": preset.times.source,
        "tick_ms": preset.times.tick_ms,
        "options": dict(preset.times.options),
        "devices": {},
    }


def problem_to_dict(problem: PlaygroundProblem) -> dict[str, Any]:
    """Search a problem at each memory, and return what is kept of it as plain data."""
    found = [problem.search(memory) for memory in problem.preset.capacities(problem.num_devices)]
    return {
        "bound": problem.bound(),
        "searched": [each for each in found if each is not None],
        "hand_made": problem.hand_made(),
    }


def blocks_to_rows(placement: Placement) -> list[list[Any]]:
    """Return the rows ``[name, kind, devices, time, memory on each of these, after]``."""
    return [
        [
            block.name,
            block.kind.value,
            list(block.devices),
            block.time,
            [block.memory_on(device) for device in block.devices],
            list(block.after),
        ]
        for block in placement.blocks
    ]


def page_data(solved: Iterable[tuple[PlaygroundProblem, dict[str, Any]]]) -> dict[str, Any]:
    """Return all that the page loads as plain data.

    Args:
        solved: Problems with what is kept of them, in the order of the page.
    """
    presets: dict[str, dict[str, Any]] = {}
    for problem, kept in solved:
        preset = presets.setdefault(problem.preset.name, preset_to_dict(problem.preset))
        size = preset["devices"].setdefault(
            str(problem.num_devices), {"blocks": blocks_to_rows(problem.placement), "micro_batches": {}}
        )
        size["micro_batches"][str(problem.num_micro_batches)] = kept
    return {
        "schema_version": SCHEMA_VERSION,
        "time_limit_s": TIME_LIMIT_S,
        "presets": list(presets.values()),
    }


def write_page_data(path: Path, data: dict[str, Any]) -> None:
    """Write the file, a preset a line."""
    rows = [json.dumps(preset, separators=(",", ":")) for preset in data["presets"]]
    rest = json.dumps({key: value for key, value in data.items() if key != "presets"})
    text = f'{rest[:-1]}, "presets": [\n' + ",\n".join(rows) + "\n]}"
    write_text(path, f"{_BEFORE}{text}{_AFTER}")


def read_page_data(path: Path) -> dict[str, Any]:
    """Return the plain data of a file that `write_page_data` wrote."""
    text = path.read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text.removeprefix(_BEFORE).removesuffix(_AFTER))
    return data
