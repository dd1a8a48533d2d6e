"""DualPipe and DualPipeV, with split backward (DeepSeek-V3): two pipelines, or both halves of one.

DualPipe's pipelines run in opposite directions. DualPipeV is DualPipe cut in half: what the other half of the
devices would do to a second pipeline, the devices do to the second half of the only one.
"""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.structure import (
    WAVE,
    BaselineStage,
    TooFewMicroBatchesError,
    in_orders,
    stages_in,
    x_shape_pipelines,
)
from schedsearch.schedule import Instance, Schedule


def dual_pipe(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return DualPipe, its forward-and-backward pairs run as a forward block and then a backward.

    Every device holds p + 1 activations of p devices. The pairs of the original are one kernel that overlaps
    communication; here they are blocks one after the other, which halves the idle time of its formula. A
    micro-batch of an X-shape is one of each direction, so that the original's N are N / 2 here.

    Raises:
        UnsuitablePlacementError: The placement is not an X-shape of an even number of devices with split
            backward, or there are fewer micro-batches than devices.
    """
    down, up = x_shape_pipelines(placement, "DualPipe", split=True)
    _check_number("DualPipe", len(down), num_micro_batches)
    orders: dict[int, list[Instance]] = {}
    for position, (first, second) in enumerate(zip(down, up[::-1], strict=True)):
        mirrored = len(down) - 1 - position
        near, far = (first, second) if position < mirrored else (second, first)
        device = _Device(near, far)
        device.run(min(position, mirrored), len(down) // 2, num_micro_batches)
        orders[first.device] = device.order
    return in_orders(placement, num_micro_batches, orders)


def dual_pipe_v(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return DualPipeV: the steps of a device of DualPipe with twice the devices, on a wave of two chunks.

    A device holds 2p + 1 chunks of p devices. As in `dual_pipe`, pairs are a forward block and a backward.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with split backward, or there are
            fewer micro-batches than twice the devices.
    """
    stages = stages_in(placement, "DualPipeV", WAVE, split=True)
    _check_number("DualPipeV", len(stages), num_micro_batches)
    num_devices = len(stages) // 2
    orders: dict[int, list[Instance]] = {}
    for d in range(num_devices):
        device = _Device(stages[d], stages[-1 - d])
        device.run(d, num_devices, num_micro_batches)
        orders[stages[d].device] = device.order
    return in_orders(placement, num_micro_batches, orders)


def _check_number(schedule: str, minimum: int, num_micro_batches: int) -> None:
    if num_micro_batches < minimum:
        raise TooFewMicroBatchesError(schedule, minimum, num_micro_batches)


class _Device:
    """The order of one device while it is written: the next micro-batch of each block, and waiting halves.

    Chunk 0 is the stage of the pipeline that begins nearer to the device, chunk 1 that of the other.
    """

    def __init__(self, near: BaselineStage, far: BaselineStage) -> None:
        self.order: list[Instance] = []
        self._chunks = (near, far)
        self._next: dict[str, int] = {}
        self._waiting: list[Instance] = []

    def run(self, rank: int, half: int, num_micro_batches: int) -> None:
        """Write the eight steps for the device that is `rank` from its end of 2 `half` devices."""
        for _ in range(2 * (half - rank - 1)):
            self._forward(0)
        for _ in range(rank + 1):
            self._forward(0)
            self._forward(1)
        for _ in range(half - rank - 1):
            self._input(1)
            self._weight()
            self._forward(1)
        for _ in range(num_micro_batches - 2 * half + rank + 1):
            self._forward(0)
            self._backward(1)
            self._forward(1)
            self._backward(0)
        for _ in range(half - rank - 1):
            self._backward(1)
            self._forward(1)
            self._backward(0)
        for i in range(2 * (rank + 1)):
            backward = self._backward if i <= rank else self._input
            backward(1 - i % 2)
        for _ in range(half - rank - 1):
            self._weight()
            self._input(0)
        for _ in range(rank + 1):
            self._weight()

    def _append(self, name: str) -> Instance:
        micro_batch = self._next.get(name, 0)
        self._next[name] = micro_batch + 1
        return name, micro_batch

    def _forward(self, chunk: int) -> None:
        self.order.append(self._append(self._chunks[chunk].forward))

    def _input(self, chunk: int) -> None:
        """Run an input half; its weight half joins those that wait."""
        name, micro_batch = self._append(self._chunks[chunk].backward)
        self.order.append((name, micro_batch))
        self._waiting.append((str(self._chunks[chunk].weight), micro_batch))

    def _weight(self) -> None:
        """Run the weight half that has waited longest."""
        self.order.append(self._waiting.pop(0))

    def _backward(self, chunk: int) -> None:
        """Run an input half and right after it its weight half."""
        self._input(chunk)
        self.order.append(self._waiting.pop())
