"""A model as runs of equal layers, from its embedding to its output layer, with encoder branches.

The module knows shapes alone: no GPU, no stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from placements.block import PlacementError
from placements.models.end_layers import EmbeddingLayer
from placements.models.layers import Layer, Precision


@dataclass(frozen=True, kw_only=True)
class ModelDetails:
    """Facts of a model that trainers need and costs do not; None where a fact is not known.

    Attributes:
        rope_base: Base of rotary positions; None where there are none.
        rope_share: Share of a head's width that is rotated.
        norm_epsilon: Added to the variance under the root of a norm.
        qkv_biases: Queries, keys and values have biases where other matrices have none.
        gpt_oss_parts: Heads have sinks, all matrices biases, and gates are clamped, as in gpt-oss.
        router_scores: Function of a router's scores, ``softmax`` or ``sigmoid``.
        scores_before_choice: The scores' function is over all experts, not over the chosen ones.
        router_groups: Groups of experts, of which a token first chooses `chosen_groups`.
        router_scaling: Factor on the weights of the chosen experts.
        router_biases: Biases of scores keep experts busy (DeepSeek-V3, Sec. 2.1.2); `balance_loss` is the
            factor of an auxiliary loss that does.
    """

    rope_base: float | None = None
    rope_share: float = 1.0
    norm_epsilon: float | None = None
    qkv_biases: bool = False
    gpt_oss_parts: bool = False
    router_scores: str | None = None
    scores_before_choice: bool = False
    router_groups: int | None = None
    chosen_groups: int | None = None
    router_scaling: float | None = None
    router_biases: bool = False
    balance_loss: float | None = None


@dataclass(frozen=True)
class ModelShape:
    """A model.

    Attributes:
        runs: (number, layer) of each run of equal layers, in order; a `PlacementError` is raised without any.
        branches: Models without an output layer whose last outputs are the input of the first run, as the
            image's and the text's encoder in Flava; their runs come before. Empty for a chain.
        details: Facts for trainers alone; models that differ only in these are equal.
    """

    name: str
    runs: tuple[tuple[int, Layer], ...]
    precision: Precision
    branches: tuple[ModelShape, ...] = ()
    details: ModelDetails = field(default=ModelDetails(), compare=False)

    def __post_init__(self) -> None:
        """Check that the model has at least one layer."""
        if not self.runs:
            raise PlacementError(f"runs: {self.name} has no layers; give at least one")

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Every layer of the chain in order, without the layers of branches."""
        return tuple(layer for count, layer in self.runs for _ in range(count))

    @property
    def chained(self) -> ModelShape:
        """The model as one chain: its branches one after the other, then the rest; itself for a chain."""
        if not self.branches:
            return self
        runs = [run for branch in self.branches for run in branch.chained.runs]
        return ModelShape(self.name, (*runs, *self.runs), self.precision)

    @property
    def num_parameters(self) -> int:
        """Parameters of all layers and branches; tied tables counted once."""
        return sum(count * layer.num_parameters for count, layer in self.chained.runs)

    @property
    def num_tokens(self) -> int:
        """Tokens of one sample that the embeddings look up; 0 without embeddings, as in image models."""
        return sum(
            n * layer.sequence_length for n, layer in self.chained.runs if isinstance(layer, EmbeddingLayer)
        )

    @property
    def kept_bytes(self) -> float:
        """Bytes that one sample keeps from forward to backward on one GPU, with nothing recomputed."""
        return sum(count * sum(layer.kept(self.precision, 1)) for count, layer in self.chained.runs)
