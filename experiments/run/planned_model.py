"""What a run does of a planner's plan: the layers of each block as planned, and what it leaves out, said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.config.options import OptionError
from experiments.run.options import RuntimeOptions
from experiments.search.kinds.kind import RunPlan
from placements.planners.galvatron import layers_per_block
from placements.planners.parallel_plan import ParallelPlan, PlanError
from placements.planners.partition import in_proportion
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
    counts = layers_per_block(planned.plan)
    if options.num_layers is not None:
        try:
            shares = in_proportion(tuple(counts.values()), options.num_layers)
        except PlanError as error:
            raise OptionError(
                f"runtime.{error}, or null for the {sum(counts.values())} of the plan"
            ) from None
        counts = dict(zip(counts, shares, strict=True))
    return replace(options, layers_per_block=counts)


def what_is_run(plan: ParallelPlan, model: ModelOptions) -> list[str]:
    """Return, in a line each, how many layers each block has, and what is not run as planned.

    That is ZeRO, and how the vocabulary is cut.

    Args:
        plan: What is carried out.
        model: What is run of it.
    """
    zero = _zero_left_out(plan)
    if model.layers_per_block is None:
        return [f"run: {model.name} has none of the plan's layers, only its blocks and their groups", *zero]
    return [_layers_in_words(plan, model.layers_per_block), *zero, *_vocabulary_left_out(plan)]


def _layers_in_words(plan: ParallelPlan, counts: Mapping[str, int]) -> str:
    own = layers_per_block(plan)
    if counts == own:
        return f"run: runtime.layers_per_block={_mapping(counts)}, as planned"
    return (
        f"run: runtime.layers_per_block={_mapping(counts)}, {sum(counts.values())} layers and not the plan's "
        f"{sum(own.values())} in {_mapping(own)}"
    )


def _zero_left_out(plan: ParallelPlan) -> list[str]:
    names = [
        f"F{i}"
        for i, piece in enumerate(plan.pieces)
        if any(plan.layers[each].zero and plan.layers[each].data_parallel > 1 for each in piece.layers)
    ]
    if plan.vocabulary.zero and plan.num_gpus > plan.vocabulary.spread:
        names.append("embedding and output layer")
    if not names:
        return []
    return [
        f"run: without the plan's ZeRO of {', '.join(names)}: plain data parallel, every group holds all "
        "states of its own"
    ]


def _vocabulary_left_out(plan: ParallelPlan) -> list[str]:
    """Return a line if the plan shares embedding or output layer otherwise than the layers beside them."""
    first, last = (plan.layers[i].tensor_parallel for i in (0, -1))
    vocabulary = plan.vocabulary
    planned = f"vtp {vocabulary.parallel}, vsp {int(vocabulary.by_sequence)}"
    if vocabulary.spread == vocabulary.parallel == first == last:
        return []
    return [
        f"run: embedding and output layer are cut over {first} and {last} GPUs, as the layers beside them, "
        f"and not as planned ({planned})"
    ]


def _mapping(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name}: {count}" for name, count in counts.items()) + "}"
