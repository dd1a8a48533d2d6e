"""A plan that was run, as a placement: what the profile says of each stage, and transfers as blocks.

Training is as in Sailor's runs (SOSP 2025) on DeepSpeed's pipeline engine: in 32 bits with Adam, without ZeRO
and recomputation. This engine sends on the stream that computes, so a transfer occupies both its ends: it is
a block on both devices. Each GPU sends its share of an activation or gradient, and the receivers gather the
whole within their node before they compute. After the last micro-batch every stage sums its gradients over
its replicas and updates its weights. Stages and replicas are assumed to be in nodes of their own.

The module does not know in what order blocks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from placements.block import Block, Kind
from placements.measured.layer_profile import FLOAT_BYTES, LayerProfile, NotProfiledError
from placements.measured.link_fit import GpuGroup, Links
from placements.measured.plan_file import ReplicatedPlan, ReplicatedStage
from placements.pieces import Piece, blocks_of
from placements.spec import Placement

STATIC_BYTES = 20
"""Per weight in 32 bits: weight, gradient, two moments of Adam, and the flat copy of gradients that is summed
over replicas, for which the allocator keeps memory of its own."""

_TICK_MS = 0.001
_MIB = 2**20


@dataclass(frozen=True)
class Measurements:
    """Knowledge of the machines of a plan.

    Attributes:
        profiles: What the model's layers cost, by type of GPU.
        links: Between the GPUs.
        context_mib: What a process holds on its GPU besides tensors: CUDA's context, libraries, kernels.
        compute_slowdown: How many times as long as in the profile layers take in a run; 1 for as long.
    """

    profiles: Mapping[str, LayerProfile]
    links: Links
    context_mib: float
    compute_slowdown: float = 1.0

    def profile_of(self, group: GpuGroup) -> LayerProfile:
        """Return what the layers cost on a group's type of GPU; `NotProfiledError` if not measured."""
        if group.gpu not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise NotProfiledError(f"the model has no times on {group.gpu}; measured: {known}")
        return self.profiles[group.gpu]


def place_measured(plan: ReplicatedPlan, known: Measurements) -> Placement:
    """Return a plan as a placement: a device for each stage, at the pace of its slowest replica.

    Stage i has the blocks Fi, Bi and, after all micro-batches, Oi. Ai sends its activation to the next
    stage, Gi brings the gradient back. Where a stage has fewer replicas than the one with most, its blocks
    are of as many micro-batches as each of its replicas gets at a time.

    Returns:
        The placement, in ticks of 1 us and units of 1 MiB.

    Raises:
        NotProfiledError: A layer, its sizes, a type of GPU or a link was not measured.
    """
    costs = [_stage_cost(plan, stage, known) for stage in plan.stages]
    nothing = _Hop(0.0, 0.0, 0.0, 0.0)
    hops = [nothing, *(_hop(plan, a, b, known) for a, b in pairwise(plan.stages)), nothing]
    pieces = []
    for i, (cost, (before, after)) in enumerate(zip(costs, pairwise(hops), strict=True)):
        times = before.gather_activation_ms + cost.forward_ms, after.gather_gradient_ms + cost.backward_ms
        memory, working = (cost.kept_mib, -cost.kept_mib), (0, cost.kept_mib + cost.working_mib)
        pieces.append(Piece(f"F{i}", (i,), tuple(map(_ticks, times)), memory, working))
        if i + 1 < len(costs):
            sent = _ticks(after.activation_ms), _ticks(after.gradient_ms)
            pieces.append(Piece(f"A{i}", (i, i + 1), sent))
    updates = (
        Block(f"O{i}", Kind.O, (i,), _ticks(cost.update_ms), after=("B0",)) for i, cost in enumerate(costs)
    )
    return Placement(
        "measured_plan",
        len(costs),
        (*blocks_of(pieces), *updates),
        tick_ms=_TICK_MS,
        static_memory=tuple(cost.static_mib for cost in costs),
        num_gpus=tuple(sum(group.size for group in stage.replicas) for stage in plan.stages),
        memory_unit_mib=1.0,
    )


class _StageCost(NamedTuple):
    """Cost of a stage for what a replica gets at a time; `working_mib` only during its backward."""

    forward_ms: float
    backward_ms: float
    update_ms: float
    kept_mib: int
    working_mib: int
    static_mib: int


class _Hop(NamedTuple):
    """Times to send between two stages, and to gather at the receivers what has arrived."""

    activation_ms: float
    gradient_ms: float
    gather_activation_ms: float
    gather_gradient_ms: float


def _stage_cost(plan: ReplicatedPlan, stage: ReplicatedStage, known: Measurements) -> _StageCost:
    """Return the cost on the slowest replica, and the memory on the one that needs most."""
    share, layers = plan.share_of(stage), stage.layers
    times, steps, kept, working, weights, summed = [], [], [], [], [], []
    for group in dict.fromkeys(stage.replicas):
        profile, sizes = known.profile_of(group), (plan.micro_batch_size, group.size)
        rows = [profile.times(*sizes, layer) for layer in layers]
        forward_ms, backward_ms = (known.compute_slowdown * sum(each) for each in zip(*rows, strict=True))
        if plan.num_micro_batches * share > 1:
            backward_ms += profile.accumulation_ms(*sizes, layers)
        times.append((forward_ms, backward_ms))
        steps.append(profile.step_ms(*sizes, layers))
        held = [profile.activation_bytes(*sizes, layer) for layer in layers]
        kept.append(share * sum(held))
        working.append(max(held))
        weights.append(profile.parameters(group.size, layers))
        summed.append(FLOAT_BYTES * group.size * weights[-1])
    forward_ms, backward_ms = max(times, key=sum)
    return _StageCost(
        share * forward_ms,
        share * backward_ms,
        max(steps) + known.links.all_reduce_ms(stage.replicas, max(summed)),
        round(max(kept) / _MIB),
        round(max(working) / _MIB),
        round(known.context_mib + STATIC_BYTES * max(weights) / _MIB),
    )


def _hop(plan: ReplicatedPlan, before: ReplicatedStage, after: ReplicatedStage, known: Measurements) -> _Hop:
    """Return the slowest transfer between replicas of two stages that follow each other.

    They send in order, those of the smaller stage several times.
    """
    size, first, links = plan.micro_batch_size, before.replicas[0], known.links
    num_bytes = known.profile_of(first).output_bytes(size, first.size, before.layers[-1])
    senders, receivers = before.replicas, after.replicas
    width = max(len(senders), len(receivers))
    pairs = {
        (senders[i * len(senders) // width], receivers[i * len(receivers) // width]) for i in range(width)
    }
    sent = max(plan.share_of(before), plan.share_of(after))
    return _Hop(
        sent * max(links.send_ms(a, b, num_bytes) for a, b in pairs),
        sent * max(links.send_ms(b, a, num_bytes) for a, b in pairs),
        plan.share_of(after) * max(links.all_gather_ms(group, num_bytes) for group in receivers),
        plan.share_of(before) * max(links.all_gather_ms(group, num_bytes) for group in senders),
    )


def _ticks(ms: float) -> int:
    return max(1, round(ms / _TICK_MS))
