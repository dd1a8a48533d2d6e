"""The schedules of one chain of stages on as many devices, whole or in slices: GPipe, 1F1B and its kin."""

from __future__ import annotations

from dataclasses import replace

from placements import Block, Kind, Placement
from placements.pieces import recomputations
from schedsearch.baselines.structure import (
    ANY,
    EMBEDDED,
    LOOP_SLICES,
    OTHER,
    V_SLICES,
    Given,
    Orders,
    UnsuitablePlacementError,
    V,
    by_hand,
    in_slots,
    in_turns,
    stages_in,
)


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
    `delay` micro-batches behind the input halves for each stage before.
    """
    orders = {}
    for place, stage in enumerate(given.stages):
        visits = [(stage, n) for n in range(num_micro_batches)]
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
    """Return ZB-H2 (ZB2P): twice as many forward blocks ahead, so that no device is idle once it has begun.

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


_EARLY = "early-recomputation 1F1B"


def with_early_recomputation(placement: Placement, kept: int = 1) -> Placement:
    """Return a V-shape whose stages compute their forward again in blocks R0, R1, ...

    The last stage has none: its gradient is there at once. A backward keeps its time, so it must be one that
    computes nothing again.

    Args:
        placement: A V-shape with whole backward.
        kept: Units that a forward holds until its R, which takes the rest; at most the forward's.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape, or a forward holds less.

    >>> from placements.shapes import v_shape
    >>> [block.name for block in with_early_recomputation(v_shape(3, stage_memory=4)).blocks]
    ['F0', 'F1', 'F2', 'B2', 'B1', 'B0', 'R0', 'R1']
    """
    by_name, again = placement.by_name, list[Block]()
    changed = {}
    for stage in stages_in(placement, _EARLY, V)[:-1]:
        forward, backward = by_name[stage.forward], by_name[stage.backward]
        held = forward.memory_on(stage.device)
        if not 0 <= kept <= held:
            raise UnsuitablePlacementError(
                f"kept: {kept} is not between 0 and the {held} units that {forward.name} holds",
                "give such a number",
            )
        own = replace(
            forward, name=f"R{forward.name[1:]}", kind=Kind.R, after=(forward.name,), memory=held - kept
        )
        again.append(own)
        changed[forward.name] = replace(forward, memory=kept)
        changed[backward.name] = replace(backward, after=(*backward.after, own.name))
    blocks = (*(changed.get(block.name, block) for block in placement.blocks), *again)
    return replace(placement, name=f"{placement.name}_early_recompute", blocks=blocks)


@by_hand(_EARLY, OTHER)
def early_recompute_one_f_one_b(given: Given, num_micro_batches: int) -> Orders:
    """Return 1F1B with early recomputation (Merak): a forward is computed again before its gradient arrives.

    The recomputation is a block of its own right before its backward, which waits for no other device. So it
    fills the time in which 1F1B waits for a gradient. It needs a placement of `with_early_recomputation`.
    """
    placement = given.placement
    again = recomputations(placement.blocks)
    if not again:
        raise UnsuitablePlacementError(
            f"{_EARLY} needs a V-shape whose forwards are computed again in blocks of their own, which "
            f"{placement.name} is not",
            "make one with with_early_recomputation",
        )
    left = set(again.values())  # what is left has the orders of 1F1B, whatever it holds
    blocks = tuple(
        replace(block, after=tuple(name for name in block.after if name not in left), memory=0)
        for block in placement.blocks
        if block.name not in left
    )
    chain = one_f_one_b(replace(placement, blocks=blocks, memory=None), num_micro_batches)
    return {
        device: [
            (name, n)
            for block, n in chain.order(device)
            for name in ((again[block], block) if block in again else (block,))
        ]
        for device in range(placement.num_devices)
    }


def _in_slices(given: Given, num_micro_batches: int, ahead: int | None = 1, delay: int = 0) -> Orders:
    """Return orders of slices: forward in order, backward in reverse, micro-batch by micro-batch.

    One slice of a chunk is a unit; the first backward cannot come before all slices are forward. A device
    runs `ahead` units more before its first turn for each that follows, or all of them; its weight halves are
    `delay` units late for each device before.
    """
    devices = list(dict.fromkeys(stage.device for stage in given.stages))
    orders = {}
    for d, device in enumerate(devices):
        slices = [[stage for stage in chain if stage.device == device] for chain in given.chains]
        units = [stage for chunk in zip(*slices, strict=True) for stage in chunk]
        visits = [(stage, n) for n in range(num_micro_batches) for stage in units]
        back = [(stage, n) for n in range(num_micro_batches) for stage in reversed(units)]
        more = len(visits) if ahead is None else ahead * (len(devices) - d - 1)
        orders[device] = in_turns(visits, back, more + len(units) - 1, delay * d)
    return orders


@by_hand("TeraPipe", V_SLICES)
def terapipe(given: Given, num_micro_batches: int) -> Orders:
    """Return TeraPipe: the slices of all micro-batches forward, then backward, as in GPipe.

    With p devices and m micro-batches of n slices that take equally long, ``(p - 1) / (m n)`` of the work is
    idle; all activations are held.
    """
    return _in_slices(given, num_micro_batches, ahead=None)


@by_hand("Seq1F1B", V_SLICES)
def seq_one_f_one_b(given: Given, num_micro_batches: int) -> Orders:
    """Return Seq1F1B: 1F1B over slices, as long as TeraPipe.

    Of p devices and n slices, device d runs p - d - 1 + n - 1 forwards before its first turn, so that it
    holds p - d - 1 + n units: less than one micro-batch's and a pipeline of slices, where 1F1B holds p - d
    micro-batches.
    """
    return _in_slices(given, num_micro_batches)


@by_hand("Seq1F1B with split backward", V_SLICES, split=True)
def seq_one_f_one_b_zb(given: Given, num_micro_batches: int) -> Orders:
    """Return Seq1F1B with the backward in halves: device d runs weight halves d units late, as in ZB-H1.

    Every device then holds p - 1 + n units.
    """
    return _in_slices(given, num_micro_batches, delay=1)


@by_hand("SlimPipe", LOOP_SLICES)
def slimpipe(given: Given, num_micro_batches: int) -> Orders:
    """Return SlimPipe: interleaved 1F1B over slices, all slices of a micro-batch through each chunk.

    With v chunks, device d runs 2(p - d - 1) + v n - 1 forwards before its first turn, and holds one
    micro-batch's activations and 2(p - d - 1) units more: with more slices hardly more than one micro-batch.
    SlimPipe also moves keys and values between devices, so that even slices take equally long; here each
    takes its own time, and slices of equal time have unequal lengths.
    """
    return _in_slices(given, num_micro_batches, ahead=2)
