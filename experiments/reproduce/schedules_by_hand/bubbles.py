"""The bubble of every schedule made by hand, and of the searched one in the same memory.

A placement is looked at in the memory of each schedule that is defined for it: there are all schedules that
fit, and what the search finds. An X-shape's micro-batch is one of each direction, so of a number of
micro-batches it runs half as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from experiments.config.options import OptionError, require_known, require_limits
from experiments.reproduce.item import Row, Trend
from placements import Placement
from placements.files import csv_text
from placements.meaning import option
from placements.shapes import loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError, applicable
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.modulo.search import search

PLACEMENTS: dict[str, Callable[[int], Placement]] = {
    "V": partial(v_shape, forward_time=1, backward_time=2),
    "V, split": partial(v_shape, split_backward=True),
    "X": partial(x_shape, forward_time=1, backward_time=2),
    "X, split": partial(x_shape, split_backward=True),
    "M": m_shape,
    "NN": nn_shape,
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


def cases(options: ByHandOptions) -> tuple[str, ...]:
    """Return the placements and memories.

    Raises:
        OptionError: An option is out of its range.
    """
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
    return tuple(
        f"{name}, memory {units}" for name in chosen for units in _memories(name, options.num_devices)
    )


def make(options: ByHandOptions, case: str) -> list[Row]:
    """Return the rows of a placement in some memory: a bubble rate for each schedule and number."""
    name, _, units = case.rpartition(", memory ")
    placement = PLACEMENTS[name](options.num_devices).with_memory(int(units))
    rows = []
    for number in options.num_micro_batches:
        each = number // _num_inputs(name)
        found = dict(applicable(placement, each))
        searched = search(placement, each, work_limit=options.work_limit).schedule
        assert searched is not None, "a schedule by hand fits"
        found[SEARCHED] = searched
        rows += [
            Row(case, schedule, f"bubble_rate_of_{number}", bubble_rate(made))
            for schedule, made in found.items()
        ]
    return rows


def trends(rows: Sequence[Row]) -> list[Trend]:
    """Return whether no schedule by hand is better than the searched one, and by how much they are worse."""
    searched = {(row.case, row.metric): row.ours for row in rows if row.label == SEARCHED}
    more = []
    for row in rows:
        best = searched[row.case, row.metric]
        if row.label != SEARCHED and row.ours is not None and best is not None:
            more.append(row.ours - best)
    better = sum(each < -1e-12 for each in more)
    shown = f"{better} of {len(more)} by hand are better; {sum(each > 1e-12 for each in more)} are worse"
    return [Trend("no schedule by hand has less bubble than the searched one", not better, shown)]


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return the table: a row for each placement, memory and schedule, a column for each number."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    cells: dict[tuple[str, str], dict[str, float | None]] = {}
    for row in rows:
        cells.setdefault((row.case, row.label), {})[row.metric] = row.ours
    lines = []
    for (case, label), values in cells.items():
        name, _, units = case.rpartition(", memory ")
        shown = [values.get(metric) for metric in metrics]
        lines.append([name, units, label, *("" if each is None else f"{each:.4f}" for each in shown)])
    return {"bubbles.csv": csv_text(["placement", "memory", "schedule", *metrics], lines)}


def _num_inputs(name: str) -> int:
    return 2 if name.startswith("X") else 1


def _memories(name: str, num_devices: int) -> list[int]:
    """Return the memory of each schedule that is defined for a placement, but of GPipe's, which grows."""
    placement = PLACEMENTS[name](num_devices)
    found = set()
    for schedule, make_by_hand in HAND_MADE.items():
        if schedule not in ("gpipe", "breadth_first"):
            try:
                made = make_by_hand(placement, _MEMORY_OF // _num_inputs(name))
            except UnsuitablePlacementError:
                continue
            found.add(int(peak_memory(made).max()))
    return sorted(found)
