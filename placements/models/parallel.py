"""How the GPUs of a stage share a layer, and the record of a layer's cost.

The module does not know a layer, nor how fast a GPU is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from placements.block import PlacementError

Recompute = Literal["none", "selective", "full"]
"""Part that a backward computes again: nothing, the attention's core, or the forward from its input."""

ContextSharing = Literal["ring", "all_to_all"]
"""Way in which `context_parallel` GPUs attend to each other's tokens; see `LayerStrategy`."""

RecomputedModule = Literal[
    "core_attn", "layernorm", "mlp", "mla_up_proj", "moe", "moe_act", "shared_experts", "operators"
]
"""Part of a layer that selective recomputation computes again, by Megatron-LM's names; ``operators`` is
torchtitan's: all but every second product and the attention's core."""

SequenceSharing = Literal["none", "megatron", "ulysses"]
"""Tokens that `tensor_parallel` GPUs share beside the matrices, or in their place; see `LayerStrategy`."""


class SharingLevel(NamedTuple):
    """GPUs that share something: their number, and their distance (stride) in GPU numbers."""

    degree: int
    stride: int


@dataclass(frozen=True)
class LayerStrategy:
    """How the GPUs of a stage share a layer.

    Attributes:
        tensor_parallel: GPUs that share the layer's matrices, t.
        data_parallel: Data-parallel groups, d, each with its share of the samples.
        zero: States held once for all groups: 0 none; 1 the optimizer's states; 2 also gradients
            where there is one micro-batch; 3 everything (ZeRO's stages; Galvatron-BMW's SDP).
        recompute: Part of the layer that the backward computes again.
        sequence: ``megatron``: the t GPUs also share the tokens of norms and dropout, so that all-reduces
            become all-gathers and reduce-scatters (Korthikanti et al., 2022, Sec. 4.2.2). ``ulysses``: they
            share the tokens alone, each with all weights, and exchange heads for tokens around the attention
            (DeepSpeed Ulysses, Jacobs et al., 2023, Sec. 3).
        context_parallel: GPUs that share the tokens of a sample, c.
        expert_parallel: GPUs that share the experts, out of those that otherwise hold the same weights.
        tensor_innermost: Tensor-parallel GPUs are neighbors; otherwise those that share weights are.
        context: ``ring``: context-parallel GPUs send keys and values around (Ring Attention, Liu et al.,
            2023); ``all_to_all``: they exchange heads for tokens around the attention, as with ``ulysses``.
        whole_experts: Each expert is whole on a GPU, and tensor-parallel GPUs, which share tokens, also share
            the experts (Megatron-Core's expert tensor parallelism of 1; Liu et al., 2025, MoE Parallel
            Folding). Otherwise they share each expert's matrices.
        shard_gpus: GPUs over which ZeRO shares states, neighbours among those of equal weights; each next so
            many have a copy (FSDP's hybrid sharding). None for all of equal weights.
        reshards: With ZeRO-3 weights are dropped after the forward and gathered again for the backward;
            otherwise they stay whole until the last backward (FSDP's ``SHARD_GRAD_OP``).
        recompute_modules: Parts that ``selective`` computes again; empty for the attention's core.

    Raises:
        PlacementError: A field is out of its range.
    """

    tensor_parallel: int = 1
    data_parallel: int = 1
    zero: int = 0
    recompute: Recompute = "none"
    sequence: SequenceSharing = "none"
    context_parallel: int = 1
    expert_parallel: int = 1
    tensor_innermost: bool = True
    context: ContextSharing = "ring"
    whole_experts: bool = False
    shard_gpus: int | None = None
    reshards: bool = True
    recompute_modules: tuple[RecomputedModule, ...] = ()

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("tensor_parallel", "data_parallel", "context_parallel", "expert_parallel"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
        if type(self.zero) is not int or not 0 <= self.zero <= 3:
            raise PlacementError(f"zero: {self.zero!r} is not a stage of ZeRO; use 0, 1, 2 or 3")
        if self.whole_experts and (self.sequence != "megatron" or not self.tensor_innermost):
            fault = "tensor-parallel GPUs have no tokens of their own, or are not next to each other"
            raise PlacementError(f"whole_experts: {fault}; use sequence=megatron and tensor_innermost")
        for module in self.recompute_modules:
            if module not in (known := get_args(RecomputedModule)):
                fault = f"{module!r} is not known"
                raise PlacementError(f"recompute_modules: {fault}; use some of {', '.join(known)}")
        shard, equal = self.shard_gpus, self.num_gpus // self.matrix_parallel
        if shard is not None and (type(shard) is not int or shard < 1 or equal % shard):
            fault = f"{shard!r} does not divide the {equal} GPUs that hold the same weights"
            raise PlacementError(f"shard_gpus: {fault}; use a divisor")
        e, copies = self.expert_parallel, self._expert_gpus.degree
        if copies % e:
            fault = f"{e} does not divide the {copies} GPUs that hold the same weights"
            raise PlacementError(f"expert_parallel: {fault}; use a divisor")

    @property
    def num_gpus(self) -> int:
        """Number of GPUs: t c d."""
        return self.tensor_parallel * self.context_parallel * self.data_parallel

    @property
    def matrix_parallel(self) -> int:
        """GPUs that share each matrix: t, but with Ulysses 1."""
        return 1 if self.sequence == "ulysses" else self.tensor_parallel

    @property
    def token_parallel(self) -> int:
        """GPUs that share a sample's tokens in all of the layer: c, with Ulysses t c."""
        return self.num_gpus // self.data_parallel // self.matrix_parallel

    @property
    def tensor_level(self) -> SharingLevel:
        """The tensor-parallel GPUs, t."""
        t = self.tensor_parallel
        return SharingLevel(t, 1 if self.tensor_innermost else self.num_gpus // t)

    @property
    def context_level(self) -> SharingLevel:
        """The context-parallel GPUs, c: t apart, or d where tensor-parallel GPUs are not neighbours."""
        inner = self.tensor_parallel if self.tensor_innermost else self.data_parallel
        return SharingLevel(self.context_parallel, inner)

    @property
    def weight_copies(self) -> SharingLevel:
        """The GPUs that hold the same weights, or share them with ZeRO: c d, with Ulysses all."""
        t = self.matrix_parallel
        return SharingLevel(self.num_gpus // t, t if self.tensor_innermost else 1)

    @property
    def expert_tensor_parallel(self) -> int:
        """GPUs that share each matrix of an expert."""
        return 1 if self.whole_experts else self.matrix_parallel

    @property
    def _expert_gpus(self) -> SharingLevel:
        """The GPUs that would have the same experts' weights if no experts were shared."""
        return SharingLevel(self.num_gpus, 1) if self.whole_experts else self.weight_copies

    @property
    def expert_level(self) -> SharingLevel:
        """The GPUs that share the experts: neighbours among the GPUs of equal expert weights."""
        return SharingLevel(self.expert_parallel, self._expert_gpus.stride)

    @property
    def expert_copies(self) -> SharingLevel:
        """The GPUs that hold the same experts."""
        degree, stride = self._expert_gpus
        return SharingLevel(degree // self.expert_parallel, stride * self.expert_parallel)

    def shards(self, copies: SharingLevel) -> tuple[SharingLevel, SharingLevel]:
        """Return the GPUs with equal weights that share states, and those with equal shares of them."""
        degree, stride = copies
        shared = math.gcd(degree, self.shard_gpus or degree)
        return SharingLevel(shared, stride), SharingLevel(degree // shared, stride * shared)


@dataclass(frozen=True)
class Pass:
    """The time of a forward or backward: of products, which depends most on the clock, and the rest."""

    product_ms: float = 0.0
    copy_ms: float = 0.0

    @property
    def time_ms(self) -> float:
        """Time of the whole pass."""
        return self.product_ms + self.copy_ms

    def __add__(self, other: Pass) -> Pass:
        """Return the time of two passes, one after the other."""
        return Pass(self.product_ms + other.product_ms, self.copy_ms + other.copy_ms)


class Buffer(NamedTuple):
    """Bytes on each GPU that all layers with a buffer of this name share."""

    name: str
    num_bytes: float


@dataclass(frozen=True)
class Cost:
    """Cost of some layers on each GPU.

    Attributes:
        forward: Time of one micro-batch's forward; `backward` likewise.
        kept_bytes: Held from the one to the other.
        forward_bytes: More, held only during the forward; `backward_bytes` likewise.
        static_bytes: Weights, gradients and the optimizer's states.
        update_ms: Gradients exchanged and weights updated, once after the last micro-batch.
        buffers: Held from first to last, once for all layers with an equal buffer.
        scatter_ms: Sum of gradients, and `gather_ms` of new weights, where both are apart from `update_ms`.
        backward_peak_bytes: Most that a backward holds of its own micro-batch, what it kept included, where
            gradients between products are counted; otherwise 0.
    """

    forward: Pass = Pass()
    backward: Pass = Pass()
    kept_bytes: float = 0.0
    forward_bytes: float = 0.0
    backward_bytes: float = 0.0
    static_bytes: float = 0.0
    update_ms: float = 0.0
    buffers: frozenset[Buffer] = frozenset()
    scatter_ms: float = 0.0
    gather_ms: float = 0.0
    backward_peak_bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of two layers in a row; memory held only for a while counts once, as a maximum."""
        return Cost(
            self.forward + other.forward,
            self.backward + other.backward,
            self.kept_bytes + other.kept_bytes,
            max(self.forward_bytes, other.forward_bytes),
            max(self.backward_bytes, other.backward_bytes),
            self.static_bytes + other.static_bytes,
            self.update_ms + other.update_ms,
            self.buffers | other.buffers,
            self.scatter_ms + other.scatter_ms,
            self.gather_ms + other.gather_ms,
            # The backward of the second comes first, while all of the first is held.
            max(
                self.backward_peak_bytes,
                other.backward_peak_bytes and self.kept_bytes + other.backward_peak_bytes,
            ),
        )
