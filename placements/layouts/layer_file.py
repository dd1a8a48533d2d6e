"""Times and memory of the layers of a model, as CSV: one row for each, from the embedding to the loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.layouts.layout import LAYER, MTP, PARTS, LayoutError, PartKind

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

    Raises:
        LayoutError: They are others, or in another order; or a name is there twice.
    """

    layers: tuple[ModelLayer, ...]

    def __post_init__(self) -> None:
        """Check the order of the parts, and their names."""
        names = [each.layer for each in self.layers]
        for row, name in enumerate(names):
            if name in names[:row]:
                raise LayoutError(
                    f"row {row + 1}, layer: {name!r} is there twice; give each a name of its own"
                )
        kinds = [each.kind for each in self.layers]
        wanted = sorted(kinds, key=("embedding", "layer", "mtp", "loss").index)
        for row, (kind, expected) in enumerate(zip(kinds, wanted, strict=True)):
            if kind != expected:
                raise LayoutError(
                    f"row {row + 1}, kind: {kind!r} stands where {expected!r} should; order the rows: "
                    "embedding, layers, mtp, loss"
                )
        for kind in ("embedding", "loss"):
            if kinds.count(kind) != 1:
                raise LayoutError(f"kind: there are {kinds.count(kind)} rows of {kind!r}; give exactly one")
        if "layer" not in kinds:
            raise LayoutError("kind: there are no rows of 'layer'; give one for each transformer layer")

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


def read_layers(path: str | Path) -> ModelLayers:
    """Read the layers of a model.

    Raises:
        LayoutError: The file cannot be read or is wrong; one line with its path, the row, the column and the
            remedy.
    """
    with in_file(path, LayoutError):
        rows = csv_records(Path(path), "layer", LayoutError, ModelLayer)
        return ModelLayers(tuple(row for _, row in rows))
