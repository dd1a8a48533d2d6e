"""Examples of the playground, searched once and kept: ``python docs/playground_data.py``, in about a minute.

The page loads them from ``playground/examples.js``, a script of one constant, so that it loads from a disk
too. Each example has the form of a ``compare.json``: schedules by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placements import Placement
from placements.forms.texts import write_text
from placements.shapes import SHAPES
from schedsearch.baselines import applicable
from schedsearch.core.problem import Problem
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.searches.search import find

FILE = Path(__file__).parent / "playground" / "examples.js"

TIME_LIMIT_S = 6.0
"""Time limit of each search, in s."""


@dataclass(frozen=True)
class Example:
    """A placement, its memory, and the schedules that are shown for it.

    Attributes:
        title: On the page.
        shape: A key of `placements.shapes.SHAPES`.
        num_devices: Devices.
        num_micro_batches: Micro-batches.
        memory: Capacity of each device, in activations of one stage and micro-batch.
        options: Options of the shape, with times in ticks.
        tick_ms: Length of a tick in milliseconds.
    """

    title: str
    shape: str
    num_devices: int
    num_micro_batches: int
    memory: int
    options: Mapping[str, int | bool]
    tick_ms: float = 10.0

    def placement(self) -> Placement:
        """Return the placement with its memory."""
        placed = replace(SHAPES[self.shape](self.num_devices, **self.options), tick_ms=self.tick_ms)
        return placed.with_memory(self.memory)


_WHOLE = {"forward_time": 1, "backward_time": 2}
_RECOMPUTED = {"forward_time": 1, "backward_time": 3}  # Tessel's evaluation
_SPLIT = {"split_backward": True, "forward_time": 1, "input_time": 1, "weight_time": 1}  # zero bubble's ideal
_MEASURED = {"split_backward": True, "forward_time": 297, "input_time": 294, "weight_time": 199}
# A stage of GPT 6B on 8 devices, from zero-bubble-pipeline-parallelism, efficiency.py, rounded to 0.1 ms.

EXAMPLES = [
    Example("NN-shape", "nn_shape", 4, 8, 6, _RECOMPUTED),
    Example("V-shape", "v_shape", 4, 8, 4, _WHOLE),
    Example("V-shape, less memory", "v_shape", 4, 8, 3, _WHOLE),
    Example("V-shape, split backward", "v_shape", 4, 8, 4, _SPLIT),
    Example("Wave, split backward", "wave_shape", 4, 8, 8, _SPLIT),
    Example("Loop, interleaved", "loop_shape", 4, 8, 12, _WHOLE),
    Example("X-shape, two directions", "x_shape", 4, 8, 6, _WHOLE),
    Example("M-shape", "m_shape", 4, 8, 5, _RECOMPUTED),
    Example("GPT 6B, measured", "v_shape", 8, 16, 8, _MEASURED, 0.1),
]
"""In the order of the page, which opens on the first."""

MAX_BY_HAND = 3
"""Schedules made by hand that an example keeps: the shortest that fit its memory, then those that do not."""

Solve = Callable[[Example], dict[str, Any]]
"""Searched schedule of an example, as it is kept."""


def solve(example: Example) -> dict[str, Any]:
    """Search the example's schedule."""
    answer = find(Problem(example.placement(), example.num_micro_batches, time_limit_s=TIME_LIMIT_S))
    assert answer.schedule is not None, example.title
    return kept(answer.schedule, answer.makespan_bound)


def by_hand(example: Example) -> dict[str, Schedule]:
    """Return the schedules made by hand that an example keeps, by name."""
    every = applicable(example.placement().with_memory(None), example.num_micro_batches)

    def rank(name: str) -> tuple[bool, int]:
        return bool(peak_memory(every[name]).max() > example.memory), every[name].makespan

    return {name: every[name].under(example.placement()) for name in sorted(every, key=rank)[:MAX_BY_HAND]}


def kept(schedule: Schedule, bound: int | None = None) -> dict[str, Any]:
    """Return the fields of a schedule's file form that the page reads."""
    data = schedule_to_dict(schedule) | {"makespan_bound": bound}
    names = "schema_version", "placement", "num_micro_batches", "makespan", "makespan_bound", "blocks"
    return {name: data[name] for name in names}


def page_data(solve: Solve) -> list[dict[str, Any]]:
    """Return the examples as the page loads them."""
    return [
        {
            "title": example.title,
            "schedules": {
                "searched": solve(example),
                **{name: kept(schedule) for name, schedule in by_hand(example).items()},
            },
        }
        for example in EXAMPLES
    ]


_BEFORE, _AFTER = "const EXAMPLES = [\n", "\n];\n"


def to_script(data: list[dict[str, Any]]) -> str:
    """Return the page's script, an example a line."""
    return _BEFORE + ",\n".join(json.dumps(row, separators=(",", ":")) for row in data) + _AFTER


def from_script(text: str) -> list[dict[str, Any]]:
    """Return the examples of a script that `to_script` made."""
    data: list[dict[str, Any]] = json.loads(f"[{text.removeprefix(_BEFORE).removesuffix(_AFTER)}]")
    return data


if __name__ == "__main__":
    write_text(FILE, to_script(page_data(solve)))
