"""A measured plan as a placement: the profiled cost of each stage, and transfers as blocks.

Training is as in Sailor's runs (SOSP 2025) on DeepSpeed's pipeline engine: in 32 bits with Adam, without ZeRO
and recomputation. This engine sends on the stream that computes, so a transfer occupies both its ends: it is
a block on both devices. Each GPU sends its share of an activation or gradient, and the receivers gather the
whole within their node before they compute. After the last micro-batch every stage sums its gradients over
its replicas and updates its weights. Stages and replicas are assumed to be in nodes of their own.

The module does not know the order of blocks.
"""

from __future__ import annotations

import numpy as np

from placements.block import Block, Kind
from placements.measured.layer_profile import FLOAT_BYTES, LayerCost, NotProfiledError
from placements.measured.plan_file import ReplicatedPlan, ReplicatedStage
from placements.measured.profile_folder import ProfiledModel
from placements.pieces import Piece, blocks_of
from placements.spec import Placement

STATIC_BYTES = 20
"""Per weight in 32 bits: weight, gradient, two moments of Adam, and the flat copy of gradients that is summed
over replicas, for which the allocator keeps memory of its own."""

_TICK_MS = 0.001
_MIB = 2**20


def place_measured(
    plan: ReplicatedPlan, model: ProfiledModel, context_mib: float, compute_slowdown: float = 1.0
) -> Placement:
    """Return a plan as a placement: a device for each stage, at the pace of its slowest replica.

    Stage i has the blocks Fi, Bi and, after all micro-batches, Oi. Ai sends its activation to the next
    stage, Gi brings the gradient back. Where a stage has fewer replicas than the one with most, its blocks
    are of as many micro-batches as each of its replicas gets at a time.

    Args:
        plan: The plan that was run.
        model: Layers and links as measured.
        context_mib: Memory of a process on its GPU besides tensors: CUDA's context, libraries, kernels.
        compute_slowdown: How many times as long as in the profile layers take in a run; 1 for as long.

    Returns:
        The placement, in ticks of 1 us and units of 1 MiB.

    Raises:
        NotProfiledError: A layer, its sizes, a type of GPU or a link was not measured.
    """
    pieces, updates, static, gather_ms = [], [], [], 0.0
    for i, stage in enumerate(plan.stages):
        forward_ms, backward_ms, update_ms, *held = _stage_cost(plan, stage, model, compute_slowdown)
        kept, working, weights = (num_bytes / _MIB for num_bytes in held)
        hop = _hop(plan, stage, plan.stages[i + 1], model) if i + 1 < len(plan.stages) else (0.0,) * 4
        activation_ms, gradient_ms, gather_next_ms, gather_gradient_ms = hop
        times = _ticks(gather_ms + forward_ms), _ticks(gather_gradient_ms + backward_ms)
        memory, gather_ms = round(kept), gather_next_ms
        pieces.append(Piece(f"F{i}", (i,), times, (memory, -memory), (0, memory + round(working))))
        if i + 1 < len(plan.stages):
            pieces.append(Piece(f"A{i}", (i, i + 1), (_ticks(activation_ms), _ticks(gradient_ms))))
        updates.append(Block(f"O{i}", Kind.O, (i,), _ticks(update_ms), after=("B0",)))
        static.append(round(context_mib + weights))
    return Placement(
        "measured_plan",
        len(plan.stages),
        (*blocks_of(pieces), *updates),
        tick_ms=_TICK_MS,
        static_memory=tuple(static),
        num_gpus=tuple(sum(group.size for group in stage.replicas) for stage in plan.stages),
        memory_unit_mib=1.0,
    )


def _stage_cost(
    plan: ReplicatedPlan, stage: ReplicatedStage, model: ProfiledModel, compute_slowdown: float
) -> tuple[float, ...]:
    """Return the times of a stage's forward, backward and update in ms, and memory of a GPU in bytes.

    Memory is kept until the backward, held by the backward alone, and static. Times are of the work that a
    replica gets at a time, on the slowest replica; memory is of the replica that needs most.
    """
    share, times, others = plan.repeats_of(stage), [], []
    for group in dict.fromkeys(stage.replicas):
        if (profile := model.profiles.get(group.gpu)) is None:
            known = ", ".join(sorted(model.profiles)) or "none"
            raise NotProfiledError(f"the model has no times on {group.gpu}; measured: {known}")
        costs = np.array([profile.cost(plan.micro_batch_size, group.size, layer) for layer in stage.layers])
        total = LayerCost(*costs.sum(axis=0).tolist())
        added_ms = total.accumulation_ms if plan.num_micro_batches * share > 1 else 0.0
        times.append((compute_slowdown * total.forward_ms, compute_slowdown * total.backward_ms + added_ms))
        summed, kept = FLOAT_BYTES * group.size * total.parameters, LayerCost(*costs.max(axis=0)).kept_bytes
        others.append(
            (total.step_ms, summed, share * total.kept_bytes, kept, STATIC_BYTES * total.parameters)
        )
    step_ms, summed, *held = np.max(others, axis=0).tolist()
    forward_ms, backward_ms = max(times, key=sum)
    update_ms = step_ms + model.links.all_reduce_ms(stage.replicas, summed)
    return share * forward_ms, share * backward_ms, update_ms, *held


def _hop(
    plan: ReplicatedPlan, before: ReplicatedStage, after: ReplicatedStage, model: ProfiledModel
) -> tuple[float, float, float, float]:
    """Return the slowest transfers between replicas of two stages, in ms.

    They are those of an activation and of a gradient, then the gathering of each at its receivers. Replicas
    send in order, those of the smaller stage several times.
    """
    senders, receivers, links = before.replicas, after.replicas, model.links
    profile = model.profiles[senders[0].gpu]
    num_bytes = profile.cost(plan.micro_batch_size, senders[0].size, before.layers[-1]).output_bytes
    width, shares = max(len(senders), len(receivers)), (plan.repeats_of(before), plan.repeats_of(after))
    pairs = {
        (senders[i * len(senders) // width], receivers[i * len(receivers) // width]) for i in range(width)
    }
    return (
        max(shares) * max(links.send_ms(a, b, num_bytes) for a, b in pairs),
        max(shares) * max(links.send_ms(b, a, num_bytes) for a, b in pairs),
        shares[1] * max(links.all_gather_ms(group, num_bytes) for group in receivers),
        shares[0] * max(links.all_gather_ms(group, num_bytes) for group in senders),
    )


def _ticks(ms: float) -> int:
    return max(1, round(ms / _TICK_MS))
