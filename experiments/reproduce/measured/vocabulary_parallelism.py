"""Iterations of pipelines whose last stage has a large output layer: 1F1B of the measured times, and others.

A prediction is 1F1B of a run's own stages without transfers. Beside it stand the same pieces in other places,
with nothing measured: whole layers moved to where the slowest stage takes the least time, in 1F1B; and the
output layer on all devices (an M-shape), in a searched schedule that may hold half as many activations more
than 1F1B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.measured.measured_file import MeasuredOptions
from experiments.reproduce.measured.measured_iterations import (
    NUM_MICRO_BATCHES,
    MeasuredIteration,
    read_measured_iterations,
)
from experiments.reproduce.measured.unbalanced_stages import (
    moved_layers,
    predicted,
    searched,
    with_layers,
    with_shared_output,
)
from experiments.reproduce.rows import cases_in, rows_with, span, value_of
from placements.forms.meaning import option
from placements.forms.texts import csv_text
from schedsearch.baselines import one_f_one_b

FILE = "measured_iterations.csv"
"""Of the folder that is given."""

PREDICTED, MOVED, SHARED = "1F1B", "layers moved, 1F1B", "output layer on all devices, searched"
"""Labels of the rows."""

TOLERANCE = 0.02
"""Of the mean absolute error."""

_METRIC = "iteration_ms"
_DIGITS = 1


@dataclass(frozen=True)
class MeasuredVocabularyOptions(MeasuredOptions):
    """Options of the item: measured iterations, and the search."""

    work_limit: float = option(
        10.0,
        "work limit of the search with the output layer on all devices, in units of about 1 s",
    )


def _cases(options: MeasuredVocabularyOptions) -> dict[str, MeasuredIteration]:
    runs = read_measured_iterations(options.path_of(FILE), with_inner_layers=False)
    return {run.case: run for run in runs[: options.max_rows]}


def _make(options: MeasuredVocabularyOptions, run: MeasuredIteration) -> Iterator[Row]:
    """Yield the predicted iteration of a run beside the measured one, and those of other placements."""
    found = predicted(run)
    yield Row(PREDICTED, _METRIC, found.predicted_ms, found.measured_ms, _DIGITS)
    if run.has_inner_layers and sum(run.stage_layers) >= len(run.stages):  # else there is nothing to move
        moved = moved_layers(run)
        placement = with_layers(run, moved)
        moved_ms = placement.ms(one_f_one_b(placement, NUM_MICRO_BATCHES).makespan)
        yield Row(MOVED, _METRIC, moved_ms, note=f"layers {'|'.join(map(str, moved))}; not measured")
        in_flight = math.ceil(1.5 * len(run.stages))
        shared = searched(with_shared_output(run, in_flight), options.work_limit)
        note = f"{in_flight} activations; exchanging what the devices share takes no time here; not measured"
        yield Row(SHARED, _METRIC, shared.makespan_ms, note=note)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield how far off predictions are, and which placement of the output layer is the fastest."""
    errors = [abs(row.difference) for row in rows if row.difference is not None]
    if errors:
        says = f"1F1B of the measured times is within {TOLERANCE:.0%} of the measured iteration on average"
        yield Trend(says, fmean(errors) <= TOLERANCE, f"{fmean(errors):.2%}, at most {max(errors):.2%}")
    time_ms = value_of(rows, "label", "case")
    both = [case for case in cases_in(rows) if {(MOVED, case), (SHARED, case)} <= time_ms.keys()]
    if both:
        ratios = [time_ms[MOVED, case] / time_ms[SHARED, case] for case in both]
        says = "with the output layer on all devices an iteration is shorter than with layers moved"
        yield Trend(says, min(ratios) > 1, span(ratios, unit=" times as fast"))


def _files(rows: Sequence[Row]) -> dict[str, str]:
    """Return ``vocabulary_parallelism.csv``, predicted beside measured, and ``other_placements.csv``."""
    predictions = [
        (row.case, f"{row.published:.{_DIGITS}f}", f"{row.ours:.{_DIGITS}f}")
        for row in rows_with(rows, label=PREDICTED)
    ]
    others = [
        (row.case, row.label, f"{row.ours:.{_DIGITS}f}", row.note)
        for row in rows
        if row.label in (MOVED, SHARED)
    ]
    return {
        "vocabulary_parallelism.csv": csv_text(("row", "measured_ms", "predicted_ms"), predictions),
        "other_placements.csv": csv_text(("row", "placement", "predicted_ms", "note"), others),
    }


VOCABULARY_PARALLELISM = Item(
    name="vocabulary_parallelism",
    paper="Vocabulary Parallelism",
    part="measured iterations of its artifact",
    title="Iterations of pipelines whose last stage has the output layer, in 1F1B",
    claim=Claim.WITHIN,
    known=_cases,
    make=_make,
    conclude=_trends,
    small=MeasuredVocabularyOptions(work_limit=2.5, max_rows=1),
    files=_files,
    inputs={"data": "vocabulary_parallelism"},
    tolerance=TOLERANCE,
    because="predictions have no transfers, so that they are a little short",
)
