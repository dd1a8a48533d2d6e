"""The zero-bubble schedules: the backward in two halves, the weight half where a device would be idle.

All are of the case that forward, input half and weight half take equally long; with other times they keep
their order. F, B and W in the literature are the forward block, the input half and the weight half.
"""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.pipelines import one_forward_one_backward
from schedsearch.baselines.structure import WAVE, V, in_orders, stages_in
from schedsearch.schedule import Instance, Schedule


def zb_h1(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return ZB-H1 (ZB1P): 1F1B in which device d runs weight halves d micro-batches late.

    Every device then holds as many activations as the first one of 1F1B.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape with split backward.
    """
    stages = stages_in(placement, "ZB-H1", V, split=True)
    return one_forward_one_backward(placement, num_micro_batches, stages, weight_delay=1)


def zb_h2(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return ZB-H2 (ZB2P): twice as many forward blocks ahead, so that no device is idle once it has begun.

    A device with k stages from its own to the last runs 2(k - 1) forward blocks first, and weight halves
    2d micro-batches late; it holds up to 2p - 1 activations.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape with split backward.
    """
    stages = stages_in(placement, "ZB-H2", V, split=True)
    return one_forward_one_backward(placement, num_micro_batches, stages, ahead=2, weight_delay=2)


def zb_v(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return ZB-V: two chunks per device, no idle time between a device's first block and its last.

    Of a device, 0 is the chunk on the way down and 1 that on the way up. Device d of p runs: 2(p - d) - 1
    times F0; d times F1 F0; p - d times F1 B1 W1; then F0 B0 W0 F1 B1 W1 until all forward blocks are done;
    d times B0 B1; p - d times B0 W0; and the weight halves that remain. The rule needs 2p - 1 micro-batches;
    of fewer it is the order without those that are missing.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with split backward.
    """
    stages = stages_in(placement, "ZB-V", WAVE, split=True)
    num_devices = len(stages) // 2
    most = max(num_micro_batches, 2 * num_devices - 1)
    orders: dict[int, list[Instance]] = {}
    for d in range(num_devices):
        steps = ["F0"] * (2 * (num_devices - d) - 1)
        steps += ["F1", "F0"] * d
        steps += ["F1", "B1", "W1"] * (num_devices - d)
        while steps.count("F1") < most:
            steps += ["F0"] * (steps.count("F0") < most) + ["B0", "W0", "F1", "B1", "W1"]
        steps += ["B0", "B1"] * d + ["B0", "W0"] * (num_devices - d)
        for weight in ("W1", "W0"):
            steps += [weight] * (most - steps.count(weight))
        chunks = stages[d], stages[-1 - d]
        names = {f"F{c}": chunk.forward for c, chunk in enumerate(chunks)}
        names |= {f"B{c}": chunk.backward for c, chunk in enumerate(chunks)}
        names |= {f"W{c}": str(chunk.weight) for c, chunk in enumerate(chunks)}
        order = numbered([names[step] for step in steps])
        orders[chunks[0].device] = [(name, n) for name, n in order if n < num_micro_batches]
    return in_orders(placement, num_micro_batches, orders)


def numbered(names: list[str]) -> list[Instance]:
    """Return each block with its micro-batch: the first of a name is of micro-batch 0, and so on."""
    count = dict.fromkeys(names, 0)
    order = []
    for name in names:
        order.append((name, count[name]))
        count[name] += 1
    return order
