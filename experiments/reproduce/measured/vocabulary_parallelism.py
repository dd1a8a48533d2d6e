"""Iterations of pipelines whose last stage has a large output layer: 1F1B of the measured times, and others.

A prediction is 1F1B of a run's own stages without transfers. Beside it stand the same pieces in other places,
with nothing measured: whole layers moved to where the slowest stage takes the least time, in 1F1B; and the
output layer on all devices (an M-shape), in a searched schedule that may hold half as many activations more
than 1F1B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.reproduce.item import Row, Trend, cases_in
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
from placements.files import csv_text
from placements.meaning import option
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
class VocabularyOptions(MeasuredOptions):
    """Options of the item: measured iterations, and the search."""

    work_limit: float = option(
        10.0,
        "work limit of the search with the output layer on all devices, in units of about 1 s",
    )


def cases(options: VocabularyOptions) -> tuple[str, ...]:
    """Return the names of the runs.

    Raises:
        OptionError: No data is given, or an option is out of its range.
        ProfileError: The file is wrong.
    """
    return tuple(run.case for run in _runs(options))


def make(options: VocabularyOptions, case: str) -> tuple[Row, ...]:
    """Return the predicted iteration of a run beside the measured one, and those of other placements."""
    (run,) = (each for each in _runs(options) if each.case == case)
    found = predicted(run)
    rows = [Row(case, PREDICTED, _METRIC, found.predicted_ms, found.measured_ms, _DIGITS)]
    if run.has_inner_layers and sum(run.stage_layers) >= len(run.stages):  # else there is nothing to move
        moved = moved_layers(run)
        placement = with_layers(run, moved)
        moved_ms = placement.ms(one_f_one_b(placement, NUM_MICRO_BATCHES).makespan)
        note = f"layers {'|'.join(map(str, moved))}; not measured"
        rows.append(Row(case, MOVED, _METRIC, moved_ms, note=note))
        in_flight = math.ceil(1.5 * len(run.stages))
        shared = searched(with_shared_output(run, in_flight), options.work_limit)
        note = f"{in_flight} activations; exchanging what the devices share takes no time here; not measured"
        rows.append(Row(case, SHARED, _METRIC, shared.makespan_ms, note=note))
    return tuple(rows)


def _runs(options: VocabularyOptions) -> tuple[MeasuredIteration, ...]:
    runs = read_measured_iterations(options.path_of(FILE), with_inner_layers=False)
    return runs[: options.max_rows]


def trends(rows: Sequence[Row]) -> tuple[Trend, ...]:
    """Return how far off predictions are, and which placement of the output layer is the fastest."""
    errors = [abs(row.difference) for row in rows if row.difference is not None]
    found = []
    if errors:
        mean = sum(errors) / len(errors)
        says = f"1F1B of the measured times is within {TOLERANCE:.0%} of the measured iteration on average"
        shown_by = f"{mean:.2%}, at most {max(errors):.2%}"
        found.append(Trend(says, mean <= TOLERANCE, shown_by))
    ratios = []
    for case in cases_in(rows):
        times = {row.label: row.ours for row in rows if row.case == case and row.ours is not None}
        if MOVED in times and SHARED in times:
            ratios.append(times[MOVED] / times[SHARED])
    if ratios:
        says = "with the output layer on all devices an iteration is shorter than with layers moved"
        found.append(Trend(says, min(ratios) > 1, f"{min(ratios):.2f} to {max(ratios):.2f} times as fast"))
    return tuple(found)


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return ``vocabulary_parallelism.csv``, predicted beside measured, and ``other_placements.csv``."""
    predictions = [
        (row.case, f"{row.published:.{_DIGITS}f}", f"{row.ours:.{_DIGITS}f}")
        for row in rows
        if row.published is not None and row.ours is not None
    ]
    others = [
        (row.case, row.label, f"{row.ours:.{_DIGITS}f}", row.note)
        for row in rows
        if row.published is None and row.ours is not None
    ]
    return {
        "vocabulary_parallelism.csv": csv_text(("row", "measured_ms", "predicted_ms"), predictions),
        "other_placements.csv": csv_text(("row", "placement", "predicted_ms", "note"), others),
    }
