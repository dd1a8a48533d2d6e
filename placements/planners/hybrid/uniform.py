"""Plans as training frameworks are configured: all layers shared alike, equal numbers of layers per stage.

The module does not know costs of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.parallel import ContextSharing, LayerStrategy, Recompute, RecomputedModule
from placements.planners.hybrid.plan import Plan, PlanError, alike


@dataclass(frozen=True)
class Degrees:
    """Degrees of parallelism, by Megatron-LM's names.

    Attributes:
        tensor: GPUs that share each matrix.
        pipeline: Stages.
        data: Groups that each have a share of the samples, and together the optimizer's states (ZeRO-1).
        context: GPUs that share the tokens of a sample.
        expert: GPUs that share the experts, out of the data- and context-parallel ones.
        chunks: Chunks of each stage (virtual pipeline).
        whole_experts: GPUs that share experts are out of the tensor-parallel ones too; for this and the next
            see `placements.models.parallel.LayerStrategy`.
        context_sharing: How context-parallel GPUs attend to each other's tokens.

    Raises:
        PlanError: A degree is not a whole number of at least 1.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    chunks: int = 1
    whole_experts: bool = False
    context_sharing: ContextSharing = "all_to_all"

    def __post_init__(self) -> None:
        """Check every degree."""
        for name in ("tensor", "pipeline", "data", "context", "expert", "chunks"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise PlanError(f"{name}: {value!r} is not a whole number of at least 1; give one")

    @property
    def num_gpus(self) -> int:
        """GPUs of all stages together."""
        return self.tensor * self.context * self.data * self.pipeline


@dataclass(frozen=True)
class Layout:
    """A training configuration of a framework.

    Attributes:
        degrees: Degrees of parallelism.
        micro_batch_size: Samples of a micro-batch of one data-parallel group.
        num_micro_batches: Micro-batches of an iteration.
        zero: Stage of ZeRO.
        recompute: Part of a layer that backwards compute again.
        sequence_parallel: Tensor-parallel GPUs share the tokens of norms too.
        shard_gpus: GPUs that share states with ZeRO, of all those with equal weights; for this, `reshards`
            and `recompute_modules` see `placements.models.parallel.LayerStrategy`.
        recomputed_layers: Layers of each chunk that do so, its first ones after the embedding; None for all.
        chunk_layers: Layers of each chunk in order of the model, the ends too; None for `chunk_sizes`.
    """

    degrees: Degrees
    micro_batch_size: int
    num_micro_batches: int
    zero: int = 1
    recompute: Recompute = "none"
    recomputed_layers: int | None = None
    chunk_layers: tuple[int, ...] | None = None
    sequence_parallel: bool = True
    shard_gpus: int | None = None
    reshards: bool = True
    recompute_modules: tuple[RecomputedModule, ...] = ()

    @property
    def strategy(self) -> LayerStrategy:
        """How the GPUs of a stage share a layer."""
        degrees = self.degrees
        return LayerStrategy(
            degrees.tensor,
            degrees.data,
            self.zero,
            self.recompute,
            "megatron" if degrees.tensor > 1 and self.sequence_parallel else "none",
            degrees.context,
            degrees.expert,
            context=degrees.context_sharing,
            whole_experts=degrees.whole_experts,
            shard_gpus=self.shard_gpus,
            reshards=self.reshards,
            recompute_modules=self.recompute_modules,
        )

    @property
    def plain(self) -> Layout:
        """The layout with no layer recomputed."""
        return replace(self, recompute="none", recomputed_layers=None)

    @property
    def batch(self) -> int:
        """Samples of an iteration."""
        return self.micro_batch_size * self.degrees.data * self.num_micro_batches


def uniform_plan(model: ModelShape, cluster: Cluster, layout: Layout) -> Plan:
    """Return a plan whose layers are all shared alike.

    With several chunks, the layers of a stage are those of as many neighboring chunks: which GPUs have which
    chunk is the layout's and the shape's to say.

    Raises:
        PlanError: There are fewer layers than chunks, or fewer GPUs than the degrees ask for.
    """
    degrees = layout.degrees
    if degrees.num_gpus > cluster.num_gpus:
        raise PlanError(
            f"gpus: tensor, pipeline, data and context parallelism of {degrees.tensor} x {degrees.pipeline} "
            f"x {degrees.data} x {degrees.context} need {degrees.num_gpus} GPUs, not {cluster.num_gpus}; "
            "give as many, or smaller degrees"
        )
    sizes = layout.chunk_layers or chunk_sizes(model, degrees.pipeline * degrees.chunks)
    again, plain, ways = layout.strategy, layout.plain.strategy, list[LayerStrategy]()
    for size in sizes:
        most = size if layout.recomputed_layers is None else layout.recomputed_layers
        count = min(most if ways else most + num_before(model), size)
        ways += [again] * count + [plain] * (size - count)
    shared = [alike(how, layer) for how, layer in zip(ways, model.layers, strict=True)]
    stages = [sum(sizes[i : i + degrees.chunks]) for i in range(0, len(sizes), degrees.chunks)]
    return Plan.of_sizes(model, cluster, stages, shared, layout.batch, layout.num_micro_batches)


def chunk_sizes(model: ModelShape, num_chunks: int) -> list[int]:
    """Return the number of layers of each chunk of a model, in order.

    Layers between embedding and output layer are divided evenly, with the embedding in the first chunk and
    the output layer in the last. Where that cannot be, embedding and output layer count as layers, as for
    Llama 3.1 405B with 126 layers. Where that cannot be either, chunks have one layer more or less, the first
    and the last one less.

    Raises:
        PlanError: There are fewer layers than chunks.
    """
    layers = model.layers
    # Modules that predict further tokens come after the output layer, and stay with it.
    last = next((i for i, layer in enumerate(layers) if isinstance(layer, OutputLayer)), len(layers))
    inner = [i for i, layer in enumerate(layers[:last]) if not is_end(layer)]
    before, after = (inner[0], len(layers) - inner[-1] - 1) if inner else (1, 0)
    count = len(layers) - before - after
    if count % num_chunks == 0:
        sizes = [count // num_chunks] * num_chunks
    else:
        whole, more = divmod(count + 2, num_chunks)
        first = (num_chunks - more) // 2  # the middle chunks have the layers that are over
        sizes = [whole + (first <= i < first + more) for i in range(num_chunks)]
        sizes[0] -= 1
        sizes[-1] -= 1
    if min(sizes) < (num_chunks == 1) or (num_chunks > 2 and min(sizes[1:-1]) < 1):
        fault = f"{count} layers of {model.name} are too few for {num_chunks} chunks"
        raise PlanError(f"stages: {fault}; use fewer")
    sizes[0] += before
    sizes[-1] += after
    return sizes


def num_before(model: ModelShape) -> int:
    """Return the number of layers before the first one that is not an end."""
    return next((i for i, layer in enumerate(model.layers) if not is_end(layer)), 0)


def is_end(layer: object) -> bool:
    """Return whether a layer is an embedding, an output layer or a projection beside one."""
    return isinstance(layer, (EmbeddingLayer, OutputLayer, ProjectionLayer))
