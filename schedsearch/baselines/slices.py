"""The schedules of slices of a sequence: TeraPipe, Seq1F1B and SlimPipe.

All take the slices of each micro-batch forward in order and backward in reverse, micro-batch by micro-batch.
With p devices, n slices and v chunks on each device, they differ in how many forwards a device runs before
its first backward, which cannot come before all slices are forward. One slice of a chunk is a unit.
"""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.pipelines import in_turns
from schedsearch.baselines.structure import V_OR_LOOP, PipelineForm, V, in_orders, slices_in
from schedsearch.schedule import Instance, Schedule


def terapipe(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return TeraPipe: the slices of all micro-batches forward, then backward, as in GPipe.

    With slices that take equally long, ``(p - 1) / (m n)`` of the work is idle, with m micro-batches; all
    activations are held.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape in slices with whole backward.
    """
    return _in_slices(placement, num_micro_batches, "TeraPipe", V, ahead=None)


def seq_one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return Seq1F1B: 1F1B over slices, as long as TeraPipe.

    Device d runs p - d - 1 + n - 1 forwards before its first turn, so that it holds p - d - 1 + n units: less
    than one micro-batch's and a pipeline of slices, where 1F1B holds p - d micro-batches.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape in slices with whole backward.
    """
    return _in_slices(placement, num_micro_batches, "Seq1F1B", V)


def seq_one_f_one_b_zb(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return Seq1F1B with the backward in halves: device d runs weight halves d units late, as in ZB-H1.

    Every device then holds p - 1 + n units.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape in slices with split backward.
    """
    return _in_slices(placement, num_micro_batches, "Seq1F1B with split backward", V, split=True, delay=1)


def slimpipe(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return SlimPipe: interleaved 1F1B over slices, all slices of a micro-batch through each chunk.

    Device d runs 2(p - d - 1) + v n - 1 forwards before its first turn, and holds one micro-batch's
    activations and 2(p - d - 1) units more: with more slices hardly more than one micro-batch. SlimPipe also
    moves keys and values between devices, so that even slices take equally long; here each takes its own
    time, and slices of equal time have unequal lengths.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape or loop in slices with whole backward.
    """
    return _in_slices(placement, num_micro_batches, "SlimPipe", V_OR_LOOP, ahead=2)


def _in_slices(
    placement: Placement,
    num_micro_batches: int,
    schedule: str,
    form: PipelineForm,
    *,
    ahead: int | None = 1,
    split: bool = False,
    delay: int = 0,
) -> Schedule:
    """Return a schedule of slices.

    Args:
        placement: What runs where.
        num_micro_batches: How many micro-batches to run.
        schedule: Name of the schedule in messages.
        form: Form that the stages must have.
        ahead: Forwards before the first turn for each device that follows; None for all forwards first.
        split: Whether the backward is split.
        delay: Units by which a weight half is behind its input half, for each device before.
    """
    slices = slices_in(placement, schedule, form, split)
    devices = list(dict.fromkeys(stage.device for stage in slices[0]))
    micro_batches = range(num_micro_batches)
    orders: dict[int, list[Instance]] = {}
    for d, device in enumerate(devices):
        own = [[each for each in stages if each.device == device] for stages in slices]
        chunks = range(len(own[0]))
        back = [
            (own_slice[c], n) for n in micro_batches for c in reversed(chunks) for own_slice in reversed(own)
        ]
        forward = [(own_slice[c].forward, n) for n in micro_batches for c in chunks for own_slice in own]
        more = len(forward) if ahead is None else ahead * (len(devices) - d - 1)
        orders[device] = in_turns(
            forward,
            [(stage.backward, n) for stage, n in back],
            [(str(stage.weight), n) for stage, n in back if split],
            more + len(chunks) * len(slices) - 1,
            delay * d,
        )
    return in_orders(placement, num_micro_batches, orders)
