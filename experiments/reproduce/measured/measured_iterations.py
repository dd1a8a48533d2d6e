"""Measured iterations of pipelines whose last stage has the output layer, and the pieces of their stages.

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
from placements.forms.tables import csv_records
from placements.profiles.operating_point import ProfileError


class _IterationRow(NamedTuple):
    """A row of the file; numbers of stages have ``|`` between."""

    case: str
    layers: Annotated[tuple[int, ...], Meaning("layers of each stage", min=0, key="layers_per_stage")]
    forward_us: Annotated[tuple[float, ...], Meaning("forwards", "us", above=0, key="F_us_per_stage")]
    backward_us: Annotated[tuple[float, ...], Meaning("backwards", "us", above=0, key="B_us_per_stage")]
    iteration_ms: Annotated[float, Meaning("the iteration", "ms", above=0)]


class PieceTimes(NamedTuple):
    """Times of one piece for one micro-batch, in ms."""

    forward_ms: float
    backward_ms: float

    @property
    def both_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms

    def plus(self, factor: float, other: PieceTimes) -> PieceTimes:
        """Return these times plus a multiple of others, at least 0."""
        return PieceTimes(*(max(0.0, own + factor * more) for own, more in zip(self, other, strict=True)))


@dataclass(frozen=True)
class MeasuredIteration:
    """A row.

    Attributes:
        case: Its name.
        stage_layers: Layers of each stage; the first stage has the embedding, the last the output layer.
        stages: Times of each stage.
        iteration_ms: Measured iteration of 128 micro-batches in 1F1B.
    """

    case: str
    stage_layers: tuple[int, ...]
    stages: tuple[PieceTimes, ...]
    iteration_ms: float

    @property
    def has_inner_layers(self) -> bool:
        """Whether there are layers between the first and the last stage, from which pieces are inferred."""
        return sum(self.stage_layers[1:-1]) > 0

    @cached_property
    def layer(self) -> PieceTimes:
        """Mean time of a layer, in the stages that have nothing else."""
        inner, count = self.stages[1:-1], sum(self.stage_layers[1:-1])
        return PieceTimes(*(sum(times) / count for times in zip(*inner, strict=True)))

    @property
    def embedding(self) -> PieceTimes:
        """Time of the first stage beyond its layers."""
        return self.stages[0].plus(-self.stage_layers[0], self.layer)

    @property
    def output_layer(self) -> PieceTimes:
        """Time of the last stage beyond its layers."""
        return self.stages[-1].plus(-self.stage_layers[-1], self.layer)


def read_measured_iterations(path: str | Path) -> tuple[MeasuredIteration, ...]:
    """Read the rows of a CSV file.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message begins with its path.
    """
    found = []
    for line, row in csv_records(Path(path), "run", ProfileError, _IterationRow, others=True, once=("case",)):
        for column, values in (("F_us_per_stage", row.forward_us), ("B_us_per_stage", row.backward_us)):
            if len(values) != len(row.layers):
                raise ProfileError(
                    f"{path}: line {line}, column {column}: has {len(values)} numbers for the "
                    f"{len(row.layers)} stages of layers_per_stage; give one for each"
                )
        times = zip(row.forward_us, row.backward_us, strict=True)
        stages = tuple(PieceTimes(forward / 1e3, backward / 1e3) for forward, backward in times)
        found.append(MeasuredIteration(row.case, row.layers, stages, row.iteration_ms))
    return tuple(found)
