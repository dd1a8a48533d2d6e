"""Measured times of layers, which replace modelled ones, and the file form of them.

A CSV file has a row for each measurement, on GPUs that share the layer's matrices alone::

    layer,tensor_parallel,samples,forward_ms,backward_ms
    layer,1,4,12.1,24.9
    layer,2,4,6.9,14.0

The layer is a layer's `name`, the samples are what the GPUs compute at once, and the times are in
milliseconds, with the all-reduces of these GPUs and without anything computed again. The module does not know
what a layer is.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

COLUMNS = ("layer", "tensor_parallel", "samples", "forward_ms", "backward_ms")
"""Version of the file form."""

_LARGEST = 10**9
"""Milliseconds, GPUs or samples beyond which a figure is a mistake."""


class CalibrationError(ValueError):
    """A file of measured times is wrong, or lacks one; the message says what and the remedy in one line."""


class MeasuredTimes(NamedTuple):
    """Of one layer.

    Attributes:
        samples: Of the GPUs that share it.
        forward_ms: Of the forward.
        backward_ms: Of the backward.
    """

    samples: float
    forward_ms: float
    backward_ms: float


@dataclass(frozen=True)
class Calibration:
    """Measured times.

    Attributes:
        times: By layer and number of tensor-parallel GPUs, by ascending samples.
    """

    times: Mapping[str, Mapping[int, tuple[MeasuredTimes, ...]]]

    @classmethod
    def from_csv(cls, path: str | Path) -> Calibration:
        """Read a file; see this module for its form.

        Raises:
            CalibrationError: The file cannot be read or is wrong; the message begins with its path.
        """
        try:
            with Path(path).open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True)
                lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
        except OSError as error:
            raise CalibrationError(
                f"{path}: cannot be read ({error.strerror}); give the path of a CSV file"
            ) from None
        except (UnicodeDecodeError, csv.Error):
            raise CalibrationError(f"{path}: is not CSV text; save it as comma-separated UTF-8") from None
        try:
            return cls(_times(lines))
        except CalibrationError as error:
            raise CalibrationError(f"{path}: {error}") from None

    def at(self, layer: str, tensor_parallel: int, samples: float) -> MeasuredTimes | None:
        """Return the times for a number of samples: linear between measured numbers, in proportion outside.

        Args:
            layer: Its name.
            tensor_parallel: GPUs that share its matrices.
            samples: Samples that the GPUs compute.

        Returns:
            None where the layer was not measured at all.

        Raises:
            CalibrationError: It was, but not with so many GPUs.
        """
        if layer not in self.times:
            return None
        by_degree = self.times[layer]
        if tensor_parallel not in by_degree:
            raise CalibrationError(
                f"tensor_parallel: {layer} was not measured with {tensor_parallel} GPUs but with "
                f"{', '.join(str(degree) for degree in sorted(by_degree))}; measure it, or remove the layer"
            )
        rows = by_degree[tensor_parallel]
        place = bisect_left(rows, samples, key=lambda row: row.samples)
        if place in (0, len(rows)):
            nearest = rows[max(place - 1, 0)]
            return _scaled(nearest, samples)
        low, high = rows[place - 1], rows[place]
        share = (samples - low.samples) / (high.samples - low.samples)
        return MeasuredTimes(
            samples,
            (1 - share) * low.forward_ms + share * high.forward_ms,
            (1 - share) * low.backward_ms + share * high.backward_ms,
        )


def _scaled(row: MeasuredTimes, samples: float) -> MeasuredTimes:
    scale = samples / row.samples
    return MeasuredTimes(samples, scale * row.forward_ms, scale * row.backward_ms)


def _times(lines: list[tuple[int, list[str]]]) -> dict[str, dict[int, tuple[MeasuredTimes, ...]]]:
    header = [cell.strip() for cell in lines[0][1]] if lines else []
    if sorted(header) != sorted(COLUMNS):
        raise CalibrationError(f"has the columns {','.join(header)[:80]!r}; use {','.join(COLUMNS)}")
    if len(lines) == 1:
        raise CalibrationError("has no rows below the header; give one for each measurement")
    found: dict[str, dict[int, dict[float, MeasuredTimes]]] = {}
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            raise CalibrationError(
                f"line {number}: has {len(cells)} cells for {len(header)} columns; give as many"
            )
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        if not row["layer"]:
            raise CalibrationError(f"line {number}, column layer: is missing; give the layer's name")
        degree, samples = (_whole(number, row, column) for column in ("tensor_parallel", "samples"))
        times = MeasuredTimes(samples, *(_ms(number, row, column) for column in COLUMNS[3:]))
        of_degree = found.setdefault(row["layer"], {}).setdefault(degree, {})
        if samples in of_degree:
            raise CalibrationError(
                f"line {number}: {row['layer']} with {samples} samples on {degree} GPUs is twice; keep one"
            )
        of_degree[samples] = times
    return {
        layer: {degree: tuple(sorted(rows.values())) for degree, rows in by_degree.items()}
        for layer, by_degree in found.items()
    }


def _whole(number: int, row: Mapping[str, str], column: str) -> int:
    text = row[column]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise CalibrationError(
            f"line {number}, column {column}: {text!r} is not a whole number of at least 1; give one"
        )
    return int(text)


def _ms(number: int, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not 0 < value < _LARGEST:
        raise CalibrationError(
            f"line {number}, column {column}: {row[column]!r} is not a time above 0; give milliseconds"
        )
    return value
