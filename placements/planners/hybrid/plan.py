"""A plan: the layers and GPUs of each stage, the strategy of each layer, and the number of micro-batches.

Any planner may make it, for any model and cluster. The module does not know costs of layers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from placements.cluster import Cluster, DeviceGroup
from placements.hardware import Gpu
from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer


class PlanError(ValueError):
    """A plan is wrong; the message names the field of the file, the value and the remedy in one line."""


class UnsuitableShapeError(PlanError):
    """A model has no plan of a shape; `reason` gives the shape's need and the remedy, without its name."""

    def __init__(self, shape: str, reason: str) -> None:
        super().__init__(f"shapes: {shape} {reason}")
        self.reason = reason


class LayerPiece(NamedTuple):
    """Consecutive layers of one stage that become a forward and a backward block; at least one."""

    stage: int
    layers: range


@dataclass(frozen=True)
class StagePlan:
    """One stage of a plan: consecutive GPUs and layers, and how the GPUs share each layer.

    The embedding and the output layer are among the layers.
    """

    gpus: range
    layers: range
    strategies: tuple[LayerStrategy, ...]

    def __post_init__(self) -> None:
        """Check that each layer is shared by all GPUs of the stage."""
        if not self.gpus or not self.layers:
            raise PlanError("stages: a stage has no GPU or no layer; give each at least one")
        if len(self.strategies) != len(self.layers):
            fault = f"{len(self.strategies)} strategies for {len(self.layers)} layers"
            raise PlanError(f"stages: {fault}; give one for each")
        for i, strategy in zip(self.layers, self.strategies, strict=True):
            if strategy.num_gpus != len(self.gpus):
                raise PlanError(
                    f"stages: layer {i} is shared by {strategy.num_gpus} GPUs of the {len(self.gpus)} of its "
                    "stage; make them equal"
                )


@dataclass(frozen=True)
class Plan:
    """A model on a cluster.

    Attributes:
        stages: In order of the layers; all layers, and no GPU twice.
        global_batch_size: Samples of an iteration.
        num_micro_batches: Micro-batches of an iteration, all of the same size.
        output_joins: An output layer is one piece with the layers before it also where these are recomputed,
            so that each piece has such layers.

    Raises:
        PlanError: A rule is broken.
    """

    model: ModelShape
    cluster: Cluster
    stages: tuple[StagePlan, ...]
    global_batch_size: int
    num_micro_batches: int
    output_joins: bool = False

    @classmethod
    def of_sizes(
        cls,
        model: ModelShape,
        cluster: Cluster,
        sizes: Sequence[int],
        strategies: Sequence[LayerStrategy],
        global_batch_size: int,
        num_micro_batches: int,
    ) -> Plan:
        """Return a plan whose stages have `sizes` layers, each on the next GPUs, as many as share a layer."""
        ends, gpus = list(itertools.accumulate(sizes, initial=0)), strategies[0].num_gpus
        stages = tuple(
            StagePlan(range(i * gpus, (i + 1) * gpus), range(first, end), tuple(strategies[first:end]))
            for i, (first, end) in enumerate(itertools.pairwise(ends))
        )
        return cls(model, cluster, stages, global_batch_size, num_micro_batches)

    def __post_init__(self) -> None:
        """Check layers, GPUs and samples."""
        if [i for stage in self.stages for i in stage.layers] != list(range(len(self.model.layers))):
            raise PlanError("stages: do not have all layers of the model in order; give each layer once")
        used = [gpu for stage in self.stages for gpu in stage.gpus]
        if len(set(used)) < len(used) or not 0 <= min(used) <= max(used) < self.cluster.num_gpus:
            fault = f"use a GPU twice, or one that is not among the {self.cluster.num_gpus} of the cluster"
            raise PlanError(f"stages: {fault}; use each once")
        number = self.num_micro_batches
        if number < 1 or self.global_batch_size % number:
            fault = f"{number} does not divide the batch of {self.global_batch_size}"
            raise PlanError(f"num_micro_batches: {fault}; give a divisor")

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @property
    def num_gpus(self) -> int:
        """GPUs that are used; others of the cluster stay idle."""
        return sum(len(stage.gpus) for stage in self.stages)

    @property
    def micro_batch_size(self) -> int:
        """Samples of one micro-batch, of all data-parallel groups of a stage together."""
        return self.global_batch_size // self.num_micro_batches

    @property
    def strategies(self) -> tuple[LayerStrategy, ...]:
        """Strategy of every layer, in order."""
        return tuple(strategy for stage in self.stages for strategy in stage.strategies)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Every layer of the model; a layer tied to an embedding on other GPUs has a table of its own."""
        layers, parts = self.model.layers, (stage.layers for stage in self.stages)
        return tuple(itertools.chain(*(layers_of_stage(layers, part.start, part.stop) for part in parts)))

    @property
    def common(self) -> LayerStrategy:
        """The most frequent strategy of layers with experts, else of layers between the ends, else of all."""
        pairs = list(zip(self.model.layers, self.strategies, strict=True))
        routed = [how for layer, how in pairs if getattr(layer, "num_experts", 1) > 1]
        inner = [how for layer, how in pairs if not is_vocabulary(layer)]
        return Counter(routed or inner or self.strategies).most_common(1)[0][0]

    @property
    def is_uniform(self) -> bool:
        """All layers of all stages are shared alike; see `alike`."""
        pairs = zip(self.model.layers, self.strategies, strict=True)
        return all(strategy == alike(self.common, layer) for layer, strategy in pairs)

    def group(self, stage: int) -> DeviceGroup:
        """Return the GPUs of a stage."""
        gpus = self.stages[stage].gpus
        return self.cluster.group(gpus.start, len(gpus))

    @property
    def stage_gpus(self) -> list[Counter[Gpu]]:
        """Number of GPUs of each kind, for each stage."""
        return [Counter(self.group(stage).gpus) for stage in range(self.num_stages)]

    @cached_property
    def pieces(self) -> tuple[LayerPiece, ...]:
        """The layers in order, cut between stages and where the layout or recomputation changes."""
        return tuple(
            LayerPiece(number, piece)
            for number, stage in enumerate(self.stages)
            for piece in self.pieces_of(stage.layers)
        )

    def pieces_of(self, layers: range) -> Iterator[range]:
        """Yield consecutive layers that have one layout and are all recomputed or all not.

        An embedding joins the layers after it, which takes no more memory than apart. An output layer joins
        those before it unless only they are recomputed: its logits would then be held while they are.
        """
        model, strategies = self.model.layers, self.strategies
        ways = {i: (layout_of(strategies[i]), strategies[i].recompute != "none") for i in layers}
        pieces = [list(members) for _, members in itertools.groupby(layers, key=ways.get)]
        if len(pieces) > 1 and all(is_embedding(model[i]) for i in pieces[0]):
            pieces[:2] = [pieces[0] + pieces[1]]
        if len(pieces) > 1 and all(_is_output(model[i]) for i in pieces[-1]):
            before = strategies[pieces[-2][-1]].recompute
            if self.output_joins or before == "none" == strategies[pieces[-1][0]].recompute:
                pieces[-2:] = [pieces[-2] + pieces[-1]]
        for piece in pieces:
            yield range(piece[0], piece[-1] + 1)

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Transformer layers of each stage."""
        return tuple(len(self.inner_layers(stage.layers)) for stage in self.stages)

    @property
    def block_layers(self) -> dict[str, int]:
        """Transformer layers of each piece, by the name of its forward block, in order."""
        return {f"F{i}": len(self.inner_layers(piece.layers)) for i, piece in enumerate(self.pieces)}

    @property
    def recomputed_blocks(self) -> tuple[str, ...]:
        """The forward blocks whose first transformer layer, or first of any, is computed again."""
        firsts = ((*self.inner_layers(piece.layers), piece.layers.start)[0] for piece in self.pieces)
        return tuple(f"F{i}" for i, first in enumerate(firsts) if self.strategies[first].recompute == "full")

    def inner_layers(self, layers: range | None = None) -> list[int]:
        """Return the indices of transformer layers, also of measured ones, among some or all layers."""
        model = self.model.layers
        indices = range(len(model)) if layers is None else layers
        is_block = [getattr(layer, "role", "") == "block" for layer in model]
        return [i for i in indices if is_block[i] or isinstance(model[i], TransformerLayer)]

    def runs(self, layers: Iterable[int]) -> Iterator[tuple[Layer, LayerStrategy, int]]:
        """Yield the runs of equal layers with equal strategies among some layers, with their lengths."""
        pairs = ((self.layers[i], self.strategies[i]) for i in layers)
        for (layer, strategy), equal in itertools.groupby(pairs):
            yield layer, strategy, len(list(equal))


def alike(strategy: LayerStrategy, layer: Layer) -> LayerStrategy:
    """Return the strategy of one layer in a model whose layers all have `strategy`.

    Embeddings and output layers are not recomputed, and only layers with experts share these.
    """
    if is_vocabulary(layer):
        strategy = replace(strategy, recompute="none")
    if getattr(layer, "num_experts", 1) > 1:
        return strategy
    return replace(strategy, expert_parallel=1, whole_experts=False)


def layers_of_stage(layers: Sequence[Layer], first: int, end: int) -> tuple[Layer, ...]:
    """Return the layers from the first until before the end as one stage has them.

    Where the embedding that layers are tied to is outside the stage, the first of them has a table of its own
    there, to which the others are tied. A module of multi-token prediction looks tokens up too: behind an
    output layer with its own table, its output layer stands for the second table.
    """
    chosen = list(layers[first:end])
    for i, layer in enumerate(chosen):
        if isinstance(layer, (EmbeddingLayer, OutputLayer)):
            chosen[i] = layer.apart
            if layer.tied or isinstance(layer, EmbeddingLayer):
                break
    return tuple(chosen)


def is_vocabulary(layer: Layer) -> bool:
    """Return whether a layer is an embedding or an output layer, or was measured as one."""
    return is_embedding(layer) or _is_output(layer)


def is_embedding(layer: Layer) -> bool:
    """Return whether a layer is an embedding, or was measured as one."""
    return isinstance(layer, EmbeddingLayer) or getattr(layer, "role", "") == "embedding"


def _is_output(layer: Layer) -> bool:
    return isinstance(layer, OutputLayer) or getattr(layer, "role", "") == "head"


def layout_of(strategy: LayerStrategy) -> tuple[object, ...]:
    """Return the layout of a boundary tensor on the GPUs; a change of layout needs an exchange."""
    return strategy.tensor_parallel, strategy.context_parallel, strategy.sequence, strategy.tensor_innermost
