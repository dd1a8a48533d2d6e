"""The integer program of She et al. for DeepSeek's bidirectional pipeline: half of DualPipe's bubbles.

DualPipe of p GPUs has by its authors a bubble ``(p/2 - 1)(F&B + B - 3W)``, where B is a whole backward, and
p + 1 activations. The paper's text says that its program found a schedule with half the bubbles in the same
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.reproduce.ahead import (
    ITERATION,
    SEARCHED,
    AheadOptions,
    never_above,
    schedule_rows,
    searched_rows,
)
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import in_all, rows_with
from placements import Placement
from placements.shapes import x_shape
from schedsearch.baselines import dual_pipe


class TwoWayCase(NamedTuple):
    """GPUs, micro-batches of each direction, and the times of a stage in ms."""

    num_devices: int
    num_micro_batches: int
    forward: int
    input_half: int
    weight_half: int

    @property
    def load_ms(self) -> int:
        """Time of all blocks of a GPU."""
        return 2 * self.num_micro_batches * (self.forward + self.input_half + self.weight_half)

    @property
    def bubble_ms(self) -> int:
        """DualPipe's bubble, where a forward and a backward together take as long as one after the other."""
        backward = self.input_half + self.weight_half
        return (self.num_devices // 2 - 1) * (self.forward + 2 * backward - 3 * self.weight_half)

    @property
    def placement(self) -> Placement:
        """The X-shape, with DualPipe's memory."""
        times = self.forward, self.input_half + self.weight_half, True, self.input_half, self.weight_half
        return replace(x_shape(self.num_devices, *times), tick_ms=1.0).with_memory(self.num_devices + 1)


CASES = {
    f"p={p}, 20 micro-batches, {times}": TwoWayCase(p, 10, *times)
    for times in ((1, 1, 1), (10, 12, 8))
    for p in (4, 8)
}
"""By name, with the ms of forward, input half and weight half; as many as in DualPipe's published picture."""


def _make(options: AheadOptions, case: TwoWayCase) -> Iterator[Row]:
    number, placement, units = case.num_micro_batches, case.placement, case.num_devices + 1
    made, load_ms, bubble_ms = dual_pipe(placement, number), case.load_ms, case.bubble_ms
    note = "simulated; its pairs are two blocks, one after the other"
    yield from schedule_rows("DualPipe", made, load_ms + bubble_ms, units, note)
    yield from searched_rows(placement, number, load_ms + bubble_ms / 2, units, options.work_limit)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    yield from never_above(rows, "half of DualPipe's bubbles allow")
    least = [row.ours == row.bound for row in rows_with(rows, label=SEARCHED, metric=ITERATION)]
    yield in_all("not in the paper: proved that no order takes less time", least, "cases")


ITEMS = (
    described("operator_level", CASES, _make, _trends, small=AheadOptions(tuple(CASES)[:1], work_limit=2.5)),
)
