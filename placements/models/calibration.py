"""Measured times of layers, which replace modelled ones, and the file form of them.

A CSV file has a row for each measurement, on GPUs that share the layer's matrices alone::

    layer,tensor_parallel,samples,forward_ms,backward_ms
    layer,1,4,12.1,24.9
    layer,2,4,6.9,14.0

The module does not know what a layer is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from placements.forms.meaning import Meaning
from placements.forms.tables import csv_records


class CalibrationError(ValueError):
    """A file of measured times is wrong, or lacks one; the message says what and the remedy in one line."""


@dataclass(frozen=True)
class LayerTimesRow:
    """A row of the file: a measurement, without anything computed again."""

    layer: Annotated[str, Meaning("name of a layer of the model")]
    tensor_parallel: Annotated[int, Meaning("GPUs that share its matrices", min=1)]
    samples: Annotated[int, Meaning("samples that these GPUs compute at once", min=1)]
    forward_ms: Annotated[float, Meaning("forward, with the all-reduces of these GPUs", "ms", above=0)]
    backward_ms: Annotated[float, Meaning("backward, likewise", "ms", above=0)]


@dataclass(frozen=True)
class Calibration:
    """Measured times.

    Attributes:
        times: By layer and number of tensor-parallel GPUs, by ascending samples.
    """

    times: Mapping[str, Mapping[int, tuple[LayerTimesRow, ...]]]

    @classmethod
    def from_csv(cls, path: str | Path) -> Calibration:
        """Read a file; see this module for its form.

        Raises:
            CalibrationError: The file cannot be read or is wrong; the message begins with its path.
        """
        once = ("layer", "tensor_parallel", "samples")
        found: dict[str, dict[int, list[LayerTimesRow]]] = {}
        for _, row in csv_records(Path(path), "measurement", CalibrationError, LayerTimesRow, once=once):
            found.setdefault(row.layer, {}).setdefault(row.tensor_parallel, []).append(row)
        return cls(
            {
                layer: {
                    degree: tuple(sorted(rows, key=lambda row: row.samples))
                    for degree, rows in by_degree.items()
                }
                for layer, by_degree in found.items()
            }
        )

    def at(self, layer: str, tensor_parallel: int, samples: float) -> tuple[float, float] | None:
        """Return ms of both passes: linear between measured numbers of samples, in proportion outside.

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
            scale = samples / nearest.samples
            return scale * nearest.forward_ms, scale * nearest.backward_ms
        low, high = rows[place - 1], rows[place]
        share = (samples - low.samples) / (high.samples - low.samples)
        return (
            (1 - share) * low.forward_ms + share * high.forward_ms,
            (1 - share) * low.backward_ms + share * high.backward_ms,
        )
