"""Times and memory of the layers of a model, in a CSV with a row for each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records, keys_of
from placements.forms.texts import csv_text
from placements.trainers.layout import (
    EMBEDDING,
    LAYER,
    LOSS,
    MTP,
    PARTS,
    LayoutError,
    PartKind,
)

PART_OF_KIND = {kind: letter for letter, kind in PARTS.items()}
"""Letters of the parts by their kinds."""


@dataclass(frozen=True)
class ModelLayer:
    """A part of a model, for one micro-batch on one device."""

    layer: Annotated[str, Meaning("a name of its own")]
    kind: Annotated[PartKind, Meaning("what it is")]
    forward_ms: Annotated[float, Meaning("time of its forward", "ms", above=0)]
    backward_ms: Annotated[float, Meaning("time of its backward", "ms", above=0)]
    activation_mib: Annotated[float, Meaning("held from its forward to its backward", "MiB", min=0)]
    weight_mib: Annotated[float, Meaning("held all the time: weights, gradients, optimizer", "MiB", min=0)]


@dataclass(frozen=True)
class ModelLayers:
    """The parts of a model in their order: an embedding, layers, perhaps MTP, the loss.

    Attributes:
        layers: Times and memory of each.
        assumptions: How they were found, a line each; none where they are of a CSV.

    Raises:
        LayoutError: They are others, or in another order; or a name is there twice.
    """

    layers: tuple[ModelLayer, ...]
    assumptions: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check the order of the parts, and their names."""
        names = [each.layer for each in self.layers]
        for row, name in enumerate(names):
            if name in names[:row]:
                raise LayoutError(
                    f"row {row + 1}, layer: {name!r} is there twice; give each a name of its own"
                )
        if not re.fullmatch(f"{EMBEDDING}{LAYER}+{MTP}*{LOSS}", self.parts):
            raise LayoutError(
                "kind: the rows are not an embedding, then layers, perhaps mtp, and then a loss; give them so"
            )

    @cached_property
    def parts(self) -> str:
        """Their letters in order."""
        return "".join(PART_OF_KIND[each.kind] for each in self.layers)

    @property
    def has_memory(self) -> bool:
        """Whether any of them holds memory."""
        return any(each.activation_mib or each.weight_mib for each in self.layers)

    @property
    def num_layers(self) -> int:
        """Transformer layers."""
        return self.parts.count(LAYER)

    @property
    def num_mtp(self) -> int:
        """Layers of MTP."""
        return self.parts.count(MTP)

    def to_csv(self) -> str:
        """Return the CSV that `read_layers` reads."""
        columns = keys_of(ModelLayer)
        return csv_text(columns, ([getattr(each, name) for name in columns] for each in self.layers))


def read_layers(path: str | Path) -> ModelLayers:
    """Read the layers of a model.

    Raises:
        LayoutError: The file cannot be read or is wrong; one line with its path, the row, the column and the
            remedy.
    """
    with in_file(path, LayoutError):
        rows = csv_records(Path(path), "layer", LayoutError, ModelLayer)
        return ModelLayers(tuple(row for _, row in rows))
