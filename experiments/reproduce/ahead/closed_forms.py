"""Schedules with closed forms: STP, and an integer program's half of DualPipe's bubbles.

STP braids a forward and a backward of a GPU so that tensor-parallel exchanges hide. An exchange is an
all-reduce behind a forward or an input half, on a stream of its own. With p GPUs of two chunks the paper
has, by times of a chunk, a pipeline bubble ``(p - 1)(F + AR + B - W)``, a tensor-parallel bubble
``(2p + 1) AR`` and a memory of 3p chunks.

DualPipe of p GPUs has by its authors a bubble ``(p/2 - 1)(F&B + B - 3W)``, where B is a whole backward, and
p + 1 activations. She et al. say that their program found half the bubbles in the same memory. A pair F&B
takes as long here as its blocks one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from experiments.reproduce.ahead import AheadOptions, never_above, schedule_rows, searched_rows
from experiments.reproduce.item import Row, described
from placements import Block, Kind, Placement
from placements.shapes import wave_shape, x_shape
from schedsearch.baselines import HAND_MADE, dual_pipe
from schedsearch.baselines.chosen_modes import with_chosen_modes

BraidedCase = tuple[int, int, tuple[int, int, int, int]]
"""GPUs, micro-batches, and the ms of a chunk's forward, input half, weight half and exchange."""

BRAIDED: dict[str, BraidedCase] = {
    f"p={p} m={m}, {times}": (p, m, times)
    for times in ((2, 2, 2, 1), (10, 12, 8, 3))
    for p in (4, 8)
    for m in (16, 32)
}

_NUMBER = 10
"""Micro-batches of each direction, as in DualPipe's published picture."""

_TWO_WAY = {
    f"p={p}, 20 micro-batches, {times}": (p, *times) for times in ((1, 1, 1), (10, 12, 8)) for p in (4, 8)
}
"""GPUs, and the ms of a stage's forward, input half and weight half."""


def stp_ms(case: BraidedCase) -> int:
    """Return the iteration by STP's formula: the blocks of a GPU and the two bubbles."""
    p, number, (forward, backward, weight, exchange) = case
    bubbles = (p - 1) * (forward + exchange + backward - weight) + (2 * p + 1) * exchange
    return 2 * number * (forward + backward + weight) + bubbles


def braided(case: BraidedCase, input_release: int = 1) -> Placement:
    """Return STP's placement, with memory for 3p chunks; an input half releases its chunk, or not."""
    p, _, (forward, backward, weight, exchange) = case
    wave = wave_shape(p, 2, forward, backward + weight, True, backward, weight, input_release=input_release)
    blocks = []
    for block in wave.blocks:
        if block.kind is Kind.W:
            blocks.append(block)
            continue
        behind = Block(f"{block.name}_AR", block.kind, block.devices, exchange, after=(block.name,))
        after = tuple(f"{name}_AR" for name in block.after)
        blocks += [replace(block, after=after), replace(behind, stream="communication")]
    return replace(wave, blocks=tuple(blocks), tick_ms=1.0).with_memory(3 * p)


def _braided_rows(options: AheadOptions, case: BraidedCase) -> Iterator[Row]:
    number, theirs, placement = case[1], (stp_ms(case), 3 * case[0]), braided(case)
    order = dict(with_chosen_modes(placement, number, HAND_MADE))["stp"]
    yield from schedule_rows("STP's own order", order, *theirs)
    yield from searched_rows(placement, number, *theirs, options.work_limit)
    held = "searched, chunks held until weight halves"
    yield from searched_rows(braided(case, 0), number, *theirs, options.work_limit, label=held)


def _two_way_rows(options: AheadOptions, case: tuple[int, ...]) -> Iterator[Row]:
    p, forward, input_half, weight_half = case
    backward = input_half + weight_half
    shape = x_shape(p, forward, backward, True, input_half, weight_half)
    placement = replace(shape, tick_ms=1.0).with_memory(p + 1)
    load_ms = 2 * _NUMBER * (forward + backward)
    bubble_ms = (p // 2 - 1) * (forward + 2 * backward - 3 * weight_half)
    yield from schedule_rows("DualPipe", dual_pipe(placement, _NUMBER), load_ms + bubble_ms, p + 1)
    yield from searched_rows(placement, _NUMBER, load_ms + bubble_ms / 2, p + 1, options.work_limit)


_of_stp, _of_half = (
    partial(never_above, of=of) for of in ("STP's formulas say", "half of DualPipe's bubbles allow")
)

_SMALL_STP, _SMALL_HALF = (AheadOptions(tuple(cases)[:1], 2.5) for cases in (BRAIDED, _TWO_WAY))

ITEMS = (
    described("stp", BRAIDED, _braided_rows, _of_stp, small=_SMALL_STP),
    described("operator_level", _TWO_WAY, _two_way_rows, _of_half, small=_SMALL_HALF),
)
