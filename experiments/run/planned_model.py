"""A planner's plan in a run: the layers of each block as planned, and lines about the parts left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.config.options import OptionError
from experiments.run.options import RuntimeOptions
from experiments.search.kinds.kind import RunPlan
from placements.planners.division import in_proportion
from placements.planners.hybrid.plan import Plan, PlanError
from runtime.models import ModelOptions


def with_planned_layers(options: RuntimeOptions, planned: RunPlan) -> RuntimeOptions:
    """Return the options with the number of layers of each block, the plan's unless others are given.

    Where `num_layers` is given and is not the plan's, the blocks have so many in the plan's proportions.

    Args:
        options: Options of the run.
        planned: What its placement is made of.

    Raises:
        OptionError: There are fewer layers than blocks.
    """
    if options.layers_per_block is not None:
        return options
    counts = planned.plan.block_layers
    if options.num_layers is not None:
        try:
            shares = in_proportion(tuple(counts.values()), options.num_layers)
        except PlanError as error:
            raise OptionError(
                f"runtime.{error}, or null for the {sum(counts.values())} of the plan"
            ) from None
        counts = dict(zip(counts, shares, strict=True))
    return replace(options, layers_per_block=counts)


def _pieces_with(plan: Plan, *stages: int) -> list[int]:
    """Return the pieces of a plan that have a transformer layer with a stage of ZeRO."""

    def has(i: int) -> bool:
        return plan.strategies[i].zero in stages and plan.strategies[i].data_parallel > 1

    return [n for n, piece in enumerate(plan.pieces) if any(has(i) for i in plan.inner_layers(piece.layers))]


def what_is_run(plan: Plan, model: ModelOptions) -> list[str]:
    """Return, in a line each, how many layers each block has, and the parts that are not run as planned.

    That is ZeRO, and how the vocabulary is cut.

    Args:
        plan: Plan of the planner.
        model: Options of the model of the run.
    """
    zero = _zero_of_run(plan)
    if model.layers_per_block is None:
        return [f"run: {model.name} has none of the plan's layers, only its blocks and their groups", *zero]
    return [_layers_in_words(plan, model.layers_per_block), *zero, *_vocabulary_left_out(plan)]


def _layers_in_words(plan: Plan, counts: Mapping[str, int]) -> str:
    own = plan.block_layers
    if counts == own:
        return f"run: runtime.layers_per_block={_mapping(counts)}, as planned"
    return (
        f"run: runtime.layers_per_block={_mapping(counts)}, {sum(counts.values())} layers and not the plan's "
        f"{sum(own.values())} in {_mapping(own)}"
    )


def _zero_of_run(plan: Plan) -> list[str]:
    """Return a line if the plan has ZeRO, which no block of a run has."""
    names = [f"F{i}" for i in _pieces_with(plan, 1, 2, 3)]
    vocabulary = plan.strategies[0]
    if vocabulary.zero and vocabulary.num_gpus > vocabulary.matrix_parallel:
        names.append("embedding and output layer")
    if not names:
        return []
    return [
        f"run: without the plan's ZeRO of {', '.join(names)}: plain data parallel, every group holds all "
        "states of its own"
    ]


def _vocabulary_left_out(plan: Plan) -> list[str]:
    """Return a line if the plan shares embedding or output layer otherwise than the layers beside them."""
    inner = plan.inner_layers()
    first, last = (plan.strategies[i].tensor_parallel for i in (inner[0], inner[-1]))
    vocabulary = plan.strategies[0]
    planned = f"vtp {vocabulary.tensor_parallel}, vsp {int(vocabulary.sequence == 'ulysses')}"
    if vocabulary.matrix_parallel == vocabulary.tensor_parallel == first == last:
        return []
    return [
        f"run: embedding and output layer are cut over {first} and {last} GPUs, as the layers beside them, "
        f"and not as planned ({planned})"
    ]


def _mapping(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name}: {count}" for name, count in counts.items()) + "}"
