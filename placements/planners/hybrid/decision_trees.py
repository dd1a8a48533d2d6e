"""The strategies by which the GPUs of a stage can share a layer, as in Galvatron-BMW's decision trees.

A tree is an order of levels, each of a paradigm and a degree, whose product is the GPUs. Of a tree we
keep what matters to a layer: the degrees, and whether tensor parallelism is inside data parallelism. The
module does not know layers or costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import product

from placements.models.parallel import LayerStrategy, Recompute, SequenceSharing
from placements.planners.hybrid.plan import PlanError


class Paradigm(StrEnum):
    """Task of the GPUs of a level (Galvatron-BMW, Sec. III-A, and ZERO1; the others on by name alone).

    DP data parallel, ZERO1 with sharded optimizer states, SDP with all states sharded (ZeRO-3), TP tensor
    parallel; ZERO2 with sharded optimizer states and gradients; ULYSSES the sequence by all-to-all; CP
    context parallel.
    """

    DP = "dp"
    SDP = "sdp"
    TP = "tp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ULYSSES = "ulysses"
    CP = "cp"


PAPER = (Paradigm.DP, Paradigm.SDP, Paradigm.TP)
"""The paradigms of Galvatron-BMW within a stage."""

USUAL = (Paradigm.DP, Paradigm.ZERO1, Paradigm.SDP, Paradigm.TP)
"""The same with ZeRO-1, as most train: Megatron-LM calls it the distributed optimizer."""

_ZERO = {Paradigm.DP: 0, Paradigm.SDP: 3, Paradigm.ZERO1: 1, Paradigm.ZERO2: 2}
"""ZeRO's stage of each paradigm that shares the samples; of a layer one at most (Sec. III-B, Takeaway 3)."""


@dataclass(frozen=True)
class TreeOptions:
    """Which strategies a search may give a layer.

    Attributes:
        paradigms: Paradigms of the trees' levels.
        recompute: Parts that a layer may compute again in its backward; each doubles the trees.
        sequence_parallel: Tensor-parallel GPUs share norms and dropout too (Megatron's sequence parallelism).
        max_tensor_parallel: Largest degree of TP and ULYSSES; None for no limit.
        tensor_parallel: Their degrees; None for all up to that.
        expert_parallel: Degrees that the experts of a layer may be shared in, where it has any.

    Raises:
        PlanError: There is no paradigm or no recomputation, or a degree is below 1.
    """

    paradigms: tuple[Paradigm, ...] = USUAL
    recompute: tuple[Recompute, ...] = ("none", "full")
    sequence_parallel: bool = False
    max_tensor_parallel: int | None = None
    expert_parallel: tuple[int, ...] = (1,)
    tensor_parallel: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Check that something is allowed."""
        for name in ("paradigms", "recompute", "expert_parallel"):
            if not getattr(self, name):
                raise PlanError(f"{name}: is empty; allow at least one")
        most, experts = self.max_tensor_parallel, min(self.expert_parallel)
        for name, degree in (("max_tensor_parallel", most), ("expert_parallel", experts)):
            if degree is not None and degree < 1:
                raise PlanError(f"{name}: {degree} is not at least 1; give 1 or more")


def divisors(number: int, most: int | None = None) -> list[int]:
    """Return the divisors of a number in order, up to a limit."""
    largest = number if most is None else min(number, most)
    return [divisor for divisor in range(1, largest + 1) if number % divisor == 0]


@cache
def layer_strategies(num_gpus: int, options: TreeOptions, num_experts: int = 1) -> tuple[LayerStrategy, ...]:
    """Return the strategies of a layer on the GPUs of a stage, grouped by recomputation.

    `num_experts` is 1 for a layer without experts.

    Raises:
        PlanError: None is allowed on that number of GPUs.

    >>> [len(layer_strategies(8 // stages, TreeOptions(PAPER, ("none",)))) for stages in (1, 2, 4, 8)]
    [11, 7, 3, 1]
    """
    paradigms, all_degrees = options.paradigms, divisors(num_gpus)
    most, degrees = options.max_tensor_parallel or num_gpus, options.tensor_parallel or all_degrees
    zeros = [zero for paradigm, zero in _ZERO.items() if paradigm in paradigms]
    alone: tuple[SequenceSharing, ...] = ("none",)
    # Tensor parallelism and Ulysses both share heads: one at most.
    beside: SequenceSharing = "megatron" if options.sequence_parallel else "none"
    ways: dict[Paradigm, SequenceSharing] = {Paradigm.TP: beside, Paradigm.ULYSSES: "ulysses"}
    sequences = tuple(way for paradigm, way in ways.items() if paradigm in paradigms)
    strategies = [
        LayerStrategy(t, d, zero, recompute, sequence, context, experts, innermost)
        for recompute, t, context in product(options.recompute, all_degrees, all_degrees)
        if num_gpus % (t * context) == 0 and t <= most and t in degrees
        if context == 1 or Paradigm.CP in paradigms
        for d in (num_gpus // (t * context),)
        for sequence in (sequences if t > 1 else alone)
        for zero in (zeros if d > 1 else [0])
        for innermost in ((True, False) if t > 1 and d > 1 else (True,))
        for experts in (options.expert_parallel if num_experts > 1 else (1,))
        if num_experts % experts == 0 and d * context * (t if sequence == "ulysses" else 1) % experts == 0
    ]
    if not strategies:
        fault = f"{', '.join(paradigms)} cannot share a layer among {num_gpus} GPUs"
        raise PlanError(f"paradigms: {fault}; allow dp or sdp, or a larger max_tensor_parallel")
    return tuple(strategies)
