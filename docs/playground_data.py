"""Schedules for the playground, searched once and kept: ``python docs/playground_data.py``, in some minutes.

The page loads them from ``playground/schedules.js``, a script of one constant, so that it loads from a disk
too.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placements import Placement
from placements.forms.texts import write_text
from placements.shapes import SHAPES
from schedsearch.baselines import applicable
from schedsearch.core.problem import Problem
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import CapacityError
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.searches.search import find
from schedsearch.validate import validate

FILE = Path(__file__).parent / "playground" / "schedules.js"

NUM_MICRO_BATCHES = {2: (8,), 4: (8, 16), 8: (16,)}
"""Numbers of micro-batches by the number of devices."""

TIME_LIMIT_S = 4.0
"""Time limit of each search, in s."""


@dataclass(frozen=True)
class PresetTimes:
    """Times and memory of a stage's blocks.

    Attributes:
        title: On the page.
        options: Options of a shape with whole backward blocks or with split ones, in ticks.
        tick_ms: Length of a tick in milliseconds.
        source: Where the times come from.
    """

    title: str
    options: Mapping[str, int | bool]
    tick_ms: float
    source: str


_MEASURED = (
    "a stage of a GPT of 6B parameters on 8 devices, measured by the authors of zero bubble and published in "
    "zero-bubble-pipeline-parallelism, efficiency.py; rounded to 0.1 ms, without its transfers of 0.5 ms"
)

TIMES = {
    "recomputed": PresetTimes(
        "forward 1, backward 3",
        {"forward_time": 1, "backward_time": 3},
        10.0,
        "Tessel's evaluation: activations are computed again in the backward",
    ),
    "kept": PresetTimes(
        "forward 1, backward 2",
        {"forward_time": 1, "backward_time": 2},
        10.0,
        "the usual ratio where activations are kept",
    ),
    "split": PresetTimes(
        "backward in two, 1 each",
        {"split_backward": True, "forward_time": 1, "input_time": 1, "weight_time": 1},
        10.0,
        "zero bubble's ideal: forward, input gradient and weight gradient take equally long",
    ),
    "measured": PresetTimes(
        "GPT 6B, measured, backward in two",
        {"split_backward": True, "forward_time": 297, "input_time": 294, "weight_time": 199},
        0.1,
        _MEASURED,
    ),
    "measured_whole": PresetTimes(
        "GPT 6B, measured",
        {"forward_time": 297, "backward_time": 493},
        0.1,
        f"{_MEASURED}; the backward is the sum of both halves",
    ),
}
"""Times of the presets, by their names in links."""


@dataclass(frozen=True)
class Preset:
    """A shape with the times of its blocks.

    Attributes:
        shape: A key of `placements.shapes.SHAPES`.
        times: A key of `TIMES`.
        memories: Capacities that are searched, each as a share of the number of devices and units more.
    """

    shape: str
    times: str
    memories: tuple[tuple[float, int], ...]

    @property
    def name(self) -> str:
        """Shape and times, as in links."""
        return f"{self.shape.removesuffix('_shape')}-{self.times}"

    def placement(self, num_devices: int) -> Placement:
        """Return the placement without a limit on memory."""
        times = TIMES[self.times]
        return replace(SHAPES[self.shape](num_devices, **times.options), tick_ms=times.tick_ms)

    def capacities(self, num_devices: int) -> tuple[int, ...]:
        """Return the capacities in units of memory, ascending."""
        return tuple(sorted({int(share * num_devices) + more for share, more in self.memories}))


_SHAPES: Mapping[str, tuple[tuple[str, ...], tuple[tuple[float, int], ...]]] = {
    "v_shape": (("kept", "recomputed", "split", "measured"), ((0.5, 1), (1, 0), (2, 0))),
    "wave_shape": (("kept", "split", "measured"), ((1, 1), (1.5, 0), (2, 0))),
    "x_shape": (("kept", "split", "measured"), ((0.5, 1), (1, 0), (1, 2))),
    "m_shape": (("kept", "recomputed"), ((0.5, 1), (1, 0), (1, 1))),
    "nn_shape": (("kept", "recomputed"), ((0.5, 1), (1, 0), (1, 2))),
    "k_shape": (("kept", "recomputed"), ((0.5, 0), (0.5, 1), (0.5, 3))),
    "loop_shape": (("kept", "measured_whole"), ((1.5, 0), (2, 0), (3, 0))),
}
"""Times and memories by shape. The memories are about what schedules made by hand need, and below."""

PRESETS = [Preset(shape, times, memories) for shape, (names, memories) in _SHAPES.items() for times in names]
"""In the order of the page."""

Solve = Callable[[Preset, int, int], dict[str, Any]]
"""Kept schedule of a preset, by devices and micro-batches."""


def solve(preset: Preset, num_devices: int, number: int) -> dict[str, Any]:
    """Search at each memory, and return what is kept of the schedules that are found or made by hand."""
    placement = preset.placement(num_devices)
    found = [search(placement, memory, number) for memory in preset.capacities(num_devices)]
    return {
        "bound": makespan_bound(placement, number),
        "searched": [schedule for schedule in found if schedule is not None],
        "hand_made": hand_made(placement, number),
    }


def hand_made(placement: Placement, number: int) -> dict[str, Any]:
    """Return what is kept of each schedule made by hand that there is, whatever memory it needs."""
    return {name: _kept(schedule) for name, schedule in applicable(placement, number).items()}


def search(
    placement: Placement, memory: int, number: int, time_limit_s: float = TIME_LIMIT_S
) -> dict[str, Any] | None:
    """Return what is kept of a search; None where there is too little memory, or none is found."""
    try:
        found = find(Problem(placement.with_memory(memory), number, time_limit_s=time_limit_s))
    except CapacityError:
        return None
    if found.schedule is None or found.repetend is None:
        return None
    return {
        "memory": memory,
        "period": found.repetend.period_per_micro_batch,
        "period_bound": found.period_bound,
        "proved": found.proved,
        "bound": found.makespan_bound,
        **_kept(found.schedule),
    }


def _kept(schedule: Schedule) -> dict[str, Any]:
    """Return the orders of a schedule and its figures where every block starts as soon as these let it."""
    texts = orders_to_text(schedule)
    soon = schedule_from_text(schedule.placement, schedule.num_micro_batches, texts)
    return {
        "makespan": soon.makespan,
        "bubble_rate": round(bubble_rate(soon), 6),
        "peak_memory": int(peak_memory(soon).max()),
        "orders": texts,
    }


def orders_to_text(schedule: Schedule) -> list[str]:
    """Return each device's order: a letter for each run, that of the block among those of the device.

    All micro-batches are alike, so the n-th run of a block can be said to be that of micro-batch n: every
    start stays, what a block waits for is still before it, and memory does not know micro-batches.
    """
    placement = schedule.placement
    letters = [_letters(placement, device) for device in range(placement.num_devices)]
    return ["".join(own[name] for name, _ in schedule.order(device)) for device, own in enumerate(letters)]


def schedule_from_text(placement: Placement, num_micro_batches: int, texts: list[str]) -> Schedule:
    """Return the schedule of such orders, every block as soon as it can; validated.

    Raises:
        CyclicOrderError: The orders and the dependencies make a cycle.
        InvalidScheduleError: A rule is broken.
    """
    orders: list[list[Instance]] = []
    for device, text in enumerate(texts):
        names = {letter: name for name, letter in _letters(placement, device).items()}
        runs = Counter[str]()
        orders.append([])
        for letter in text:
            orders[-1].append((names[letter], runs[letter]))
            runs[letter] += 1
    return validate(as_soon_as_possible(placement, num_micro_batches, orders))


def _letters(placement: Placement, device: int) -> dict[str, str]:
    names = [block.name for block in placement.blocks if device in block.devices]
    return dict(zip(names, string.ascii_letters, strict=False))


def page_data(solve: Solve) -> dict[str, Any]:
    """Return all that the page loads as plain data."""
    presets = []
    for preset in PRESETS:
        times = TIMES[preset.times]
        sizes = {
            str(num_devices): {
                "blocks": blocks_to_rows(preset.placement(num_devices)),
                "micro_batches": {str(number): solve(preset, num_devices, number) for number in numbers},
            }
            for num_devices, numbers in NUM_MICRO_BATCHES.items()
        }
        said = {"times": times.title, "source": times.source, "tick_ms": times.tick_ms}
        name = {"name": preset.name, "shape": preset.shape}
        presets.append({**name, **said, "options": dict(times.options), "devices": sizes})
    return {"schema_version": 1, "time_limit_s": TIME_LIMIT_S, "presets": presets}


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


_BEFORE, _AFTER = "const SCHEDULES = ", ";\n"


def to_script(data: dict[str, Any]) -> str:
    """Return the page's script, a preset a line."""
    rows = [json.dumps(preset, separators=(",", ":")) for preset in data["presets"]]
    rest = json.dumps({key: value for key, value in data.items() if key != "presets"})
    return f'{_BEFORE}{rest[:-1]}, "presets": [\n' + ",\n".join(rows) + f"\n]}}{_AFTER}"


def from_script(text: str) -> dict[str, Any]:
    """Return the plain data of a script that `to_script` made."""
    data: dict[str, Any] = json.loads(text.removeprefix(_BEFORE).removesuffix(_AFTER))
    return data


if __name__ == "__main__":
    write_text(FILE, to_script(page_data(solve)))
