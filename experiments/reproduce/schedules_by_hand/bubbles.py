"""The bubble of every schedule made by hand, and of the searched one in the same memory.

A placement is looked at in the memory of each schedule that is defined for it: there are all schedules that
fit, and what the search finds. An X-shape's micro-batch is one of each direction, so of a number of
micro-batches it runs half as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from experiments.config.options import OptionError, require_known, require_limits
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.rows import rows_with, value_of
from placements import Placement
from placements.forms.meaning import option
from placements.forms.texts import csv_text
from placements.shapes import loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError, applicable
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.procedures.search import search

PLACEMENTS: dict[str, partial[Placement]] = {
    "V": partial(v_shape, forward_time=1, backward_time=2),
    "V, split": partial(v_shape, split_backward=True),
    "X": partial(x_shape, forward_time=1, backward_time=2),
    "X, split": partial(x_shape, split_backward=True),
    "M": partial(m_shape),
    "NN": partial(nn_shape),
    "loop": partial(loop_shape, forward_time=1, backward_time=2),
    "wave": partial(wave_shape, forward_time=1, backward_time=2),
    "wave of 4 chunks": partial(wave_shape, num_chunks=4, forward_time=1, backward_time=2),
    "wave, split": partial(wave_shape, split_backward=True),
}
"""By name; "split" ones have a backward in two halves, all of whose blocks take as long as a forward."""

SEARCHED = "searched"

_MEMORY_OF = 16
"""Micro-batches of the schedules whose memory is looked at."""


@dataclass(frozen=True)
class ByHandOptions:
    """Options of the tables: placements, micro-batches and the search."""

    num_devices: int = option(4, "devices of each placement")
    num_micro_batches: tuple[int, ...] = option(
        (6, 16, 128), "micro-batches of an iteration; each number makes a table"
    )
    placements: tuple[str, ...] | None = option(
        None, 'placements by name, as in ["V", "X, split"]; null: all'
    )
    work_limit: float = option(5.0, "work limit of one search, in units of about 1 s of one core")


class _Case(NamedTuple):
    """A placement by name, and the memory of its devices."""

    name: str
    units: int


def _cases(options: ByHandOptions) -> dict[str, _Case]:
    """Return the placements and memories."""
    for name, numbers in (
        ("num_devices", (options.num_devices,)),
        ("num_micro_batches", options.num_micro_batches),
    ):
        if not numbers or any(type(each) is not int or each < 2 or each % 2 for each in numbers):
            raise OptionError(f"{name}: {list(numbers)} are not even numbers from 2 on; give such")
    chosen = PLACEMENTS if options.placements is None else options.placements
    for name in chosen:
        require_known("placements", name, PLACEMENTS)
    require_limits(options)
    found = [_Case(name, units) for name in chosen for units in _memories(name, options.num_devices)]
    return {f"{case.name}, memory {case.units}": case for case in found}


def _make(options: ByHandOptions, case: _Case) -> Iterator[Row]:
    """Yield the rows of a placement in some memory: a bubble rate for each schedule and number."""
    placement = PLACEMENTS[case.name](options.num_devices).with_memory(case.units)
    for number in options.num_micro_batches:
        each = number // _num_inputs(case.name)
        searched = search(placement, each, work_limit=options.work_limit).schedule
        assert searched is not None, "a schedule by hand fits"
        for schedule, made in {**applicable(placement, each), SEARCHED: searched}.items():
            metric = f"bubble_rate_of_{number}"
            yield Row(schedule, metric, bubble_rate(made), series=case.name, at=case.units)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield whether no schedule by hand is better than the searched one, and by how much they are worse."""
    searched = value_of(rows_with(rows, label=SEARCHED), "case", "metric")
    by_hand = value_of((row for row in rows if row.label != SEARCHED), "case", "metric", "label")
    more = [value - searched[case, metric] for (case, metric, _), value in by_hand.items()]
    better = sum(each < -1e-12 for each in more)
    shown = f"{better} of {len(more)} by hand are better; {sum(each > 1e-12 for each in more)} are worse"
    yield Trend("no schedule by hand has less bubble than the searched one", not better, shown)


def _files(rows: Sequence[Row]) -> dict[str, str]:
    """Return the table: a row for each placement, memory and schedule, a column for each number."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    value = value_of(rows, "series", "at", "label", "metric")
    lines = []
    for name, units, label in dict.fromkeys((row.series, row.at, row.label) for row in rows):
        shown = (value.get((name, units, label, metric)) for metric in metrics)
        cells = ("" if each is None else f"{each:.4f}" for each in shown)
        lines.append([name, f"{units:g}", label, *cells])
    return {"bubbles.csv": csv_text(["placement", "memory", "schedule", *metrics], lines)}


def _num_inputs(name: str) -> int:
    return 2 if PLACEMENTS[name].func is x_shape else 1


def _memories(name: str, num_devices: int) -> list[int]:
    """Return the memory of each schedule that is defined for a placement, but of GPipe's, which grows."""
    placement = PLACEMENTS[name](num_devices)
    found = set()
    for schedule, make_by_hand in HAND_MADE.items():
        if schedule != "gpipe":
            try:
                made = make_by_hand(placement, _MEMORY_OF // _num_inputs(name))
            except UnsuitablePlacementError:
                continue
            found.add(int(peak_memory(made).max()))
    return sorted(found)


BY_HAND = Item(
    name="schedules_by_hand",
    paper="the schedules' own papers",
    part="",
    title="Bubble rates of all schedules by hand, and of searched ones in the same memory",
    claim=Claim.TREND,
    known=_cases,
    make=_make,
    conclude=_trends,
    small=ByHandOptions(num_micro_batches=(6,), placements=("V", "X")),
    files=_files,
    because="no paper has this table",
)

ITEMS = (BY_HAND,)
