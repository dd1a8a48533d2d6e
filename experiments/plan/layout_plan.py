"""`experiments.plan` with layouts: every layer shared alike, as training frameworks are configured."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_args

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require, require_known
from experiments.config.run_record import output_directory
from experiments.plan.options import PlanCommandOptions
from experiments.plan.own_layouts import (
    explained_csv,
    explained_lines,
    explained_markdown,
    read_own_layouts,
)
from experiments.plan.profiled_inputs import experts_in_words, measured_rates, refuse_given
from placements.cluster import read_cluster
from placements.files import csv_text, write_json, write_text
from placements.layouts.framework_files import framework_files
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS
from placements.models.parallel import Recompute
from placements.models.zoo import read_model
from placements.planners.hybrid.exports.as_run import decoder_layer, plan_layout
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.search.layout_search import LayoutEstimate, LayoutOptions
from placements.planners.parallel_plan import PlanError
from schedsearch.figures.canvas import save as save_figure
from schedsearch.figures.layout_memory import MemoryPanel, draw_layout_memory
from schedsearch.modulo.progress import PlanProgress
from schedsearch.planning.explanation import table
from schedsearch.planning.layout_parts import memory_by_part
from schedsearch.planning.layout_plans import LayoutPlan, LayoutPlans, layout_in_words, plan_layouts
from schedsearch.planning.uniform_run import UniformRun
from schedsearch.schedule_file import schedule_to_dict

log = logging.getLogger(__name__)

_OWN = (
    *("planner", "model", "cluster", "batch", "num_layers", "sequence_length", "vocab_size", "precision"),
    "imbalance",
    *("framework", "machine", "micro_batch_sizes", "max_chunks", "max_tensor_parallel", "recompute"),
    *("gpus_per_node", "node_bandwidth_gb_s", "link_bandwidth_gb_s", "memory_gib", "reserve_gib"),
    *("num_plans", "model_flops_utilisation", "output_layer_utilisation", "memory_efficiency"),
    *("overlap_slowdown", "overlap_tensor_parallel", "sends_tokens_once", "explain"),
)
"""Options that this planner has."""

ONLY_HERE = (
    *("micro_batch_sizes", "max_chunks", "overlap_tensor_parallel", "sends_tokens_once"),
    "explain",
)
"""Options that no other planner has."""

_RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)

COLUMNS = (
    *("tensor", "pipeline", "chunks", "context", "expert", "whole_experts", "data", "zero"),
    *("micro_batch_size", "num_micro_batches", "recompute", "recomputed_layers"),
    *("formula_ms", "load_ms", "gib", "fits"),
)
"""Columns of the table of all layouts."""

MEMORY_COLUMNS = ("stage", "kind", "tensor", "gib", "held", "rule")
"""Columns of the table of the memory of the best layout."""

_MOST_ROWS = 1000
"""Layouts in that table, the best ones."""


def plan_in_layouts(options: PlanCommandOptions) -> dict[str, float | str]:
    """Plan, write the best layouts and why they are the best, and return the figures of the best.

    Raises:
        OptionError: An option is wrong or of another planner.
        ValueError: The model or the cluster is wrong, or nothing fits.
    """
    others = [each.name for each in fields(options) if each.name not in _OWN]
    refuse_given(options, others, "it is not of planner=layouts; leave it out")
    require_known("framework", options.framework, tuple(FRAMEWORKS))
    for name in options.recompute:
        require_known("recompute", name, _RECOMPUTE)
    sizes_given = options.micro_batch_sizes
    require(
        bool(sizes_given) and all(type(size) is int and size > 0 for size in sizes_given),
        *("micro_batch_sizes", sizes_given, "a list of whole numbers above 0", "give some, as [1,2,4]"),
    )
    if not isinstance(options.batch, int):
        raise OptionError(f"batch: {options.batch} is not one number, which planner=layouts needs; give one")
    sizes = {
        name: getattr(options, name)
        for name in ("num_layers", "sequence_length", "vocab_size", "imbalance", "precision")
        if getattr(options, name) is not None
    }
    if options.model is None:
        raise OptionError("model: is missing; give one, such as llama31_405b or a config.json")
    model = read_model(options.model, **({"precision": "bf16"} | sizes))
    cluster = read_cluster(
        options.cluster,
        gpus_per_node=options.gpus_per_node,
        node_bandwidth_gb_s=options.node_bandwidth_gb_s,
        link_bandwidth_gb_s=options.link_bandwidth_gb_s,
    )
    machine = measured_rates(options, cluster, model.precision)
    costs = CostOptions(
        options.model_flops_utilisation,
        options.output_layer_utilisation,
        options.memory_efficiency,
        options.overlap_slowdown,
        precision=model.precision,
        machine=machine,
        framework=FRAMEWORKS[options.framework],
        overlap_tensor_parallel=options.overlap_tensor_parallel,
        sends_tokens_once=options.sends_tokens_once,
        overlap_weights=True,
        exchanges_apart=True,
    )
    layouts = LayoutOptions(
        tuple(options.micro_batch_sizes),
        options.max_tensor_parallel,
        max_chunks=options.max_chunks,
        recompute=tuple(options.recompute),
        memory_gib=options.memory_gib,
        reserve_gib=options.reserve_gib,
    )
    own = read_own_layouts(options.explain, cluster.num_gpus, options.batch)
    with PlanProgress() as show:
        found = plan_layouts(
            *(model, cluster, options.batch, costs, layouts, options.num_plans),
            on_progress=show.layouts,
            own=own,
        )
    if not found.plans and found.interrupted:
        raise Interrupted(f"interrupted; none of the {len(found.estimates)} layouts rated so far fits")
    if not found.plans:
        raise OptionError(_why_none(found))
    figures = _save(found, options.machine, options.reserve_gib)
    if found.interrupted:
        raise Interrupted(f"interrupted; the best layouts found so far are in {output_directory()}")
    return figures


def _why_none(found: LayoutPlans) -> str:
    smallest = found.smallest
    if smallest is None:
        return (
            f"cluster: no layout of {found.model.name} divides {found.cluster.num_gpus} GPUs and the batch; "
            "give other numbers"
        )
    return (
        f"cluster: no layout fits {found.limit_gib:.1f} GiB of each of the {found.cluster.num_gpus} GPUs; "
        f"the smallest, {layout_in_words(smallest.layout)}, needs {smallest.gib:.1f} GiB; use more GPUs or "
        "larger ones"
    )


def _save(found: LayoutPlans, machine: str | None, reserve_gib: float) -> dict[str, float | str]:
    directory, best = output_directory(), found.plans[0]
    write_text(directory / "plan.md", explain_layouts(found))
    write_text(directory / "layouts.csv", csv_text(COLUMNS, map(_row(found), found.estimates[:_MOST_ROWS])))
    write_text(directory / "memory.csv", _memory_csv(best.run))
    save_figure(draw_layout_memory(_memory_panels(found, reserve_gib)), directory / "memory")
    if found.own:
        write_text(directory / "explained.csv", explained_csv(found))
    write_json(directory / "plan.json", plan_to_dict(best.run.plan))
    write_json(directory / "schedule.json", schedule_to_dict(best.run.schedule))
    lines = export_layout(best.run, directory / "export")
    for i, plan in enumerate(found.plans):
        log.info("%d. %s", i + 1, _in_brief(plan))
    log.info("%s", _bound(found))
    log.info("%s", _without_pipeline(found))
    if found.own:
        log.info("%s", "\n".join(explained_lines(found)))
    if found.interrupted:
        log.info("%s", _not_looked_at(found))
    sheet = f"shares of the data sheet{experts_in_words(found.model)}"
    rates = sheet if machine is None else f"measured, of {machine}"
    for line in lines:
        log.info("%s", line)
    log.info("rates: %s; plan and all layouts: %s", rates, directory)
    return {
        "plan": layout_in_words(best.layout),
        "iteration_ms": best.run.iteration_ms,
        "samples_per_s": best.samples_per_s,
        "gib": best.gib,
        "bound_ms": found.bound_ms,
        "num_gpus": best.layout.degrees.num_gpus,
    }


def export_layout(run: UniformRun, directory: Path) -> list[str]:
    """Write a pipeline's layout for training frameworks; return a line for what cannot be said."""
    if run.layout.degrees.pipeline == 1:
        return []
    try:
        decoder_layer(run.plan, "training frameworks")
    except PlanError as error:
        return [f"not exported: {error}"]
    found = plan_layout(run.plan, run.chunks)
    files = framework_files(found, run.layout.num_micro_batches)
    for name, text in files.texts.items():
        write_text(directory / name, text)
    return [f"export: {line}" for line in files.lines]


def _memory_csv(run: UniformRun) -> str:
    rows = [
        [stage, part.kind, part.name, f"{part.gib:.3f}", part.held, part.rule]
        for stage in range(run.plan.num_stages)
        for part in run.memory(stage)
    ]
    return csv_text(MEMORY_COLUMNS, rows)


def _memory_panels(found: LayoutPlans, reserve_gib: float) -> list[MemoryPanel]:
    """Return what each stage holds by part, of the best layout and of the user's own."""
    return [
        MemoryPanel(
            layout_in_words(plan.layout),
            {f"stage {i}": memory_by_part(plan.run, i) for i in range(plan.run.plan.num_stages)},
            found.limit_gib + reserve_gib,
            reserve_gib,
        )
        for plan in (found.plans[0], *found.own)
    ]


def _row(found: LayoutPlans) -> Callable[[LayoutEstimate], list[object]]:
    def row(each: LayoutEstimate) -> list[object]:
        layout, degrees = each.layout, each.layout.degrees
        return [
            *(degrees.tensor, degrees.pipeline, degrees.chunks, degrees.context, degrees.expert),
            *(degrees.whole_experts, degrees.data, layout.zero, layout.micro_batch_size),
            *(layout.num_micro_batches, layout.recompute, layout.recomputed_layers),
            *(f"{each.time_ms:.1f}", f"{each.load_ms:.1f}", f"{each.gib:.2f}"),
            each.gib <= found.limit_gib,
        ]

    return row


def explain_layouts(found: LayoutPlans) -> str:
    """Return the best layouts, the bound, time and memory of the best by part, as Markdown."""
    head = ["layout", "iteration (ms)", "formula (ms)", "samples/s", "GiB"]
    rows = [
        [
            layout_in_words(plan.layout),
            f"{plan.run.iteration_ms:,.0f}",
            f"{plan.estimate.time_ms:,.0f}",
            f"{plan.samples_per_s:.4g}",
            f"{plan.gib:.1f}",
        ]
        for plan in found.plans
    ]
    best = found.plans[0]
    stage = best.run.gib_by_stage.index(best.gib)
    parts = [["kind", "tensor", "GiB", "micro-batches", "rule"]] + [
        [part.kind, part.name, f"{part.gib:.2f}", str(part.held), part.rule]
        for part in best.run.memory(stage)
    ]
    return "\n".join(
        [
            f"# {found.model.name} on {found.cluster.num_gpus} GPUs\n",
            *table([head, *rows]),
            "",
            f"{_bound(found)}.\n",
            f"{_capitalised(_without_pipeline(found))}.\n",
            *([f"{_capitalised(_not_looked_at(found))}.\n"] if found.interrupted else []),
            *explained_markdown(found),
            f"## Memory of stage {stage} of the best, the fullest\n",
            *table(parts),
            "",
        ]
    )


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _in_brief(plan: LayoutPlan) -> str:
    return (
        f"{layout_in_words(plan.layout)}: {plan.run.iteration_ms:,.0f} ms, {plan.samples_per_s:.4g} "
        f"samples/s, {plan.gib:.1f} GiB"
    )


def _bound(found: LayoutPlans) -> str:
    best_ms = found.plans[0].run.iteration_ms
    gap = 100 * (1 - found.bound_ms / best_ms)
    return (
        f"{found.num_fitting} of {len(found.estimates)} layouts fit by the formula; no schedule of one of "
        f"them is shorter than {found.bound_ms:,.0f} ms ({gap:.1f} % below the best)"
    )


def _not_looked_at(found: LayoutPlans) -> str:
    """Return what an interrupt left out."""
    if not found.left:
        return f"interrupted: all layouts are rated, {len(found.plans)} of the best timed by a schedule"
    first = layout_in_words(found.left[0])
    tensors = ", ".join(map(str, sorted({each.degrees.tensor for each in found.left})))
    return (
        f"interrupted: {len(found.left)} layouts from {first} on, of TP {tensors}, were not looked at; the "
        "bound is that of the others"
    )


def _without_pipeline(found: LayoutPlans) -> str:
    best, alone = found.plans[0].estimate, found.without_pipeline
    if alone is None:
        return "without a pipeline nothing fits"
    if alone.layout == best.layout:
        return "the best has no pipeline"
    more = 100 * (alone.time_ms / best.time_ms - 1)
    return f"without a pipeline, {layout_in_words(alone.layout)}: {more:.1f} % longer by the formula"
