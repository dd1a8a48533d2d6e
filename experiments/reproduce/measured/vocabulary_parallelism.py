"""Iterations of pipelines whose last stage has a large output layer: 1F1B of the measured times, and others.

A prediction is 1F1B of a run's own stages without transfers. Beside it stand the same pieces in other places,
with nothing measured: whole layers moved to where the slowest stage takes the least time, in 1F1B; and the
output layer on all devices, each with an equal part of the vocabulary (an M-shape), in a searched schedule
that may hold half as many activations more than 1F1B. Exchanging what the devices share takes no time here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.measured import MeasuredOptions
from experiments.reproduce.measured.measured_iterations import (
    MeasuredIteration,
    PieceTimes,
    read_measured_iterations,
)
from experiments.reproduce.rows import cases_in, span, value_of
from placements import Placement
from placements.forms.meaning import option
from placements.pieces import Piece, blocks_of
from placements.planners.division import in_proportion, min_largest
from schedsearch.baselines import one_f_one_b
from schedsearch.searches.search import search

NUM_MICRO_BATCHES = 128
"""Micro-batches of each iteration in the artifact."""

PREDICTED, MOVED, SHARED = "1F1B", "layers moved, 1F1B", "output layer on all devices, searched"
"""Labels of the rows."""

TOLERANCE = 0.02
"""Limit of the mean absolute error."""

TICK_MS = 0.1
"""Tick of searched placements; blocks take from some tens of ticks on. Predictions have one of a us."""

_METRIC = "iteration_ms"
_NOTHING = PieceTimes(0.0, 0.0)


@dataclass(frozen=True)
class MeasuredVocabularyOptions(MeasuredOptions):
    """Options of the item: measured iterations, and the search."""

    work_limit: float = option(
        10.0,
        "work limit of the search with the output layer on all devices, in units of about 1 s",
        above=0,
    )


def predicted_ms(run: MeasuredIteration) -> float:
    """Return the iteration of a run's own stages in 1F1B, without transfers."""
    placement = _placement(run.stages, tick_ms=1e-3)
    return placement.ms(one_f_one_b(placement, NUM_MICRO_BATCHES).makespan)


def moved_layers(run: MeasuredIteration) -> tuple[int, ...]:
    """Return the layers of each stage where the slowest takes the least time; the last may have none."""
    count = sum(run.stage_layers)
    first = run.layer.plus(1, run.embedding)
    pieces = [first.both_ms, *[run.layer.both_ms] * (count - 1), run.output_layer.both_ms]
    *layers, last = min_largest(pieces, len(run.stages))
    return (*layers, last - 1)


def with_layers(run: MeasuredIteration, stage_layers: Sequence[int]) -> Placement:
    """Return a run's model with other layers in its stages, and memory for 1F1B."""
    stages = _stages(run, stage_layers)
    stages[-1] = stages[-1].plus(1, run.output_layer)
    return _placement(stages, TICK_MS).with_memory(len(stages))


def with_shared_output(run: MeasuredIteration, num_in_flight: int) -> Placement:
    """Return a run's model in equal stages, the output layer on all devices, and room for micro-batches."""
    count = len(run.stages)
    output = _NOTHING.plus(1 / count, run.output_layer)
    stages = _stages(run, in_proportion([1] * count, sum(run.stage_layers)))
    return _placement(stages, TICK_MS, output).with_memory(num_in_flight)


def _stages(run: MeasuredIteration, stage_layers: Sequence[int]) -> list[PieceTimes]:
    """Return stages without the output layer."""
    stages = [_NOTHING.plus(count, run.layer) for count in stage_layers]
    stages[0] = stages[0].plus(1, run.embedding)
    return stages


def _placement(stages: Sequence[PieceTimes], tick_ms: float, output: PieceTimes | None = None) -> Placement:
    """Return a V-shape of stages, with an output layer on all devices after the last if there is one."""

    def ticks(times: PieceTimes) -> tuple[int, int]:
        return max(1, round(times.forward_ms / tick_ms)), max(1, round(times.backward_ms / tick_ms))

    pieces = [Piece(f"F{i}", (i,), ticks(stage), (1, -1)) for i, stage in enumerate(stages)]
    if output is not None:
        pieces.append(Piece("H", tuple(range(len(stages))), ticks(output)))
    name = "v_shape" if output is None else "m_shape"
    return Placement(name, len(stages), tuple(blocks_of(pieces)), tick_ms)


def _cases(options: MeasuredVocabularyOptions) -> dict[str, MeasuredIteration]:
    runs = read_measured_iterations(options.path_of("measured_iterations.csv"))
    return {run.case: run for run in runs[: options.max_rows]}


def _make(options: MeasuredVocabularyOptions, run: MeasuredIteration) -> Iterator[Row]:
    yield Row(PREDICTED, _METRIC, predicted_ms(run), run.iteration_ms, 1)
    if run.has_inner_layers and sum(run.stage_layers) >= len(run.stages):  # else there is nothing to move
        moved = moved_layers(run)
        placement = with_layers(run, moved)
        moved_ms = placement.ms(one_f_one_b(placement, NUM_MICRO_BATCHES).makespan)
        yield Row(MOVED, _METRIC, moved_ms, note=f"layers {'|'.join(map(str, moved))}; not measured")
        in_flight = math.ceil(1.5 * len(run.stages))
        placement = with_shared_output(run, in_flight)
        schedule = search(placement, NUM_MICRO_BATCHES, work_limit=options.work_limit).schedule
        assert schedule is not None, "there is room for 1F1B"
        note = f"{in_flight} activations; exchanging what the devices share takes no time here; not measured"
        yield Row(SHARED, _METRIC, placement.ms(schedule.makespan), note=note)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
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


VOCABULARY_PARALLELISM = described(
    "vocabulary_parallelism",
    _cases,
    _make,
    conclude=_trends,
    small=MeasuredVocabularyOptions(work_limit=2.5, max_rows=1),
)

ITEMS = (VOCABULARY_PARALLELISM,)
