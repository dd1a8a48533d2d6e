"""A model as runs of equal layers, from its embedding to its output layer, and branches that join it.

The module knows shapes alone: no GPU, no stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, repeat

from placements.block import PlacementError
from placements.models.end_layers import EmbeddingLayer
from placements.models.layers import Layer, Precision


@dataclass(frozen=True)
class ModelShape:
    """A model.

    Attributes:
        name: What it is known by.
        runs: How many of which layer, in order.
        precision: What it is trained with.
        branches: Models without an output layer whose last outputs are the input of the first run, as the
            image's and the text's encoder in Flava; their runs come before. Empty for a chain.

    Raises:
        PlacementError: There is no layer, or a count is not at least 1.
    """

    name: str
    runs: tuple[tuple[int, Layer], ...]
    precision: Precision
    branches: tuple[ModelShape, ...] = ()

    def __post_init__(self) -> None:
        """Check the counts."""
        if not self.runs:
            raise PlacementError(f"runs: {self.name} has no layers; give at least one")
        for i, (count, _) in enumerate(self.runs):
            if type(count) is not int or count < 1:
                raise PlacementError(f"runs[{i}]: {count!r} is not at least 1 layer; give a whole number")

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Every layer of the chain in order, without those of branches."""
        return tuple(chain.from_iterable(repeat(layer, count) for count, layer in self.runs))

    @property
    def chained(self) -> ModelShape:
        """The same with its branches one after the other before the rest; itself for a chain."""
        if not self.branches:
            return self
        runs = [run for branch in self.branches for run in branch.chained.runs]
        return ModelShape(self.name, (*runs, *self.runs), self.precision)

    @property
    def num_parameters(self) -> int:
        """Parameters of all layers and branches; tied tables counted once."""
        own = sum(count * layer.num_parameters for count, layer in self.runs)
        return own + sum(branch.num_parameters for branch in self.branches)

    @property
    def num_tokens(self) -> int:
        """Tokens of one sample that its embeddings look up; 0 where there are none, as of images."""
        own = sum(
            count * layer.sequence_length for count, layer in self.runs if isinstance(layer, EmbeddingLayer)
        )
        return own + sum(branch.num_tokens for branch in self.branches)

    @property
    def kept_bytes(self) -> float:
        """Bytes that one sample keeps from forward to backward on one GPU, with nothing recomputed."""
        own = sum(count * sum(layer.kept(self.precision, 1)) for count, layer in self.runs)
        return own + sum(branch.kept_bytes for branch in self.branches)

    @property
    def forward_flops(self) -> float:
        """Operations of one sample's forward."""
        own = sum(count * layer.forward_flops(1) for count, layer in self.runs)
        return own + sum(branch.forward_flops for branch in self.branches)
