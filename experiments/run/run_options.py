"""The options of a run, checked before any work starts, and the model that they ask for, also as planned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from experiments.config.options import OptionError
from experiments.run.options import GIVEN_MODEL, NO_LAUNCHER, RuntimeOptions
from placements import Kind, Placement
from placements.planners.division import in_proportion
from placements.planners.hybrid.plan import Plan, PlanError
from runtime.execution.process import check_device
from runtime.models import ModelError, ModelOptions, body_of, suitable_model, traced
from runtime.models.core.options import SGD_RATE
from runtime.models.optimizer import usual_learning_rate
from runtime.models.state_dict import StateDictError, check_save_path, check_state_dict_file
from runtime.models.zoo.moe import BLOCKS_OF_LAYER
from runtime.program.calls import ScriptError
from runtime.program.lower import RecomputeError, blocks_to_recompute, check_batch
from runtime.program.tensor_flow import pair_backward, stage_decisions
from schedsearch.semantics.versions import WeightMode

NUM_LAYERS = 8
"""Layers of the model of a run, where neither the options nor a plan say it."""

log = logging.getLogger(__name__)


@contextmanager
def as_option_errors(*errors: type[Exception]) -> Iterator[None]:
    """Make errors inside, whose messages begin with the name of an option, errors of the group.

    Raises:
        OptionError: There was one, or an error of a model.
    """
    try:
        yield
    except ModelError as error:
        if error.field is None:
            raise OptionError(str(error)) from None
        name = "model" if error.field == "name" else error.field
        raise OptionError(f"runtime.{name}: {error.reason}") from None
    except errors as error:
        raise OptionError(f"runtime.{error}") from None


def check_runtime_options(options: RuntimeOptions) -> None:
    """Reject before any work files that are not there, and options that no model of that name has."""
    if options.save_weights is not None:
        with as_option_errors(StateDictError):
            check_save_path(options.save_weights)
    if options.resume is not None and not Path(options.resume).is_dir():
        remedy = "give the output directory or the checkpoints of a run"
        raise OptionError(f"runtime.resume: {options.resume} is not a folder; {remedy}")
    _model_options(options, "gpt" if options.model == "auto" else options.model)


def check_device_of(options: RuntimeOptions, placement: Placement) -> None:
    """Reject a device that this machine lacks, and a launcher that cannot start the placement."""
    if options.launcher == NO_LAUNCHER:
        return
    with as_option_errors(ScriptError):
        check_device(options.device, options.launcher, sum(placement.gpus))


def devices_in_words(placement: Placement) -> str:
    """Return how many devices a run has: the placement's, or the GPUs that they stand for.

    >>> from dataclasses import replace
    >>> from placements.shapes import v_shape
    >>> devices_in_words(v_shape(2)), devices_in_words(replace(v_shape(2), num_gpus=(4, 2)))
    ('2 devices', '6 GPUs of 2 devices')
    """
    devices = f"{placement.num_devices} devices"
    return f"{sum(placement.gpus)} GPUs of {devices}" if placement.num_gpus else devices


def choose_model(
    options: RuntimeOptions,
    placement: Placement,
    num_micro_batches: int,
    plan: Plan | None,
    *,
    is_batch: bool = False,
) -> ModelOptions:
    """Return the model to run on the GPUs of the placement, optimizer blocks aside.

    A GPT on the placement of a plan has the plan's layers in each block; parts that are not run are logged.

    With `is_batch` the choices of the placement's one decision are micro-batches that differ.

    Raises:
        OptionError: It does not fit the placement, or its text or Python file cannot be read.
        UnrunnablePlacementError: Gradients have no way through the placement.
    """
    placement = placement.per_micro_batch.by_gpu
    if is_batch:
        check_batch(placement)
        placement = replace(placement, decisions=())
    pair_backward(placement)
    stage_decisions(placement)
    with as_option_errors(RecomputeError):
        blocks_to_recompute(placement, options.recompute or ())
    name = options.model
    if name == "auto":
        name = suitable_model(placement, options.num_heads)
    if plan is not None and name == "gpt":
        options = with_planned_layers(options, plan)
    model = _model_options(options, name, placement)
    per_update = model.micro_batches_per_update
    if model.weight_versions != WeightMode.FLUSH and num_micro_batches % per_update:
        wrong = f"{per_update} is no divisor of {num_micro_batches} micro-batches"
        remedy = "give one, or change search.num_micro_batches"
        raise OptionError(f"runtime.micro_batches_per_update: {wrong}; {remedy}")
    if name == GIVEN_MODEL:
        return model
    with as_option_errors(StateDictError):
        model = traced(model, placement)
        body = body_of(model, placement)
        body.data(num_micro_batches, "cpu")
        if options.learning_rate is None:
            forward = (block.name for block in placement.blocks if block.kind is Kind.F)
            parameters = (parameter for name in forward for parameter in body.parameters(name))
            sizes = {parameter.name: parameter.numel for parameter in parameters}
            rate = usual_learning_rate(model.optimizer, sum(sizes.values()))
            model = replace(model, learning_rate=rate)
        if options.load_weights is not None:
            check_state_dict_file(options.load_weights, model, placement)
    for line in what_is_run(plan, model) if plan is not None else ():
        log.info("%s", line)
    return model


def _model_options(options: RuntimeOptions, name: str, placement: Placement | None = None) -> ModelOptions:
    given: dict[str, Any] = asdict(options) | {"name": name, "handed_over": None}
    if options.learning_rate is None:
        given["learning_rate"] = SGD_RATE
    if options.num_layers is None and options.layers_per_block is None:
        blocks = placement.blocks if placement else ()
        stages = sum(block.kind is Kind.F and block.sequence_slice == 0 for block in blocks)
        given["num_layers"] = stages // BLOCKS_OF_LAYER if name == "moe" else max(NUM_LAYERS, stages)
    if options.path is not None:
        given["path"] = str(Path(options.path).resolve())
    with as_option_errors():
        return ModelOptions.from_dict({field.name: given[field.name] for field in fields(ModelOptions)})


def with_planned_layers(options: RuntimeOptions, plan: Plan) -> RuntimeOptions:
    """Return the options with the number of layers of each block, the plan's unless others are given.

    Where `num_layers` is given and is not the plan's, the blocks share that number in the plan's proportions.

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
            remedy = f"or null for the {sum(counts.values())} of the plan"
            raise OptionError(f"runtime.{error}, {remedy}") from None
        counts = dict(zip(counts, shares, strict=True))
    return replace(options, layers_per_block=counts)


def what_is_run(plan: Plan, model: ModelOptions) -> list[str]:
    """Return, in a line each, how many layers each block has, and the parts that are not run as planned.

    That is ZeRO, and how the vocabulary is cut.
    """
    counts, of_plan = model.layers_per_block, plan.block_layers
    if counts is None:
        first = f"{model.name} has none of the plan's layers, only its blocks and their groups"
    else:
        given, planned = (str(dict(layers)).replace("'", "") for layers in (counts, of_plan))
        how = f"{sum(counts.values())} layers and not the plan's {sum(of_plan.values())} in {planned}"
        first = f"runtime.layers_per_block={given}, {'as planned' if counts == of_plan else how}"
    lines = [first]
    vocabulary, inner = plan.strategies[0], plan.inner_layers()
    has_zero = [strategy.zero and strategy.data_parallel > 1 for strategy in plan.strategies]
    layers_of = {f"F{n}": plan.inner_layers(piece.layers) for n, piece in enumerate(plan.pieces)}
    left_out = [name for name, layers in layers_of.items() if any(has_zero[i] for i in layers)]
    if vocabulary.zero and vocabulary.num_gpus > vocabulary.matrix_parallel:
        left_out.append("embedding and output layer")
    if left_out:
        instead = "plain data parallel, every group holds all states of its own"
        lines.append(f"without the plan's ZeRO of {', '.join(left_out)}: {instead}")
    first_cut, last_cut = (plan.strategies[i].tensor_parallel for i in (inner[0], inner[-1]))
    planned_cut = vocabulary.tensor_parallel
    if counts is not None and not vocabulary.matrix_parallel == planned_cut == first_cut == last_cut:
        cuts = f"{first_cut} and {last_cut} GPUs, as the layers beside them"
        planned = f"vtp {planned_cut}, vsp {int(vocabulary.sequence == 'ulysses')}"
        lines.append(f"embedding and output layer are cut over {cuts}, and not as planned ({planned})")
    return [f"run: {line}" for line in lines]
