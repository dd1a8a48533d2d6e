"""Measured times of layers, which replace modelled ones, and the file form of them.

A CSV file has a row for each measurement, on GPUs that share the layer's matrices alone::

    layer,tensor_parallel,samples,forward_ms,backward_ms
    layer,1,4,12.1,24.9
    layer,2,4,6.9,14.0

The module does not know what a layer is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

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

    times: Mapping[str, Mapping[int, Sequence[LayerTimesRow]]]

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
        for by_degree in found.values():
            for rows in by_degree.values():
                rows.sort(key=lambda row: row.samples)
        return cls(found)

    def at(self, layer: str, tensor_parallel: int, samples: float) -> tuple[float, float] | None:
        """Return ms of both passes: linear between measured numbers of samples, in proportion outside.

        Returns:
            None where the layer was not measured at all.

        Raises:
            CalibrationError: It was, but not with so many GPUs that share its matrices.
        """
        if layer not in self.times:
            return None
        by_degree = self.times[layer]
        if tensor_parallel not in by_degree:
            raise CalibrationError(
                f"tensor_parallel: {layer} was not measured with {tensor_parallel} GPUs but with "
                f"{', '.join(map(str, sorted(by_degree)))}; measure it, or remove the layer"
            )
        rows = by_degree[tensor_parallel]
        numbers = [row.samples for row in rows]
        inside = min(max(samples, numbers[0]), numbers[-1])
        forward_ms, backward_ms = (
            samples / inside * float(np.interp(inside, numbers, [getattr(row, name) for row in rows]))
            for name in ("forward_ms", "backward_ms")
        )
        return forward_ms, backward_ms
