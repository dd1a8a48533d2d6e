"""Shapes with the times of their blocks, as options of a command line. Knows no search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from placements import Placement
from placements.shapes import SHAPES

Option = int | bool
"""The value of an option of a shape."""


@dataclass(frozen=True)
class PresetTimes:
    """What the blocks of a stage take.

    Attributes:
        name: Short, in links.
        title: On the page.
        options: Options of a shape with whole backward blocks or with split ones, in ticks.
        tick_ms: Length of a tick in milliseconds.
        source: Where the times come from.
    """

    name: str
    title: str
    options: Mapping[str, Option]
    tick_ms: float
    source: str


RECOMPUTED = PresetTimes(
    "recomputed",
    "forward 1, backward 3",
    {"forward_time": 1, "backward_time": 3},
    10.0,
    "Tessel's evaluation: activations are computed again in the backward",
)
KEPT = PresetTimes(
    "kept",
    "forward 1, backward 2",
    {"forward_time": 1, "backward_time": 2},
    10.0,
    "the usual ratio where activations are kept",
)
SPLIT = PresetTimes(
    "split",
    "backward in two, 1 each",
    {"split_backward": True, "forward_time": 1, "input_time": 1, "weight_time": 1},
    10.0,
    "zero bubble's ideal: forward, input gradient and weight gradient take equally long",
)
MEASURED = PresetTimes(
    "measured",
    "GPT 6B, measured, backward in two",
    {"split_backward": True, "forward_time": 297, "input_time": 294, "weight_time": 199},
    0.1,
    "a stage of a GPT of 6B parameters on 8 devices, measured by the authors of zero bubble and published in "
    "zero-bubble-pipeline-parallelism, efficiency.py; rounded to 0.1 ms, without its transfers of 0.5 ms",
)
MEASURED_WHOLE = PresetTimes(
    "measured_whole",
    "GPT 6B, measured",
    {"forward_time": 297, "backward_time": 493},
    0.1,
    f"{MEASURED.source}; the backward is the sum of both halves",
)


@dataclass(frozen=True)
class Preset:
    """A shape with the times of its blocks.

    Attributes:
        shape: A key of `placements.shapes.SHAPES`.
        times: Of its blocks.
        memories: Capacities that are searched, each as a share of the number of devices and units more.
    """

    shape: str
    times: PresetTimes
    memories: tuple[tuple[float, int], ...]

    @property
    def name(self) -> str:
        """Shape and times, as in links."""
        return f"{self.shape.removesuffix('_shape')}-{self.times.name}"

    def placement(self, num_devices: int) -> Placement:
        """Return the placement without a limit on memory."""
        return replace(SHAPES[self.shape](num_devices, **self.times.options), tick_ms=self.times.tick_ms)

    def capacities(self, num_devices: int) -> tuple[int, ...]:
        """Return the capacities in units of memory, ascending."""
        return tuple(sorted({int(share * num_devices) + more for share, more in self.memories}))


_SHAPES: Mapping[str, tuple[tuple[PresetTimes, ...], tuple[tuple[float, int], ...]]] = {
    "v_shape": ((KEPT, RECOMPUTED, SPLIT, MEASURED), ((0.5, 1), (1, 0), (2, 0))),
    "wave_shape": ((KEPT, SPLIT, MEASURED), ((1, 1), (1.5, 0), (2, 0))),
    "x_shape": ((KEPT, SPLIT, MEASURED), ((0.5, 1), (1, 0), (1, 2))),
    "m_shape": ((KEPT, RECOMPUTED), ((0.5, 1), (1, 0), (1, 1))),
    "nn_shape": ((KEPT, RECOMPUTED), ((0.5, 1), (1, 0), (1, 2))),
    "k_shape": ((KEPT, RECOMPUTED), ((0.5, 0), (0.5, 1), (0.5, 3))),
    "loop_shape": ((KEPT, MEASURED_WHOLE), ((1.5, 0), (2, 0), (3, 0))),
}
"""Times and memories by shape. The memories are about what schedules made by hand need, and below."""


def presets() -> Iterator[Preset]:
    """Yield every preset, in the order of the page."""
    for shape, (times, memories) in _SHAPES.items():
        for each in times:
            yield Preset(shape, each, memories)
