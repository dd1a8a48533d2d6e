"""A plan of Galvatron as a placement of a GPT: what the planner decided, for a search that decides the order.

Each stage is a device that stands for all GPUs of the stage, which run the same blocks at the same time.
Layers of a stage that are shared in the same way make one forward and one backward block, so that a stage
has several of them where the plan changes inside it::

    0 | F0 F1 .  .  B1 B1 B0 B0 O0     layers of stage 0 in two layouts
    1 | .  .  F2 B2 B2 O1

The module does not know in what order blocks run, and takes every link to be as fast as the GPU's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from placements.models.gpt.gpt_config import hidden_bytes
from placements.models.gpt.workload import Workload
from placements.models.parallel import Cost, Pass
from placements.models.piece_placement import PieceCost, piece_placement
from placements.models.rates import COPY_COMPUTE_SHARE
from placements.planners.parallel_plan import ParallelPlan, PlanError
from placements.spec import Placement


def plan_placement(plan: ParallelPlan, work: Workload, tick_ms: float | None = None) -> Placement:
    """Return the blocks of a plan: a chain of forwards, of backwards in reverse, and an O for each stage.

    F0 has the embedding, the last forward and backward the output layer with the loss; both may be shared
    otherwise than the layers beside them. Where two neighbors are shared by different numbers of GPUs, the
    one that needs more of the samples gathers them: the later in the forward, the earlier in the backward
    (Galvatron-BMW, Sec. VI: Slice-Gather). O exchanges the gradients and updates the weights; Galvatron-BMW
    lets that exchange run beside the last backward (Sec. V), which is never longer.

    Args:
        plan: What the planner decided.
        work: The model, with the plan's layers and micro-batches.
        tick_ms: Length of a tick; see `placements.models.rates.tick_for`.

    Returns:
        Memory in MiB of one GPU, rounded up, and what its states take as static memory; the capacity is the
        GPU's less the reserve.

    Raises:
        PlanError: The plan does not fit the model.
        PlacementError: An argument is out of its range.
    """
    costs = _costs(plan, work)
    capacity = math.floor((work.rates.gpu.memory_gib - work.rates.reserve_gib) * 1024)
    return piece_placement(
        "galvatron",
        list(_pieces(plan, work, costs)),
        (capacity,) * plan.num_stages,
        (plan.num_gpus,) * plan.num_stages,
        tick_ms,
    )


def plan_compute_shares(plan: ParallelPlan, work: Workload) -> dict[str, float]:
    """Return the share of each block's time that depends on the clock.

    Matrix products have the GPU's own share; lookups, transfers and updates depend on it less.

    Returns:
        By block name, 0 to 1; for `placements.hardware.modelled_profile`.

    Raises:
        PlanError: The plan does not fit the model.
    """
    own = work.rates.gpu.power.compute_share
    shares = {f"O{stage}": COPY_COMPUTE_SHARE for stage in range(plan.num_stages)}
    for i, cost in enumerate(_costs(plan, work)):
        for name, part in ((f"F{i}", cost.forward), (f"B{i}", cost.backward)):
            shares[name] = (own * part.product_ms + COPY_COMPUTE_SHARE * part.copy_ms) / part.time_ms
    return shares


def layer_times_ms(plan: ParallelPlan, work: Workload) -> list[float]:
    """Return the time of each layer's forward and backward, in order, whatever its stage.

    The first has the embedding's too, the last the output layer's; what is gathered between layers is left
    out.

    Raises:
        PlanError: The plan does not fit the model.
    """
    _check_model(plan, work)
    costs = [work.layer_cost(layer) for layer in plan.layers]
    costs[0] += work.embedding_cost(plan.vocabulary, plan.num_gpus)
    costs[-1] += work.output_cost(plan.vocabulary, plan.num_gpus, tied=plan.num_stages == 1)
    return [cost.forward.time_ms + cost.backward.time_ms for cost in costs]


def recomputed_blocks(plan: ParallelPlan) -> tuple[str, ...]:
    """Return the forward blocks that the plan computes again for the backward (its checkpoints)."""
    return tuple(
        f"F{i}" for i, piece in enumerate(plan.pieces) if plan.layers[piece.layers.start].recompute == "full"
    )


def layers_per_block(plan: ParallelPlan) -> dict[str, int]:
    """Return the number of layers of each forward block, by name, in order."""
    return {f"F{i}": len(piece.layers) for i, piece in enumerate(plan.pieces)}


def _costs(plan: ParallelPlan, work: Workload) -> list[Cost]:
    """Return the cost of each piece of the plan, with what is gathered between two of one stage."""
    _check_model(plan, work)
    costs = [sum((work.layer_cost(plan.layers[i]) for i in piece.layers), Cost()) for piece in plan.pieces]
    ends = plan.vocabulary
    first, last = _spread(plan, 0), _spread(plan, -1)
    costs[0] += work.embedding_cost(ends, plan.num_gpus)
    costs[-1] += work.output_cost(ends, plan.num_gpus, tied=plan.num_stages == 1)
    _gather(plan, work, costs, (0, ends.spread), (0, first))
    for i, (before, after) in enumerate(itertools.pairwise(plan.pieces)):
        if before.stage == after.stage:
            _gather(plan, work, costs, (i, _spread(plan, i)), (i + 1, _spread(plan, i + 1)))
    _gather(plan, work, costs, (-1, last), (-1, ends.spread))
    return costs


def _check_model(plan: ParallelPlan, work: Workload) -> None:
    config = work.config
    if config.num_layers != len(plan.layers):
        raise PlanError(
            f"num_layers: {config.num_layers} is not the {len(plan.layers)} layers of the plan; give as many"
            ", or another plan"
        )
    for i, layer in enumerate(plan.layers):
        if config.num_heads % layer.tensor_parallel:
            raise PlanError(
                f"tp_sizes_enc[{i}]: {layer.tensor_parallel} does not divide num_heads {config.num_heads}; "
                "give a divisor"
            )
    assert config.micro_batch_size == plan.micro_batch_size, "the micro-batch is the plan's"
    assert work.num_micro_batches == plan.num_micro_batches, "so is their number"


def _spread(plan: ParallelPlan, piece: int) -> int:
    """Return how many GPUs compute the same samples in a piece."""
    return plan.layers[plan.pieces[piece].layers.start].tensor_parallel


def _gather(
    plan: ParallelPlan, work: Workload, costs: list[Cost], before: tuple[int, int], after: tuple[int, int]
) -> None:
    """Add to two neighbors, of one stage, what it takes to gather samples; each is an index and a spread."""
    (earlier, had), (later, has) = before, after
    each_ms = work.rates.transfer_ms(hidden_bytes(work.config) / plan.num_gpus)
    costs[later] += Cost(forward=Pass(0.0, max(has - had, 0) * each_ms))
    costs[earlier] += Cost(backward=Pass(0.0, max(had - has, 0) * each_ms))


def _pieces(plan: ParallelPlan, work: Workload, costs: Sequence[Cost]) -> Iterator[PieceCost]:
    """Yield what each piece costs, and what it takes from one stage to the next.

    Each GPU receives the samples that it computes.
    """
    each_ms = work.rates.transfer_ms(hidden_bytes(work.config) / plan.num_gpus)
    for i, (piece, cost) in enumerate(zip(plan.pieces, costs, strict=True)):
        here, before = _spread(plan, i), _spread(plan, max(i - 1, 0))
        yield PieceCost((piece.stage,), cost, plan.num_gpus // here, here * each_ms, before * each_ms)
