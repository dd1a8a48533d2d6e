"""Measured iterations of pipelines whose last stage has the output layer, and what makes their stages.

The file has a row for each run: times of every stage's forward and backward, layers of each stage, and the
iteration (Vocabulary Parallelism, Yeung et al., 2025; its artifact's runs on one server). The times of a
layer, of the embedding and of the output layer are inferred from a row. The module does not know schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.profiles.operating_point import ProfileError

NUM_MICRO_BATCHES = 128
"""Of each iteration in the artifact."""


class _IterationRow(NamedTuple):
    """A row of the file; numbers of stages have ``|`` between."""

    case: str
    layers: Annotated[tuple[int, ...], Meaning("layers of each stage", min=0, key="layers_per_stage")]
    forward_us: Annotated[tuple[float, ...], Meaning("forwards", "us", above=0, key="F_us_per_stage")]
    backward_us: Annotated[tuple[float, ...], Meaning("backwards", "us", above=0, key="B_us_per_stage")]
    iteration_ms: Annotated[float, Meaning("the iteration", "ms", above=0)]


@dataclass(frozen=True)
class PieceTimes:
    """What one piece takes for one micro-batch, in ms."""

    forward_ms: float
    backward_ms: float

    @property
    def both_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms

    def plus(self, factor: float, other: PieceTimes) -> PieceTimes:
        """Return these and so many times others, at least 0."""
        return PieceTimes(
            max(0.0, self.forward_ms + factor * other.forward_ms),
            max(0.0, self.backward_ms + factor * other.backward_ms),
        )


@dataclass(frozen=True)
class MeasuredIteration:
    """A row.

    Attributes:
        case: Its name.
        stage_layers: Layers of each stage; the first stage has the embedding, the last the output layer.
        stages: Times of each stage.
        iteration_ms: Of `NUM_MICRO_BATCHES` micro-batches in 1F1B.
    """

    case: str
    stage_layers: tuple[int, ...]
    stages: tuple[PieceTimes, ...]
    iteration_ms: float

    @property
    def has_inner_layers(self) -> bool:
        """Whether there are layers between the first and the last stage."""
        return sum(self.stage_layers[1:-1]) > 0

    @cached_property
    def layer(self) -> PieceTimes:
        """The mean of a layer, in the stages that have nothing else."""
        inner, count = self.stages[1:-1], sum(self.stage_layers[1:-1])
        return PieceTimes(
            sum(stage.forward_ms for stage in inner) / count,
            sum(stage.backward_ms for stage in inner) / count,
        )

    @property
    def embedding(self) -> PieceTimes:
        """What the first stage takes beyond its layers."""
        return self.stages[0].plus(-self.stage_layers[0], self.layer)

    @property
    def output_layer(self) -> PieceTimes:
        """What the last stage takes beyond its layers."""
        return self.stages[-1].plus(-self.stage_layers[-1], self.layer)


def read_measured_iterations(
    path: str | Path, *, with_inner_layers: bool = True
) -> tuple[MeasuredIteration, ...]:
    """Read the rows of a CSV file.

    Args:
        path: The file.
        with_inner_layers: Whether a row must have layers between its first and its last stage, without which
            the times of its pieces cannot be inferred.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with in_file(path, ProfileError):
        table = csv_records(Path(path), "run", ProfileError, _IterationRow, others=True, once=("case",))
        return tuple(_iteration(line, row, with_inner_layers) for line, row in table)


def _iteration(line: int, row: _IterationRow, with_inner_layers: bool) -> MeasuredIteration:
    for column, values in (("F_us_per_stage", row.forward_us), ("B_us_per_stage", row.backward_us)):
        if len(values) != len(row.layers):
            raise ProfileError(
                f"line {line}, column {column}: has {len(values)} numbers for the {len(row.layers)} stages "
                "of layers_per_stage; give one for each"
            )
    if with_inner_layers and sum(row.layers[1:-1]) == 0:
        raise ProfileError(
            f"line {line}, column layers_per_stage: has no layers between the first and the last stage, "
            "which have more than layers; give another run"
        )
    times = zip(row.forward_us, row.backward_us, strict=True)
    stages = tuple(PieceTimes(forward / 1e3, backward / 1e3) for forward, backward in times)
    return MeasuredIteration(row.case, row.layers, stages, row.iteration_ms)
