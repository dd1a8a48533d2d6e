"""Times and memory of the layers of a model, in a CSV with a row for each, and from times of ranks.

Where a stage or a rank has several parts, its time is divided: transformer layers of one stage take equally
long, and the embedding and the loss take the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

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
    PipelineLayout,
)

_ENDS = {EMBEDDING, LOSS}
_SHARE_OF_NOTHING = 1e-3
"""Time of an end for which nothing is left, in times of a layer."""

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
        names = [row.layer for row in self.layers]
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
        return "".join(PART_OF_KIND[row.kind] for row in self.layers)

    @property
    def has_memory(self) -> bool:
        """Whether any of them holds memory."""
        return any(row.activation_mib or row.weight_mib for row in self.layers)

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
        return csv_text(columns, ([getattr(row, name) for name in columns] for row in self.layers))


class RankTimes(NamedTuple):
    """Times of a micro-batch on each rank of a pipeline: of all its forwards, and of all its backwards."""

    layout: PipelineLayout
    forward_ms: tuple[float, ...]
    backward_ms: tuple[float, ...]


def read_layers(path: str | Path) -> ModelLayers:
    """Read the layers of a model.

    Raises:
        LayoutError: The file cannot be read or is wrong; one line with its path, the row, the column and the
            remedy.
    """
    with in_file(path, LayoutError):
        rows = csv_records(Path(path), "layer", LayoutError, ModelLayer)
        return ModelLayers(tuple(row for _, row in rows))


def layers_from_ranks(ranks: RankTimes) -> ModelLayers:
    """Divide the times of stages or ranks among their parts.

    Raises:
        LayoutError: An embedding and a loss stand together, or there is no layer, so that nothing tells
            their times.

    >>> layout = PipelineLayout(3, ("Ett", "tt", "ttL"))
    >>> times = layers_from_ranks(RankTimes(layout, (5.0, 4.0, 6.0), (9.0, 8.0, 12.0)))
    >>> [(layer.kind, layer.forward_ms) for layer in times.layers][:2]
    [('embedding', 1.0), ('layer', 2.0)]
    """
    parts = ranks.layout.of_rank
    if any(EMBEDDING in part and LOSS in part and len(part) > 1 for part in parts):
        raise LayoutError(
            "the embedding and the loss are in one time with the layers; measure two stages or more"
        )
    forward, backward = (_divided(parts, times_ms) for times_ms in (ranks.forward_ms, ranks.backward_ms))
    rows = []
    for i, stage in enumerate(ranks.layout.numbered):
        rank = i % ranks.layout.num_devices
        for part, number in stage:
            is_end, kind = part in _ENDS, PARTS[part]
            name = kind if is_end else f"{kind}s.{number}"
            rows.append(ModelLayer(name, kind, forward[rank][is_end], backward[rank][is_end], 0.0, 0.0))
    rows.sort(key=lambda row: list(PART_OF_KIND).index(row.kind))
    lines = ["memory is not in the file: 0 MiB; fill it into layers.csv"]
    if any(len(part) > 1 for part in parts):
        is_known = any(part and not _ENDS & {*part} for part in parts)
        layers = "as long" if is_known else "as long, and the embedding or the loss next to nothing"
        lines.append(f"layers of one stage are assumed to take {layers}")
    return ModelLayers(tuple(rows), tuple(lines))


def _divided(groups: Sequence[str], times_ms: Sequence[float]) -> list[tuple[float, float]]:
    """Return the times of a layer and of an end in each group.

    MTP counts as a layer beside one. Layers beside an embedding or a loss are as those of the other groups.
    """
    pairs = list(zip(groups, times_ms, strict=True))
    pure = [time / len(group) for group, time in pairs if group and not _ENDS & {*group}]
    mixed = [time / num for group, time in pairs if (num := sum(part not in _ENDS for part in group))]
    if not mixed:
        raise LayoutError("there is no transformer layer; give stages with layers")
    usual = median(pure) if pure else min(mixed)
    divided = []
    for group, time in pairs:
        others = max(1, len(group) - 1)
        layer = min(usual, time / others) if _ENDS & {*group} else time / max(1, len(group))
        end = max(time - layer * (len(group) - 1), _SHARE_OF_NOTHING * usual)
        divided.append((round(layer, 6), round(end, 6)))
    return divided
