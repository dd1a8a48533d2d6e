"""Times of a pipeline's ranks, divided among the parts of the model on their stages.

Transformer layers of one stage take equally long, and the embedding and the loss take the rest. The module
does not know where the times come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from placements.trainers.layers import PART_OF_KIND, ModelLayer, ModelLayers
from placements.trainers.layout import EMBEDDING, LOSS, PARTS, LayoutError, PipelineLayout

_ENDS = {EMBEDDING, LOSS}
_SHARE_OF_NOTHING = 1e-3
"""Time of an end for which nothing is left, in times of a layer."""


class RankTimes(NamedTuple):
    """Times of a micro-batch on each rank of a pipeline: of all its forwards, and of all its backwards."""

    layout: PipelineLayout
    forward_ms: tuple[float, ...]
    backward_ms: tuple[float, ...]


def layers_of(ranks: RankTimes) -> ModelLayers:
    """Divide the times of stages or ranks among their parts.

    Raises:
        LayoutError: An embedding and a loss stand together, or there is no layer, so that nothing tells
            their times.

    >>> layout = PipelineLayout(3, ("Ett", "tt", "ttL"))
    >>> found = layers_of(RankTimes(layout, (5.0, 4.0, 6.0), (9.0, 8.0, 12.0)))
    >>> [(each.kind, each.forward_ms) for each in found.layers][:2]
    [('embedding', 1.0), ('layer', 2.0)]
    """
    parts = ranks.layout.of_rank
    if any(EMBEDDING in each and LOSS in each and len(each) > 1 for each in parts):
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
    if any(len(each) > 1 for each in parts):
        is_known = any(each and not _ENDS & {*each} for each in parts)
        layers = "as long" if is_known else "as long, and the embedding or the loss next to nothing"
        lines.append(f"layers of one stage are assumed to take {layers}")
    return ModelLayers(tuple(rows), tuple(lines))


def _divided(groups: Sequence[str], times_ms: Sequence[float]) -> list[tuple[float, float]]:
    """Return the times of a layer and of an end in each group.

    MTP counts as a layer beside one. Layers beside an embedding or a loss are as those of the other groups.
    """
    pairs = list(zip(groups, times_ms, strict=True))
    pure = [time / len(each) for each, time in pairs if each and not _ENDS & {*each}]
    mixed = [time / num for each, time in pairs if (num := sum(part not in _ENDS for part in each))]
    if not mixed:
        raise LayoutError("there is no transformer layer; give stages with layers")
    usual = median(pure) if pure else min(mixed)
    found = []
    for each, time in pairs:
        others = max(1, len(each) - 1)
        layer = min(usual, time / others) if _ENDS & {*each} else time / max(1, len(each))
        end = max(time - layer * (len(each) - 1), _SHARE_OF_NOTHING * usual)
        found.append((round(layer, 6), round(end, 6)))
    return found
