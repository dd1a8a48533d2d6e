"""A planner's plan in a run: the layers of each block as planned, and lines about the parts left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.config.options import OptionError
from experiments.run.options import RuntimeOptions
from placements.planners.division import in_proportion
from placements.planners.hybrid.plan import Plan, PlanError
from runtime.models import ModelOptions


def with_planned_layers(options: RuntimeOptions, plan: Plan) -> RuntimeOptions:
    """Return the options with the number of layers of each block, the plan's unless others are given.

    Where `num_layers` is given and is not the plan's, the blocks have so many in the plan's proportions.

    Args:
        options: Options of the run.
        plan: Plan that its placement is made of.

    Raises:
        OptionError: There are fewer layers than blocks.
    """
    if options.layers_per_block is not None:
        return options
    counts = plan.block_layers
    if options.num_layers is not None:
        try:
            shares = in_proportion(tuple(counts.values()), options.num_layers)
        except PlanError as error:
            raise OptionError(
                f"runtime.{error}, or null for the {sum(counts.values())} of the plan"
            ) from None
        counts = dict(zip(counts, shares, strict=True))
    return replace(options, layers_per_block=counts)


def _blocks_with_zero(plan: Plan) -> list[str]:
    """Return the forward blocks of a plan that have a transformer layer with ZeRO."""
    found = []
    for n, piece in enumerate(plan.pieces):
        layers = [plan.strategies[i] for i in plan.inner_layers(piece.layers)]
        if any(each.zero and each.data_parallel > 1 for each in layers):
            found.append(f"F{n}")
    return found


def what_is_run(plan: Plan, model: ModelOptions) -> list[str]:
    """Return, in a line each, how many layers each block has, and the parts that are not run as planned.

    That is ZeRO, and how the vocabulary is cut.

    Args:
        plan: Plan of the planner.
        model: Options of the model of the run.
    """
    counts, own = model.layers_per_block, plan.block_layers
    if counts is None:
        first = f"{model.name} has none of the plan's layers, only its blocks and their groups"
    else:
        first = f"runtime.layers_per_block={_mapping(counts)}, "
        first += (
            "as planned"
            if counts == own
            else f"{sum(counts.values())} layers and not the plan's {sum(own.values())} in {_mapping(own)}"
        )
    lines = [first]
    vocabulary, inner = plan.strategies[0], plan.inner_layers()
    left_out = _blocks_with_zero(plan)
    if vocabulary.zero and vocabulary.num_gpus > vocabulary.matrix_parallel:
        left_out.append("embedding and output layer")
    if left_out:
        lines.append(
            f"without the plan's ZeRO of {', '.join(left_out)}: plain data parallel, every group holds all "
            "states of its own"
        )
    first_cut, last_cut = (plan.strategies[i].tensor_parallel for i in (inner[0], inner[-1]))
    planned_cut = vocabulary.tensor_parallel
    if counts is not None and not vocabulary.matrix_parallel == planned_cut == first_cut == last_cut:
        lines.append(
            f"embedding and output layer are cut over {first_cut} and {last_cut} GPUs, as the layers beside "
            f"them, and not as planned (vtp {planned_cut}, vsp {int(vocabulary.sequence == 'ulysses')})"
        )
    return [f"run: {line}" for line in lines]


def _mapping(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{name}: {count}" for name, count in counts.items()) + "}"
