"""The schedules of one chain of stages on as many devices, whole or in slices: GPipe, 1F1B and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placements import Kind
from placements.copies.replicas import StageCopy, copies_in
from schedsearch.baselines.structure import (
    ANY,
    EMBEDDED,
    REPLICATED,
    V_SLICES,
    Given,
    Orders,
    V,
    by_hand,
    in_slots,
    in_turns,
)
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


@by_hand("GPipe", ANY)
def gpipe(given: Given, num_micro_batches: int) -> Orders:
    """Return GPipe: all forward blocks of every micro-batch, then all the others.

    Defined for any placement: within each half a device takes its blocks in topological order, each for
    every micro-batch before the next block. Forward blocks that wait for a backward come in a half of their
    own after it, and so on.
    """
    placement = given.placement
    halves: dict[str, int] = {}
    for block in placement.topological_order:
        half = max((halves[name] for name in block.after), default=0)
        halves[block.name] = half + (half % 2 == (block.kind is Kind.F))
    return {
        device: [
            (block.name, n)
            for block in sorted(placement.on(device), key=lambda block: halves[block.name])
            for n in range(num_micro_batches)
        ]
        for device in range(placement.num_devices)
    }


def _one_f_one_b(given: Given, num_micro_batches: int, ahead: int = 1, delay: int = 0) -> Orders:
    """Return 1F1B's orders.

    A stage runs `ahead` forward blocks before its first turn for each stage after it; its weight halves are
    `delay` micro-batches behind the input halves for each stage before. Alike chains take turns.
    """
    orders = {}
    for place, stage in enumerate(given.stages):
        visits = [(chain[place], n) for n in range(num_micro_batches) for chain in given.chains]
        orders[stage.device] = in_turns(
            visits, visits, ahead * (len(given.stages) - place - 1), delay * place
        )
    return orders


@by_hand("1F1B", V)
def one_f_one_b(given: Given, num_micro_batches: int) -> Orders:
    """Return 1F1B with flush, for one forward and one backward block per device.

    PipeDream-Flush (dissertation, Sec. 3.2.2 and, as the default schedule, Sec. 4.2.2; Tessel, Sec. VI-A).
    A device with k stages from its own to the last runs k - 1 forward blocks first, then one forward and
    one backward in turn, then the remaining backward blocks.
    """
    return _one_f_one_b(given, num_micro_batches)


@by_hand("eager 1F1B", V)
def eager_one_f_one_b(given: Given, num_micro_batches: int) -> Orders:
    """Return 1F1B with twice as many forward blocks ahead, which hides transfers (Alpa's overlap-friendly).

    A device with k stages from its own to the last runs 2(k - 1) forward blocks first, and holds up to
    2k - 1 activations instead of k. Without transfers it takes as long as 1F1B.
    """
    return _one_f_one_b(given, num_micro_batches, ahead=2)


@by_hand("ZB-H1", V, split=True)
def zb_h1(given: Given, num_micro_batches: int) -> Orders:
    """Return ZB-H1 (ZB1P): 1F1B in which device d runs weight halves d micro-batches late.

    Every device then holds as many activations as the first one of 1F1B.
    """
    return _one_f_one_b(given, num_micro_batches, delay=1)


@by_hand("ZB-H2", V, split=True)
def zb_h2(given: Given, num_micro_batches: int) -> Orders:
    """Return ZB-H2 (ZB2P): twice as many forward blocks ahead as 1F1B, so that no device waits once it runs.

    A device with k stages from its own to the last runs 2(k - 1) forward blocks first, and weight halves
    2d micro-batches late; it holds up to 2p - 1 activations.
    """
    return _one_f_one_b(given, num_micro_batches, ahead=2, delay=2)


@by_hand("1F1B+", EMBEDDED)
def one_f_one_b_plus(given: Given, num_micro_batches: int) -> Orders:
    """Return 1F1B with the blocks of all devices next to their neighbours (Tessel, Sec. VI-A, "1F1B+").

    The stages on one device take the steps of 1F1B: of p, stage s is forward in step s + 2n and backward
    in step 2p - 1 - s + 2n for micro-batch n. A forward block on all devices comes right before the step of
    the stage after it, its backward right after the step of that stage's backward. After the last stage
    both come in between that one's forward and backward.
    """
    last_step = 2 * sum(len(stage.devices) == 1 for stage in given.stages) - 1
    slots = {}
    position = 0
    for i, stage in enumerate(given.stages):
        is_single, is_behind_all = len(stage.devices) == 1, 2 * position > last_step
        step, place = position - is_behind_all, 0 if is_single else 1 if is_behind_all else -1
        for n in range(num_micro_batches):
            slots[stage.forward, n] = step + 2 * n, place, n, i
            slots[stage.backward, n] = last_step - step + 2 * n, -place, n, -i
        position += is_single
    return in_slots(given.placement, slots)


@by_hand("Seq1F1B", V_SLICES)
def seq_one_f_one_b(given: Given, num_micro_batches: int) -> Orders:
    """Return Seq1F1B: 1F1B over slices, forward in order, backward in reverse, micro-batch by micro-batch.

    Of p devices and n slices, device d runs p - d - 1 + n - 1 forwards before its first turn, so that it
    holds p - d - 1 + n units: less than one micro-batch's and a pipeline of slices, where 1F1B holds p - d
    micro-batches.
    """
    orders = {}
    for place, slices in enumerate(zip(*given.chains, strict=True)):
        visits = [(stage, n) for n in range(num_micro_batches) for stage in slices]
        back = [(stage, n) for n in range(num_micro_batches) for stage in reversed(slices)]
        warmup = len(given.stages) - place - 1 + len(slices) - 1
        orders[slices[0].device] = in_turns(visits, back, warmup)
    return orders


@by_hand("PipeDream", REPLICATED)
def pipedream(given: Given, num_micro_batches: int) -> Orders | Schedule:
    """Return PipeDream's 1F1B and 1F1B-RR: no flush, and stages of which copies take micro-batches in turn.

    Micro-batch n takes copy n mod r of a stage of r copies (`placements.copies.replicas`). A copy runs as
    many forward blocks before its first backward as micro-batches are in flight from there on: all devices
    from its stage to the last, over the stage's copies, rounded up (dissertation, Sec. 2.4.2). Then it runs
    one backward and one forward block in turn. Without copies this is 1F1B. PipeDream-2BW runs in the same
    order (Sec. 3.2.1). To a schedule, no flush means that it is one of many micro-batches, or the repetend;
    which weights are read is in `schedsearch.semantics`.
    """
    placement = given.placement
    if not copies_in(placement):
        return _one_f_one_b(given, num_micro_batches)
    named = {copy: name for name, copy in copies_in(placement).items()}
    orders: list[Sequence[Instance]] = [()] * placement.num_devices
    takes = [1] * len(placement.decisions)
    for place, stage in enumerate(given.stages):
        number = len(stage.devices)
        ahead = -(-sum(len(later.devices) for later in given.stages[place:]) // number)
        for i, device in enumerate(stage.devices):
            forward, backward = (named[StageCopy(name, i)] for name in (stage.forward, stage.backward))
            stage_copy = replace(stage, forward=forward, backward=backward)
            visits = [(stage_copy, n) for n in range(i, num_micro_batches, number)]
            orders[device] = in_turns(visits, visits, ahead - 1)
            if number > 1:
                takes[placement.decision_of[forward]] = number
    chosen = [tuple(n % count for count in takes) for n in range(num_micro_batches)]
    return as_soon_as_possible(placement, num_micro_batches, orders, chosen)
