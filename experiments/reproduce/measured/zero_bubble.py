"""Bubble rates of measured times: 1F1B, ZB-H1, ZB-H2, and searched schedules in ZB-1p's and ZB-2p's memory.

A bubble rate is the idle share ``(T - work) / T`` of one device. T is the makespan of 1F1B and of ZB-H1; of
the others it is the longest device span, as iterations follow each other without a barrier. What is published
of ZB-1p and ZB-2p are values of a heuristic; ours are searched under the same memory, by the same T.

All stages of a run are alike. Their activations follow from the model's hidden size and attention heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from math import gcd
from typing import Annotated

from experiments.reproduce.item import Claim, DataOptions, Row, Trend, described
from experiments.reproduce.rows import rows_with, uninterrupted
from placements import Placement
from placements.forms.meaning import Meaning, option
from placements.forms.tables import csv_records
from placements.profiles.operating_point import ProfileError
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b, zb_h1, zb_h2
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.searches.search import search

SCHEDULES = ("1F1B", "ZB_H1", "ZB_H2", "ZB_1p", "ZB_2p")
"""The published columns, each behind ``bubble_``; cells may be empty."""

SEQUENCE_LENGTH = 1024
"""Tokens of a sample in all runs."""


def _count(text: str, key: str, min: int = 1, max: int = 1_000_000_000) -> Meaning:
    return Meaning(text, key=key, min=min, max=max)


def _bubble(schedule: str) -> Meaning:
    return Meaning("published bubble rate", key=f"bubble_{schedule}", min=0, max=1)


@dataclass(frozen=True)
class StageTimes:
    """A run: times of one stage's blocks for one micro-batch, the model, and published bubble rates."""

    num_stages: Annotated[int, _count("stages", "p", max=1_000)]
    num_micro_batches: Annotated[int, _count("micro-batches", "m", max=10_000)]
    forward_us: Annotated[int, _count("a forward", "F_us")]
    input_us: Annotated[int, _count("gradient of the input", "B_us")]
    weight_us: Annotated[int, _count("gradient of the weights", "W_us")]
    transfer_us: Annotated[int, _count("a transfer", "comm_us", min=0)]
    hidden_size: Annotated[int, _count("width of the model", "hidden")]
    num_heads: Annotated[int, _count("attention heads", "heads")]
    one_f_one_b: Annotated[float | None, _bubble("1F1B")] = None
    zb_h1: Annotated[float | None, _bubble("ZB_H1")] = None
    zb_h2: Annotated[float | None, _bubble("ZB_H2")] = None
    zb_1p: Annotated[float | None, _bubble("ZB_1p")] = None
    zb_2p: Annotated[float | None, _bubble("ZB_2p")] = None

    @property
    def published(self) -> Mapping[str, float | None]:
        """Published bubble rates by the name of the schedule."""
        return dict(zip(SCHEDULES, astuple(self)[-len(SCHEDULES) :], strict=True))

    @property
    def work_us(self) -> int:
        """Time that each device computes in an iteration."""
        return self.num_micro_batches * (self.forward_us + self.input_us + self.weight_us)

    def with_whole_backward(self) -> Placement:
        """Return the V-shape whose gradients of input and weights leave a stage together."""
        return self._placed(
            v_shape(self.num_stages, self.forward_us, backward_time=self.input_us + self.weight_us)
        )

    def with_split_backward(self, num_activations: int | None = None) -> Placement:
        """Return the V-shape with the backward in two, and room for some activations; None for no limit.

        A forward holds ``34 h + 5 a s`` of memory up to a common factor, the gradient of the input releases
        all but ``32 h`` of it, that of the weights the rest.
        """
        held = 34 * self.hidden_size + 5 * self.num_heads * SEQUENCE_LENGTH
        kept = 32 * self.hidden_size
        unit = gcd(held, kept)
        placement = v_shape(
            self.num_stages,
            self.forward_us,
            split_backward=True,
            input_time=self.input_us,
            weight_time=self.weight_us,
            stage_memory=held // unit,
            input_release=(held - kept) // unit,
        )
        memory = None if num_activations is None else num_activations * held // unit
        return self._placed(placement).with_memory(memory)

    def _placed(self, placement: Placement) -> Placement:
        transfer = tuple(
            (before, block.name, self.transfer_us)
            for block in placement.blocks
            for before in block.after
            if placement.by_name[before].devices != block.devices
        )
        return replace(placement, tick_ms=0.001, transfer=transfer)


SEARCHED = {"ZB_1p": 1, "ZB_2p": 2}
"""Activations for which each device has room, as a multiple of the devices."""

_METRIC = "bubble_rate"
_DIGITS = 4


@dataclass(frozen=True)
class ZeroBubbleOptions(DataOptions):
    """Options of the item: measured times, and the search."""

    work_limit: float | None = option(
        None,
        "work limit of each search, in units of about 1 s; null: 5 for each device, more with many of them",
        above=0,
    )


def _cases(options: ZeroBubbleOptions) -> dict[str, StageTimes]:
    path = options.file("measured_times.csv")
    rows = csv_records(path, "run", ProfileError, StageTimes, others=True)
    return {f"line{line}_p{run.num_stages}_m{run.num_micro_batches}": run for line, run in rows}


def _make(options: ZeroBubbleOptions, times: StageTimes) -> Iterator[Row]:
    # The heuristic's own schedules, with which a search begins, take 25 CPU seconds of 32 devices and 256
    # micro-batches.
    work = options.work_limit or times.num_stages * max(5.0, times.num_micro_batches / 32)
    rates = by_hand(times) | {name: searched(times, name, work) for name in SEARCHED}
    for name, published in times.published.items():
        claim = Claim.TREND if name in SEARCHED else None
        yield Row(name, _METRIC, rates[name], published, _DIGITS, claim=claim)


def by_hand(times: StageTimes) -> dict[str, float]:
    """Return the bubble rates of the hand-made schedules, each by its own T."""
    split, number = times.with_split_backward(), times.num_micro_batches
    ends = {
        "1F1B": one_f_one_b(times.with_whole_backward(), number).makespan,
        "ZB_H1": zb_h1(split, number).makespan,
        "ZB_H2": int(device_spans(with_least_device_span(zb_h2(split, number))).max()),
    }
    return {name: bubble(times, end) for name, end in ends.items()}


def searched(times: StageTimes, name: str, work: float) -> float:
    """Return the bubble rate of the searched schedule in the memory of a heuristic of `SEARCHED`."""
    placement = times.with_split_backward(SEARCHED[name] * times.num_stages)
    answer = uninterrupted(
        search(placement, times.num_micro_batches, objectives=["device_span"], work_limit=work)
    )
    assert answer.schedule is not None, "there is room for a whole micro-batch"
    return bubble(times, int(device_spans(answer.schedule).max()))


def bubble(times: StageTimes, end_us: int) -> float:
    """Return the idle share of a device that takes so long for an iteration."""
    return (end_us - times.work_us) / end_us


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield whether searched schedules have no larger bubbles than the published ones, to printed digits."""
    for name, title in (("ZB_1p", "ZB-1p"), ("ZB_2p", "ZB-2p")):
        pairs = [(row.ours, row.published) for row in rows_with(rows, label=name)]
        both = [(round(a, _DIGITS), b) for a, b in pairs if a is not None and b is not None]
        if both:
            no_worse, better = sum(a <= b for a, b in both), sum(a < b for a, b in both)
            conclusion = f"a searched schedule in the memory of {title} has no larger bubble"
            shown_by = f"{no_worse} of {len(both)} rows, smaller in {better}"
            yield Trend(conclusion, no_worse == len(both), shown_by)


_SMALL = ZeroBubbleOptions(("line2_p8_m24",), work_limit=5.0)

ITEMS = (described("zero_bubble", _cases, _make, _trends, small=_SMALL),)
