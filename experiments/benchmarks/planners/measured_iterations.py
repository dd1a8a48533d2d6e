"""Measured iterations of pipelines whose last stage has the output layer, and what makes their stages.

The file has a row for each run: times of every stage's forward and backward, layers of each stage, and the
iteration (Vocabulary Parallelism, Yeung et al., 2025; its artifact's runs on one server). The times of a
layer, of the embedding and of the output layer are inferred from a row. The module does not know schedules.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from placements.operating_point import ProfileError
from placements.plain_data import in_file

COLUMNS = ("case", "layers_per_stage", "F_us_per_stage", "B_us_per_stage", "iteration_ms")
"""Of the file, among others; numbers of stages have ``|`` between."""

NUM_MICRO_BATCHES = 128
"""Of each iteration in the artifact."""


@dataclass(frozen=True)
class Times:
    """What one piece takes for one micro-batch, in ms."""

    forward_ms: float
    backward_ms: float

    @property
    def both_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms

    def plus(self, factor: float, other: Times) -> Times:
        """Return these and so many times others, at least 0."""
        return Times(
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
    stages: tuple[Times, ...]
    iteration_ms: float

    @cached_property
    def layer(self) -> Times:
        """The mean of a layer, in the stages that have nothing else."""
        inner, count = self.stages[1:-1], sum(self.stage_layers[1:-1])
        return Times(
            sum(stage.forward_ms for stage in inner) / count,
            sum(stage.backward_ms for stage in inner) / count,
        )

    @property
    def embedding(self) -> Times:
        """What the first stage takes beyond its layers."""
        return self.stages[0].plus(-self.stage_layers[0], self.layer)

    @property
    def output_layer(self) -> Times:
        """What the last stage takes beyond its layers."""
        return self.stages[-1].plus(-self.stage_layers[-1], self.layer)


def read_measured_iterations(path: str | Path) -> tuple[MeasuredIteration, ...]:
    """Read the rows of a CSV file.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with in_file(path, ProfileError):
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        except OSError as cause:
            raise ProfileError(f"cannot be read ({cause.strerror}); give the path of a CSV file") from None
        except (UnicodeDecodeError, csv.Error):
            raise ProfileError("is not CSV text; save it as comma-separated UTF-8") from None
        if not rows:
            raise ProfileError("has no rows below the header; give one for each run")
        return tuple(_row(number, row) for number, row in enumerate(rows, start=2))


def _row(number: int, row: Mapping[str, str | None]) -> MeasuredIteration:
    cells = {}
    for column in COLUMNS:
        cell = row.get(column)
        if not cell:
            raise ProfileError(f"line {number}, column {column}: is missing; fill the cell or add the column")
        cells[column] = cell
    layers = [int(each) for each in _numbers(number, "layers_per_stage", cells, is_whole=True)]
    forward, backward = (_numbers(number, column, cells) for column in COLUMNS[2:4])
    for column, values in zip(COLUMNS[2:4], (forward, backward), strict=True):
        if len(values) != len(layers):
            raise ProfileError(
                f"line {number}, column {column}: has {len(values)} numbers for the {len(layers)} stages of "
                "layers_per_stage; give one for each"
            )
    if not sum(layers[1:-1]):
        raise ProfileError(
            f"line {number}, column layers_per_stage: {cells['layers_per_stage'][:60]!r} has no layers "
            "between the first and the last stage, which have more than layers; give another run"
        )
    (iteration_ms,) = _numbers(number, "iteration_ms", cells, most=1)
    stages = tuple(Times(f / 1e3, b / 1e3) for f, b in zip(forward, backward, strict=True))
    return MeasuredIteration(cells["case"], tuple(layers), stages, iteration_ms)


def _numbers(
    number: int, column: str, cells: Mapping[str, str], is_whole: bool = False, most: int | None = None
) -> Sequence[float]:
    """Return the numbers of a cell: layers are 0 or more, times above 0."""
    found = []
    for text in cells[column].split("|"):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        is_wrong = value < 0 or value != int(value) if is_whole and math.isfinite(value) else not value > 0
        if is_wrong or not math.isfinite(value):
            wanted = "a whole number of 0 or more" if is_whole else "a number above 0"
            raise ProfileError(f"line {number}, column {column}: {text[:60]!r} is not {wanted}; give one")
        found.append(value)
    if most is not None and len(found) > most:
        raise ProfileError(f"line {number}, column {column}: has {len(found)} numbers; give {most}")
    return found
