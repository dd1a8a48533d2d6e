"""Schedules of 2025 and 2026 beside searched ones: theirs by formula or text, ours of the same blocks.

- `closed_forms`: STP, whose pairs of passes hide tensor-parallel exchanges, and half of DualPipe's bubbles
- `unequal_layers`: AdaPtis, for models whose layers differ in kind
- `nested_encoders`: BigMac, encoders within the pipeline of a language model
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.reproduce.item import CaseOptions, Row, Trend
from experiments.reproduce.rows import in_all, rows_with, uninterrupted
from placements import Placement
from placements.forms.meaning import option
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search

ITERATION = "iteration_ms"
"""Metric of a schedule's time."""

SEARCHED = "searched"
"""Label of our schedule."""


@dataclass(frozen=True)
class AheadOptions(CaseOptions):
    """Options of these items."""

    work_limit: float = option(5.0, "work limit of each search, in units of about 1 s", above=0)


def schedule_rows(
    label: str,
    schedule: Schedule,
    ms: float | None = None,
    units: int | None = None,
    note: str = "",
    bound: float | None = None,
) -> Iterator[Row]:
    """Yield the time of a schedule and the most memory of a device beside published ones, if there are any.

    The memory is in MiB, or in the units of a placement that does not say what a unit is.
    """
    placement, held = schedule.placement, int(peak_memory(schedule).max())
    yield Row(label, ITERATION, placement.ms(schedule.makespan), ms, 1, note, bound=bound)
    metric = "peak_activations" if placement.memory_unit_mib is None else "peak_mib"
    yield Row(label, metric, held * (placement.memory_unit_mib or 1), units, 0)


def searched_rows(
    placement: Placement,
    number: int,
    ms: float,
    units: int,
    work_limit: float,
    start: Schedule | None = None,
    label: str = SEARCHED,
) -> Iterator[Row]:
    """Yield the rows of a searched schedule of some micro-batches, with its bound and proof."""
    answer = uninterrupted(search(placement, number, work_limit=work_limit, begin_with=start))
    assert answer.schedule is not None, "there is room for a micro-batch"
    bound_ms = placement.ms(answer.makespan_bound)
    yield from schedule_rows(label, answer.schedule, ms, units, answer.proved, bound_ms)


def never_above(rows: Sequence[Row], of: str) -> Iterator[Trend]:
    """Yield whether no searched schedule takes longer or holds more than the published one."""
    searched = [row for row in rows if row.label.startswith(SEARCHED)]
    for metric, what in ((ITERATION, "takes longer"), ("peak_activations", "holds more")):
        pairs = [(row.ours, row.published) for row in rows_with(searched, metric=metric)]
        holds = [ours is not None and theirs is not None and ours <= theirs for ours, theirs in pairs]
        yield in_all(f"no searched schedule {what} than {of}", holds, "schedules")
