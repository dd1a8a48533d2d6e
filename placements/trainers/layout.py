"""A layout: the parts of a model on each virtual stage of each pipeline rank.

The module knows no framework, and no costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from placements.planners.hybrid.plan import PlanError

EMBEDDING, LAYER, MTP, LOSS = "E", "t", "m", "L"
"""Letters of the parts: embedding, transformer layer, layer of multi-token prediction (MTP), loss."""

PartKind = Literal["embedding", "layer", "mtp", "loss"]
"""Kind of a model's part."""

PARTS: Mapping[str, PartKind] = {EMBEDDING: "embedding", LAYER: "layer", MTP: "mtp", LOSS: "loss"}
"""Kinds of the parts by their letters, in the order of a model."""


class LayoutError(PlanError):
    """A layout is wrong, or cannot be said in a framework's terms; one line with the place and the remedy."""


@dataclass(frozen=True)
class PipelineLayout:
    """The parts of a model on virtual stages; stage i stands on device i modulo the number of devices.

    Attributes:
        num_devices: Pipeline ranks.
        stages: Parts of each virtual stage, a letter each, in the order of the model.

    Raises:
        LayoutError: The devices do not divide the stages, or a letter is unknown.

    >>> PipelineLayout(2, ("Et", "tt", "tt", "L")).num_chunks
    2
    """

    num_devices: int
    stages: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the letters, and that the ranks divide the stages."""
        if self.num_devices < 1 or not self.stages or len(self.stages) % self.num_devices:
            raise LayoutError(
                f"layout: {len(self.stages)} stages are no multiple of {self.num_devices} pipeline ranks; "
                "change either"
            )
        for letter in sorted(set(self.parts) - set(PARTS)):
            raise LayoutError(f"layout: {letter!r} is no part of a model; use {', '.join(PARTS)}")

    @property
    def num_chunks(self) -> int:
        """Virtual stages of each device."""
        return len(self.stages) // self.num_devices

    @property
    def parts(self) -> str:
        """All parts in the order of the model."""
        return "".join(self.stages)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of parts of each stage."""
        return tuple(map(len, self.stages))

    @property
    def of_rank(self) -> tuple[str, ...]:
        """Parts of each device, all of its stages together."""
        return tuple("".join(self.stages[rank :: self.num_devices]) for rank in range(self.num_devices))

    @property
    def num_layers(self) -> int:
        """Number of transformer layers, without layers of MTP."""
        return self.parts.count(LAYER)

    @property
    def num_mtp(self) -> int:
        """Layers of MTP."""
        return self.parts.count(MTP)

    @property
    def numbered(self) -> Iterator[list[tuple[str, int]]]:
        """Parts of each stage, each with its number among the parts of its kind."""
        seen = Counter[str]()
        for stage in self.stages:
            yield [(part, seen[part] + stage[:i].count(part)) for i, part in enumerate(stage)]
            seen.update(stage)


def layout_of_sizes(num_devices: int, parts: str, sizes: tuple[int, ...]) -> PipelineLayout:
    """Return a layout whose stages have the given numbers of parts.

    >>> layout_of_sizes(2, "EtttL", (3, 2)).stages
    ('Ett', 'tL')
    """
    ends = pairwise(accumulate(sizes, initial=0))
    return PipelineLayout(num_devices, tuple(parts[first:end] for first, end in ends))


def even_layout(num_devices: int, num_chunks: int, parts: str) -> PipelineLayout | None:
    """Return the default layout of frameworks: equal numbers of layers per stage, other parts on the ends.

    None where the stages do not divide the layers of the model, whose ends may be missing.
    """
    size, left = divmod(parts.count(LAYER), num_devices * num_chunks)
    if left:
        return None
    stages = [LAYER * size] * (num_devices * num_chunks)
    stages[0] = EMBEDDING * parts.count(EMBEDDING) + stages[0]
    stages[-1] += MTP * parts.count(MTP) + LOSS * parts.count(LOSS)
    return PipelineLayout(num_devices, tuple(stages))
