"""STP: a forward and a backward of a GPU braided so that tensor-parallel exchanges hide.

An exchange is an all-reduce behind a forward or an input half, on a stream of its own. With p GPUs of two
chunks the paper has, by times of a chunk, a pipeline bubble ``(p - 1)(F + AR + B - W)``, a tensor-parallel
bubble ``(2p + 1) AR`` and a memory of 3p chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.reproduce.ahead import ITERATION, AheadOptions, never_above, schedule_rows, searched_rows
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import in_all, rows_with
from placements import Block, Kind, Placement
from placements.shapes import wave_shape
from schedsearch.baselines import HAND_MADE
from schedsearch.baselines.chosen_modes import with_chosen_modes

_STP = "STP's own order"


class BraidedCase(NamedTuple):
    """GPUs, micro-batches, and the times of a chunk in ms.

    Attributes:
        input_half: Of the gradient of the input, the paper's B; `weight_half` is its W.
        exchange: Of the all-reduce behind a forward or an input half.
    """

    num_devices: int
    num_micro_batches: int
    forward: int
    input_half: int
    weight_half: int
    exchange: int

    @property
    def formula_ms(self) -> int:
        """Iteration by the paper's formula: the blocks of a GPU and the two bubbles."""
        passes = self.forward + self.input_half + self.weight_half
        pipeline = self.forward + self.exchange + self.input_half - self.weight_half
        bubbles = (self.num_devices - 1) * pipeline + (2 * self.num_devices + 1) * self.exchange
        return 2 * self.num_micro_batches * passes + bubbles

    def placement(self, input_release: int = 1) -> Placement:
        """Return the placement, with memory for 3p chunks; an input half releases a chunk, or does not."""
        times = self.forward, self.input_half + self.weight_half, True, self.input_half, self.weight_half
        wave = wave_shape(self.num_devices, 2, *times, input_release=input_release)
        exchanges = with_exchanges(replace(wave, tick_ms=1.0), self.exchange)
        return exchanges.with_memory(3 * self.num_devices)


def with_exchanges(placement: Placement, ticks: int) -> Placement:
    """Return a placement with an exchange behind each forward and input half, beside which others compute."""
    ends = {block.name: f"{block.name}_all_reduce" for block in placement.blocks if block.kind is not Kind.W}
    blocks = []
    for block in placement.blocks:
        after = block.after if block.kind is Kind.W else tuple(ends[name] for name in block.after)
        blocks.append(replace(block, after=after))
        if block.kind is not Kind.W:
            name = ends[block.name]
            blocks.append(
                Block(name, block.kind, block.devices, ticks, after=(block.name,), stream="communication")
            )
    return replace(placement, blocks=tuple(blocks))


CASES = {
    f"p={p} m={m}, {times}": BraidedCase(p, m, *times)
    for times in ((2, 2, 2, 1), (10, 12, 8, 3))
    for p in (4, 8)
    for m in (16, 32)
}
"""By name, with the ms of F, B, W and AR."""


def _make(options: AheadOptions, case: BraidedCase) -> Iterator[Row]:
    number, formula, units = case.num_micro_batches, case.formula_ms, 3 * case.num_devices
    placement = case.placement()
    own = dict(with_chosen_modes(placement, number, HAND_MADE))["stp"]
    yield from schedule_rows(_STP, own, formula, units, "simulated; exchanges are not cut")
    yield from searched_rows(placement, number, formula, units, options.work_limit)
    strict = "searched, chunks held until weight halves"
    yield from searched_rows(case.placement(0), number, formula, units, options.work_limit, label=strict)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    yield from never_above(rows, "STP's formulas say")
    own = {row.case: row.ours for row in rows_with(rows, label=_STP, metric=ITERATION)}
    searched = rows_with(rows, label="searched", metric=ITERATION)
    shorter = [(row.ours or 0.0) <= (own[row.case] or 0.0) for row in searched]
    yield in_all("not in the paper: no searched schedule takes longer than STP's order", shorter, "cases")


ITEMS = (described("stp", CASES, _make, _trends, small=AheadOptions(tuple(CASES)[:1], work_limit=2.5)),)
