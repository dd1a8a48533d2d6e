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

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from placements.plain_data import Field, csv_rows, in_file, read_csv

COLUMNS = ("layer", "tensor_parallel", "samples", "forward_ms", "backward_ms")
"""Version of the file form."""

_LARGEST = 10**9
"""Milliseconds, GPUs or samples beyond which a figure is a mistake; likewise times below one over it."""


class CalibrationError(ValueError):
    """A file of measured times is wrong, or lacks one; the message says what and the remedy in one line."""


class MeasuredTimes(NamedTuple):
    """Times of one layer.

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
        with in_file(path, CalibrationError):
            return cls(_times(read_csv(path, CalibrationError)))

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


def _times(text: str) -> dict[str, dict[int, tuple[MeasuredTimes, ...]]]:
    found: dict[str, dict[int, dict[float, MeasuredTimes]]] = {}
    for number, row in csv_rows(text, "measurement", CalibrationError, COLUMNS):
        layer = row["layer"].value
        degree, samples = _whole(row["tensor_parallel"]), _whole(row["samples"])
        times = MeasuredTimes(samples, _ms(row["forward_ms"]), _ms(row["backward_ms"]))
        of_degree = found.setdefault(layer, {}).setdefault(degree, {})
        if samples in of_degree:
            raise CalibrationError(
                f"line {number}: {layer} with {samples} samples on {degree} GPUs is twice; keep one"
            )
        of_degree[samples] = times
    return {
        layer: {degree: tuple(sorted(rows.values())) for degree, rows in by_degree.items()}
        for layer, by_degree in found.items()
    }


def _whole(cell: Field) -> int:
    return int(cell.figure("a whole number of at least 1", "give one", 1, _LARGEST, is_whole=True))


def _ms(cell: Field) -> float:
    return cell.figure("a time above 0", "give milliseconds", 1 / _LARGEST, _LARGEST)
