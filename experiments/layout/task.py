"""The task of `experiments.layout`: the best layouts, their table, and the files of each framework."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.config.options import OptionError, require_path
from experiments.layout.options import LayoutCommandOptions
from experiments.plan.inputs import plan_inputs, refuse, shared_fields
from experiments.plan.options import PlanQuestion
from experiments.report.result import Result, Table
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers.files import layout_files, read_any
from placements.trainers.layers import ModelLayers
from schedsearch.figures.perfetto import write_perfetto
from schedsearch.layouts.layouts import COLUMNS, NOT_APPLICABLE, BestLayouts, LayoutRow, layout
from schedsearch.planning.explanation import in_words
from schedsearch.planning.layout_plans import layers_to_divide
from schedsearch.planning.uniform_run import UniformRun, layout_in_words
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.traces.measured_layers import read_measured

_OF_MODEL = (
    *("cluster", "tensor_parallel", "expert_parallel", "micro_batch_size"),
    *("sequence_length", "precision"),
)
"""Options that a table of layers does not need."""


def task(options: LayoutCommandOptions) -> Result:
    """Find the layouts; the figures are the best layout's."""
    measured, memory_mib, transfer_ms = _layers(options)
    given = {path: read_any(require_path("given", path)) for path in options.given}
    layouts = layout(
        measured,
        options.num_devices,
        options.num_micro_batches,
        options.num_chunks,
        memory_mib if options.memory_mib is None else options.memory_mib,
        transfer_ms if options.transfer_ms is None else options.transfer_ms,
        given,
        options.work_limit,
    )
    if (best := layouts.best) is None:
        raise OptionError(min(layouts.rows, key=lambda row: row.status == NOT_APPLICABLE).note)
    files: dict[str, object] = {"layers.csv": measured.to_csv()} if measured.assumptions else {}
    orders = {}
    source = options.layers or options.model
    lines = [*_shown(layouts), *(f"{source}: {line}" for line in measured.assumptions)]
    lines += [f"{path}: only its layers of each stage count, not recomputation or sizes" for path in given]
    for row in layouts.rows:
        if row.pipeline is not None and row.schedule_found is not None:
            folder = f"{row.schedule}_{row.num_chunks}"
            texts, others = layout_files(row.pipeline, layouts.num_micro_batches, row.group)
            files |= {f"{folder}/{name}": text for name, text in texts.items()}
            files[f"{folder}/schedule.json"] = schedule_to_dict(row.schedule_found)
            orders[folder] = row.schedule_found
            lines += [f"{folder}: {line}" for line in others]
    return Result(
        figures={name: getattr(best, name) for name in ("layout", "num_chunks", "iteration_ms", "bound_ms")},
        tables={"layout": Table(LayoutRow, (*layouts.rows, *layouts.given.values()), COLUMNS)},
        files=files | {"trace.json": partial(write_perfetto, rows=orders)},
        sentences=lines,
        interrupted="the best layouts found so far are in" * layouts.interrupted,
    )


def _layers(options: LayoutCommandOptions) -> tuple[ModelLayers, float | None, float]:
    """Return the layers, and the memory (MiB) of a device and the transfer (ms) unless they are given.

    Raises:
        OptionError: Not one of layers and model is given, or an option of the other.
    """
    if (options.layers is None) == (options.model is None):
        raise OptionError("layers, model: give one of the two: a table of layers, or a model and its cluster")
    if options.model:
        refuse(options, ["measured_layout"], "layers is not given")
        return _of_model(options)
    refuse(options, _OF_MODEL, "model is not given")
    return read_measured(require_path("layers", options.layers), options.measured_layout), None, 0.0


def _of_model(options: LayoutCommandOptions) -> tuple[ModelLayers, float, float]:
    """Return the layers of a model by the costs of `schedsearch plan`; GPUs left over are data-parallel."""
    if options.cluster is None:
        raise OptionError("cluster: has no value; give the GPUs of model, as in cluster=h100_64")
    inputs = plan_inputs(PlanQuestion(batch=1, **shared_fields(PlanQuestion, options)))
    pipeline = options.tensor_parallel * options.num_devices
    data, left = divmod(inputs.cluster.num_gpus, pipeline)
    if left:
        wrong = f"{options.cluster} is no multiple of the {pipeline} GPUs of a pipeline, which are"
        raise OptionError(f"cluster: {wrong} tensor_parallel times num_devices; give another of the three")
    if options.expert_parallel > 1 and not any(layer.num_routes for layer in inputs.model.layers):
        raise OptionError(f"expert_parallel: {options.model} has no experts; leave it out")
    degrees = Degrees(options.tensor_parallel, options.num_devices, data, expert=options.expert_parallel)
    layout = Layout(degrees, options.micro_batch_size, options.num_micro_batches)
    assert isinstance(inputs.costs, FrameworkCosts), "computed ones"
    run = UniformRun(inputs.model, inputs.cluster, layout, inputs.costs.options, overlap=True)
    limit_gib = inputs.cluster.whole.memory_gib - PlanQuestion.reserve_gib
    layers, memory_mib, transfer_ms = layers_to_divide(run, limit_gib)
    if memory_mib <= 0 and options.memory_mib is None:
        raise OptionError("micro_batch_size: one backward is more than a GPU's memory; raise tensor_parallel")
    lines = (
        f"{layout_in_words(layout)}, batch {layout.batch}, on {in_words(inputs.cluster)}",
        f"{inputs.in_words}, without the optimizer's update",
        f"{memory_mib:,.0f} MiB of a GPU are left for weights and activations",
    )
    return replace(layers, assumptions=lines), memory_mib, transfer_ms


def _shown(layouts: BestLayouts) -> list[str]:
    """Return two lines for each layout: its time, and the layout."""
    lines = []
    for name, row in layouts.named_rows:
        head = f"{name}, {row.num_chunks} a device: "
        if row.iteration_ms is None:
            lines.append(f"{head}{row.status}; {row.note}")
            continue
        parts = [f"{head}{row.iteration_ms:,.6g} ms, {row.status}"]
        if row.bound_ms is not None and 0 < row.bound_ms < row.iteration_ms:
            parts.append(f"none is under {row.bound_ms:,.6g} ms")
        parts += [] if row.even_ms is None else [f"even layout {row.even_ms:,.6g} ms"]
        lines += ["; ".join([*parts, f"{row.peak_memory_mib:,.6g} MiB"]), f"    {row.layout}"]
    return lines
