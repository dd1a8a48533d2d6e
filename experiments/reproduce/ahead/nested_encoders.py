"""BigMac: the encoder of a multimodal model within the pipeline of its language model.

Each GPU of the language model's pipeline also has the whole encoder, and encodes every p-th micro-batch. By
the paper's text, encoders within the pipeline take as long as with unlimited memory, where all of them come
before and after it; and their memory does not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.reproduce.ahead import AheadOptions, never_above, schedule_rows, searched_rows
from experiments.reproduce.item import Row, described
from placements import Block, Kind, Placement
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_FORWARD, _BACKWARD = 2, 4
"""Times of a stage in ms."""

_ENCODED = 3
"""Encoded micro-batches on a GPU of the nested pipeline: of a group, the one before and the one after it."""

Case = tuple[int, int, tuple[int, int]]
"""GPUs, groups of as many micro-batches, and the encoder's forward and backward for a micro-batch in ms."""

CASES: dict[str, Case] = {
    f"p={p} m={p * groups}, encoder {times}": (p, groups, times)
    for p, groups in ((4, 4), (4, 8), (8, 4))
    for times in ((2, 4), (4, 8))
}


def unlimited_ms(case: Case) -> int:
    """Return the iteration with all encoders before and behind 1F1B, in memory for the whole batch."""
    p, groups, times = case
    return groups * sum(times) + (groups * p + p - 1) * (_FORWARD + _BACKWARD)


def _placed(case: Case) -> Placement:
    """Return a group of micro-batches as one of a placement, with memory for 1F1B and some encoded ones."""
    p, _, (encoding, encoding_back) = case
    blocks = []
    for k in range(p):
        passes = [(f"E{k}", k, encoding), *((f"F{k}.{s}", s, _FORWARD) for s in range(p))]
        passes += [*((f"B{k}.{s}", s, _BACKWARD) for s in reversed(range(p))), (f"G{k}", k, encoding_back)]
        after: tuple[str, ...] = ()
        for name, device, ticks in passes:
            kind, held = (Kind.F, 1) if name[0] in "EF" else (Kind.B, -1)
            blocks.append(Block(name, kind, (device,), ticks, held, after))
            after = (name,)
    return Placement("nested_encoders", p, tuple(blocks), tick_ms=1.0).with_memory(p + _ENCODED)


def nested(case: Case) -> Schedule:
    """Return 1F1B in which all GPUs stop for encoders at the same micro-batches, each once for a group.

    Before the first forward of a group stand the encoder's backward of the group before the last, and its
    forward of the next group. So encoders delay all stages alike.
    """
    p, groups, _ = case
    orders = []
    for device in range(p):
        order: list[Instance] = [(f"E{device}", 0)]
        for i in range(groups * p + p - 1 - device):
            group, k = divmod(i, p)
            back, back_k = divmod(i - (p - 1 - device), p)
            order += [] if k or group >= groups else [(f"G{device}", group - 2), (f"E{device}", group + 1)]
            order += [(f"F{k}.{device}", group), (f"B{back_k}.{device}", back)]
        order += [(f"G{device}", group) for group in range(groups)]
        orders.append([(name, n) for name, n in dict.fromkeys(order) if 0 <= n < groups])
    return as_soon_as_possible(_placed(case), groups, orders)


def _make(options: AheadOptions, case: Case) -> Iterator[Row]:
    order, theirs = nested(case), (unlimited_ms(case), case[0] + _ENCODED)
    yield from schedule_rows("nested", order, *theirs)
    yield from searched_rows(order.placement, case[1], *theirs, options.work_limit, order)


_trends = partial(never_above, of="with unlimited memory and encoders apart")

ITEMS = (described("bigmac", CASES, _make, _trends, small=AheadOptions(tuple(CASES)[:1], work_limit=2.5)),)
