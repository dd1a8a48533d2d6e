"""What the output layer costs a pipeline, measured and predicted, and what other placements would bring.

A prediction is a schedule of the measured times without transfers. Layers can be moved, whole ones only; or
the output layer can stand on all devices, each with an equal part of the vocabulary (an M-shape), which takes
no time to exchange anything here. The module does not know a model's shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.reproduce.measured.measured_iterations import (
    NUM_MICRO_BATCHES,
    MeasuredIteration,
    PieceTimes,
)
from placements import Placement
from placements.pieces import Piece, blocks_of
from placements.planners.division import in_proportion, min_largest
from schedsearch.baselines import one_f_one_b
from schedsearch.procedures.search import search

_NOTHING = PieceTimes(0.0, 0.0)

TICK_MS = 0.1
"""Of searched placements; blocks take from some tens of ticks on. Predictions have ticks of a microsecond."""


@dataclass(frozen=True)
class StagePrediction:
    """A measured iteration beside that of its times in 1F1B.

    Attributes:
        case: The row.
        measured_ms: Measured time of an iteration.
        predicted_ms: Predicted time of an iteration.
        longest_ms: Forward and backward of the slowest stage for one micro-batch.
    """

    case: str
    measured_ms: float
    predicted_ms: float
    longest_ms: float

    @property
    def error(self) -> float:
        """The prediction over what was measured, less 1."""
        return self.predicted_ms / self.measured_ms - 1


@dataclass(frozen=True)
class SearchedIteration:
    """What a search finds on a placement.

    Attributes:
        period_ms: For one micro-batch in the steady state.
        period_bound_ms: Lower bound of all periods.
        makespan_ms: Makespan of an iteration.
        load_ms: For one micro-batch on the device with the most work.
    """

    period_ms: float
    period_bound_ms: float
    makespan_ms: float
    load_ms: float


def predicted(row: MeasuredIteration) -> StagePrediction:
    """Return the iteration of a row's own stages in 1F1B, without transfers."""
    placement = stage_placement(row.stages, tick_ms=1e-3)
    makespan_ms = placement.ms(one_f_one_b(placement, NUM_MICRO_BATCHES).makespan)
    return StagePrediction(
        row.case, row.iteration_ms, makespan_ms, max(stage.both_ms for stage in row.stages)
    )


def moved_layers(row: MeasuredIteration) -> tuple[int, ...]:
    """Return the layers of each stage where the slowest takes the least time; the last may have none."""
    count = sum(row.stage_layers)
    first = row.layer.plus(1, row.embedding)
    pieces = [first.both_ms, *[row.layer.both_ms] * (count - 1), row.output_layer.both_ms]
    *layers, last = min_largest(pieces, len(row.stages))
    return (*layers, last - 1)


def with_layers(row: MeasuredIteration, stage_layers: Sequence[int]) -> Placement:
    """Return a row's model with other layers in its stages, and room for what 1F1B holds.

    Args:
        row: Row with the times.
        stage_layers: Layers of each stage.
    """
    stages = _stages(row, stage_layers)
    stages[-1] = stages[-1].plus(1, row.output_layer)
    return stage_placement(stages, TICK_MS).with_memory(len(stages))


def with_shared_output(row: MeasuredIteration, num_in_flight: int) -> Placement:
    """Return a row's model with equal stages, and the output layer on all devices.

    Args:
        row: Row with the times.
        num_in_flight: Micro-batches for which each device has room.
    """
    count = len(row.stages)
    output = _NOTHING.plus(1 / count, row.output_layer)
    stages = _stages(row, in_proportion([1] * count, sum(row.stage_layers)))
    return stage_placement(stages, TICK_MS, output).with_memory(num_in_flight)


def _stages(row: MeasuredIteration, stage_layers: Sequence[int]) -> list[PieceTimes]:
    """Return stages without the output layer."""
    stages = [_NOTHING.plus(count, row.layer) for count in stage_layers]
    stages[0] = stages[0].plus(1, row.embedding)
    return stages


def searched(placement: Placement, work_limit: float) -> SearchedIteration:
    """Search a schedule of an iteration.

    Args:
        placement: What runs where.
        work_limit: Units of counted work.
    """
    found = search(placement, NUM_MICRO_BATCHES, work_limit=work_limit)
    assert found.repetend is not None
    assert found.schedule is not None, "there is room for 1F1B"
    tick_ms = placement.tick_ms
    return SearchedIteration(
        float(found.repetend.period_per_micro_batch) * tick_ms,
        found.period_bound * tick_ms,
        placement.ms(found.schedule.makespan),
        placement.ms(max(placement.load(device) for device in range(placement.num_devices))),
    )


def stage_placement(
    stages: Sequence[PieceTimes], tick_ms: float, output: PieceTimes | None = None
) -> Placement:
    """Return a V-shape of stages, with an output layer on all devices after the last if there is one."""

    def ticks(times: PieceTimes) -> tuple[int, int]:
        """Return those of the forward and of the backward."""
        return max(1, round(times.forward_ms / tick_ms)), max(1, round(times.backward_ms / tick_ms))

    pieces = [Piece(f"F{i}", (i,), ticks(stage), (1, -1)) for i, stage in enumerate(stages)]
    if output is not None:
        pieces.append(Piece("H", tuple(range(len(stages))), ticks(output)))
    name = "v_shape" if output is None else "m_shape"
    return Placement(name, len(stages), tuple(blocks_of(pieces)), tick_ms)
