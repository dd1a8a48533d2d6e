"""Every way in which the GPUs of a stage can share a layer, generated as Galvatron-BMW's decision trees.

A tree is an ordered list of levels: what its GPUs do, and how many branches it has. The last level is of GPUs
that are neighbors. The module does not know what a layer is or what a way costs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

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

_ZERO = {Paradigm.DP: 0, Paradigm.ZERO1: 1, Paradigm.ZERO2: 2, Paradigm.SDP: 3}
"""ZeRO's stage of each paradigm that shares the samples."""

_WITHIN_SAMPLE = (Paradigm.TP, Paradigm.ULYSSES)
"""Paradigms of which a layer has one at most: both share a sample's heads."""


class TreeLevel(NamedTuple):
    """One level of a tree.

    Attributes:
        paradigm: What its GPUs do.
        degree: Its branches, at least 2.
    """

    paradigm: Paradigm
    degree: int


Tree = tuple[TreeLevel, ...]
"""Levels from the root to the leaves; empty for one GPU."""


def decision_trees(
    num_gpus: int, paradigms: Collection[Paradigm] = PAPER, *, mixed: bool = False
) -> list[Tree]:
    """Return the trees of a stage: ordered levels of different paradigms whose degrees multiply to its GPUs.

    Trees with two ways to share the samples are dropped, because ZeRO-3 alone needs less memory and sends
    less than both (Galvatron-BMW, Sec. III-B, Takeaway 3).

    Args:
        num_gpus: GPUs of the stage.
        paradigms: Those allowed.
        mixed: Keep trees with several ways to share the samples.

    >>> [len(decision_trees(8 // stages)) for stages in (1, 2, 4, 8)]
    [11, 7, 3, 1]
    >>> [len(decision_trees(8 // stages, mixed=True)) for stages in (1, 2, 4, 8)]
    [21, 9, 3, 1]
    """
    ordered = tuple(each for each in Paradigm if each in paradigms)
    return [tree for tree in _trees(num_gpus, ordered) if _is_allowed(tree, mixed)]


@cache
def _trees(num_gpus: int, paradigms: tuple[Paradigm, ...]) -> tuple[Tree, ...]:
    if num_gpus == 1:
        return ((),)
    return tuple(
        (TreeLevel(paradigm, degree), *rest)
        for paradigm in paradigms
        for degree in range(2, num_gpus + 1)
        if num_gpus % degree == 0
        for rest in _trees(num_gpus // degree, tuple(each for each in paradigms if each is not paradigm))
    )


def _is_allowed(tree: Tree, mixed: bool) -> bool:
    sharing = [level for level in tree if level.paradigm in _ZERO]
    within = [level for level in tree if level.paradigm in _WITHIN_SAMPLE]
    return (mixed or len(sharing) <= 1) and len(within) <= 1


@dataclass(frozen=True)
class TreeOptions:
    """Which strategies a search may give a layer.

    Attributes:
        paradigms: What levels of the trees may do.
        recompute: What a layer may compute again in its backward; each doubles the trees.
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
        """Check that something is allowed; what is listed is kept as tuples."""
        for name in ("paradigms", "recompute", "expert_parallel", "tensor_parallel"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(given))
        for name in ("paradigms", "recompute", "expert_parallel"):
            if not getattr(self, name):
                raise PlanError(f"{name}: is empty; allow at least one")
        if self.max_tensor_parallel is not None and self.max_tensor_parallel < 1:
            raise PlanError(
                f"max_tensor_parallel: {self.max_tensor_parallel} is not at least 1; give 1 or more"
            )
        for degree in self.expert_parallel:
            if degree < 1:
                raise PlanError(f"expert_parallel: {degree} is not at least 1; give 1 or more")


@cache
def layer_strategies(num_gpus: int, options: TreeOptions, num_experts: int = 1) -> tuple[LayerStrategy, ...]:
    """Return the strategies of a layer on the GPUs of a stage, without recomputation first.

    Args:
        num_gpus: GPUs of the stage.
        options: Which are allowed.
        num_experts: Experts of the layer; 1 where it has none.

    Raises:
        PlanError: None is allowed on that number of GPUs.
    """
    found = dict.fromkeys(
        strategy
        for recompute in options.recompute
        for tree in decision_trees(num_gpus, options.paradigms)
        for strategy in _of_tree(tree, recompute, options, num_experts)
    )
    if not found:
        raise PlanError(
            f"paradigms: {', '.join(options.paradigms)} cannot share a layer among {num_gpus} GPUs; allow "
            "dp or sdp, or a larger max_tensor_parallel"
        )
    return tuple(found)


def _of_tree(
    tree: Tree, recompute: Recompute, options: TreeOptions, num_experts: int
) -> Iterator[LayerStrategy]:
    degrees = {level.paradigm: level.degree for level in tree}
    within = max((degrees.get(each, 1) for each in _WITHIN_SAMPLE), default=1)
    if options.max_tensor_parallel is not None and within > options.max_tensor_parallel:
        return
    if options.tensor_parallel is not None and within not in options.tensor_parallel:
        return
    sharing = [level.paradigm for level in tree if level.paradigm in _ZERO]
    order = [level.paradigm for level in tree]
    heads = [each for each in order if each in _WITHIN_SAMPLE]
    innermost = not (heads and sharing) or order.index(heads[0]) > order.index(sharing[0])
    data_parallel = max((degrees[each] for each in sharing), default=1)
    sequence: SequenceSharing = "none"
    if Paradigm.ULYSSES in degrees:
        sequence = "ulysses"
    elif options.sequence_parallel and within > 1:
        sequence = "megatron"
    context = degrees.get(Paradigm.CP, 1)
    copies = data_parallel * context * (within if Paradigm.ULYSSES in degrees else 1)
    for experts in options.expert_parallel if num_experts > 1 else (1,):
        if num_experts % experts == 0 and copies % experts == 0:
            yield LayerStrategy(
                within,
                data_parallel,
                max((_ZERO[each] for each in sharing), default=0),
                recompute,
                sequence,
                context,
                experts,
                innermost,
            )
