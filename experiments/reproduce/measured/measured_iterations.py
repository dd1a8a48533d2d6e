"""Measured iterations of pipelines whose last stage has the output layer, and what makes their stages.

The file has a row for each run: times of every stage's forward and backward, layers of each stage, and the
iteration (Vocabulary Parallelism, Yeung et al., 2025; its artifact's runs on one server). The times of a
layer, of the embedding and of the output layer are inferred from a row. The module does not know schedules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from placements.plain_data import Field, Row, csv_rows, in_file, read_csv
from placements.profiles.operating_point import ProfileError

COLUMNS = ("case", "layers_per_stage", "F_us_per_stage", "B_us_per_stage", "iteration_ms")
"""Of the file, among others; numbers of stages have ``|`` between."""

NUM_MICRO_BATCHES = 128
"""Of each iteration in the artifact."""

_MOST = 1_000_000_000


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
        table = csv_rows(read_csv(path, ProfileError), "run", ProfileError, COLUMNS, others=True)
        rows = tuple(_row(row, with_inner_layers) for _, row in table)
        names = [row.case for row in rows]
        for (_, row), name in zip(table, names, strict=True):
            if names.count(name) > 1:
                raise row["case"].mistake(f"{name[:60]!r} is the name of several rows; rename one")
    return rows


def _row(row: Row, with_inner_layers: bool) -> MeasuredIteration:
    layers = [int(each) for each in _numbers(row["layers_per_stage"], is_whole=True)]
    forward, backward = (_numbers(row[column]) for column in COLUMNS[2:4])
    for column, values in zip(COLUMNS[2:4], (forward, backward), strict=True):
        if len(values) != len(layers):
            raise row[column].mistake(
                f"has {len(values)} numbers for the {len(layers)} stages of layers_per_stage; give one "
                "for each"
            )
    if with_inner_layers and sum(layers[1:-1]) == 0:
        raise row["layers_per_stage"].mistake(
            f"{row['layers_per_stage'].value[:60]!r} has no layers between the first and the last stage, "
            "which have more than layers; give another run"
        )
    (iteration_ms,) = _numbers(row["iteration_ms"], most=1)
    stages = tuple(PieceTimes(f / 1e3, b / 1e3) for f, b in zip(forward, backward, strict=True))
    return MeasuredIteration(row["case"].value, tuple(layers), stages, iteration_ms)


def _numbers(cell: Field, is_whole: bool = False, most: int | None = None) -> list[float]:
    """Return the numbers of a cell: layers are 0 or more, times above 0."""
    items = [replace(cell, value=text.strip()) for text in cell.value.split("|")]
    if most is not None and len(items) > most:
        raise cell.mistake(f"has {len(items)} numbers; give {most}")
    if is_whole:
        wanted = "a whole number of 0 or more"
        return [item.whole(wanted, "give one", 0, _MOST) for item in items]
    wanted = f"a number above 0 and at most {_MOST}"
    return [item.number(wanted, "give one", math.ulp(0.0), _MOST) for item in items]
