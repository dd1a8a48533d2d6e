"""The task of `experiments.plan`: the plans of a model on a cluster, ranked, explained and written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from schedsearch.core.progress import PlanProgress

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require
from experiments.config.run_record import output_directory
from experiments.plan.layout_plan import lines_of_layouts, refuse_not_of, save_layouts
from experiments.plan.options import PlanCommandOptions
from experiments.plan.own_layouts import read_own_layouts
from experiments.plan.pipedream_plan import plan_profile
from experiments.plan.profiled_inputs import (
    PlanInputs,
    experts_in_words,
    measured_rates,
    profiled_inputs,
    refuse_given,
    required_model,
)
from experiments.plan.two_bw_plan import plan_two_bw
from placements.cluster import Cluster, read_cluster
from placements.files import csv_text, text_columns, write_json, write_text
from placements.models.calibration import Calibration
from placements.models.chain import ModelShape
from placements.models.costing.model_error import model_error_percent
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS
from placements.models.zoo import read_model
from placements.placement_file import placement_to_yaml
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.placing.shared_layers import PartCosts
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanStatus
from placements.planners.hybrid.search.layout_search import LayoutOptions
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.trainers.as_run import planned_by
from placements.trainers.files import export
from schedsearch.figures.canvas import save as save_figure
from schedsearch.planning.explanation import explain, in_words, legend, ranking
from schedsearch.planning.layout_plans import LayoutPlan
from schedsearch.planning.planner import in_bf16, plan
from schedsearch.planning.plans import PLAN_COLUMNS, Plans
from schedsearch.planning.trainer_runs import planned_layout, planned_loop
from schedsearch.schedule_file import schedule_to_dict

log = logging.getLogger(__name__)

_TRIAL_COLUMNS = ("batch", "stages", "gpus_per_stage", "micro_batches", "bound_ms", "time_ms", "reason")


def task(options: PlanCommandOptions) -> dict[str, float | str]:
    """Plan, write the plans and why they are as they are, and return the figures of the best."""
    if options.planner == "pipedream":
        return plan_profile(options, _cluster(options))
    if options.planner == "pipedream_2bw":
        named, servers = _model(options), _cluster(options)
        return plan_two_bw(options, named, servers, _costs(options, named, servers).options)
    refuse_not_of(options)
    model, cluster, costs, costs_in_words, is_sequence_parallel = _inputs(options)
    batch = _batch(options)
    if options.explain is not None and not isinstance(batch, int):
        raise OptionError(f"batch: {batch} is not one number, which explain needs; give one")
    with PlanProgress() as show:
        found = plan(
            model,
            cluster,
            batch,
            options=_plan_options(options, is_sequence_parallel),
            costs=costs,
            planner=options.planner,
            layouts=LayoutOptions(tuple(options.micro_batch_sizes), max_chunks=options.max_chunks),
            own=read_own_layouts(options.explain, cluster.num_gpus, batch) if isinstance(batch, int) else (),
            rank_by=options.rank,
            shapes=_texts("shapes", options.shapes),
            num_chunks=options.num_chunks,
            deadline_ms=options.deadline_ms,
            seed=options.seed,
            on_progress=show.planner,
            on_search=show.search,
            on_layouts=show.layouts,
        )
    directory = output_directory()
    exports = save(found, directory, costs_in_words)
    log.info("%s on %s", model.name, in_words(cluster))
    log.info("%s", "\n".join(text_columns(ranking(found, is_brief=True))))
    log.info("%s", legend(found))
    log.info("%s", "\n".join([*_proved(found), *(f"left out: {line}" for line in found.left_out)]))
    log.info("%s", costs_in_words)
    log.info("plan, placement and reasons: %s", directory)
    for line in exports:
        log.info("%s", line)
    if found.interrupted:
        raise Interrupted(f"interrupted; the best plans found so far are in {directory}")
    best = found.best
    rates = {"samples_per_s": best.samples_per_s, "formula_samples_per_s": best.formula_samples_per_s}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    return {"plan": best.name, **known, "num_gpus": best.num_gpus, "gib": max(best.peaks_mib) / 1024}


def save(plans: Plans, directory: Path, costs_in_words: str) -> list[str]:
    """Write the plans, the placement of the best, why it is as it is, and the forms of other systems.

    Returns:
        A line of the systems that it was exported to, and one of each other with the reason.
    """
    proved = "\n".join(["", "```", *_proved(plans), "```", ""])
    write_text(directory / "plan.md", explain(plans, costs_in_words) + proved)
    save_layouts(plans, directory)
    trials = ([batch, *trial[:-1], trial.reason] for batch, trial in plans.trials)
    write_text(directory / "trials.csv", csv_text(_TRIAL_COLUMNS, trials))
    write_text(directory / "plans.csv", csv_text(PLAN_COLUMNS, (row.values() for row in plans.rows())))
    write_json(directory / "plans.json", plans.to_dict())
    if not plans.proposed:
        return []
    best = plans.best
    write_json(directory / "plan.json", plan_to_dict(best.plan))
    write_text(directory / "placement.yaml", placement_to_yaml(best.placement))
    if best.ranked is not None and best.ranked.schedule is not None:
        write_json(directory / "schedule.json", schedule_to_dict(best.ranked.schedule))
    save_figure(plans.plot(), directory / "plan")
    return _export(plans, directory / "export")


def _export(plans: Plans, directory: Path) -> list[str]:
    """Write the best plan for other systems; return what was written, and for which it was not and why."""
    best = plans.best
    if isinstance(best.found, LayoutPlan):
        limit_gib = next(each.limit_gib for each in plans.layouts.values() if best.found in each.plans)
        return export(planned_layout(best.found.run, limit_gib), directory)
    shape, rated = best.shape, best.rated
    if shape not in ("v_shape", "loop_shape"):
        return [f"not exported: other systems have no {shape}"]
    costs = PartCosts(rated.plan.model, plans.costs)
    capacities_gib = best.capacities_gib(plans.options)
    if shape == "v_shape":
        return export(planned_by(rated, costs, capacities_gib), directory)
    chunks = [layers for _, layers in best.chunks]
    return export(planned_loop(rated.plan, costs, capacities_gib, chunks), directory)


def _proved(plans: Plans) -> list[str]:
    """Return for each batch what is known of the best plan, of chains of stages and of layouts."""
    lines, options = [], plans.options
    how = "all layers alike" if options.uniform else "each layer in its own strategy"
    for batch, found in plans.searches.items():
        status = "proved" if found.status == PlanStatus.OPTIMAL else found.status.lower()
        best = f"{found.plans[0].time_ms:,.0f} ms by the formula, " if found.plans else ""
        line = f"hybrid, batch {batch}: {best}{status} among stages under {options.pipeline}, {how}"
        if found.status == PlanStatus.FEASIBLE:
            bound = f"no iteration is shorter than {found.bound_ms:,.5g} ms ({found.gap_percent:.3g} % less)"
            line += f", {bound if found.bound_ms > 0 else 'nothing is proved yet'}"
        if found.num_left:
            why = "the time limit" if found.out_of_time else "an interrupt"
            line += f"; {why} ended the search with {found.num_left} combinations of numbers left"
        lines.append(line)
    return lines + lines_of_layouts(plans)


def _inputs(options: PlanCommandOptions) -> PlanInputs:
    if options.profiles is not None:
        return profiled_inputs(options)
    model, cluster = _model(options), _cluster(options)
    model = in_bf16(model) if options.precision is None else model
    costs = _costs(options, model, cluster)
    said = _costs_in_words(options, costs, cluster)
    return PlanInputs(model, cluster, costs, said, options.sequence_parallel)


def _model(options: PlanCommandOptions) -> ModelShape:
    sizes = {
        name: getattr(options, name)
        for name in ("num_layers", "sequence_length", "vocab_size", "imbalance", "precision")
        if getattr(options, name) is not None
    }
    return read_model(required_model(options), **sizes)


def _cluster(options: PlanCommandOptions) -> Cluster:
    return read_cluster(
        options.cluster,
        gpus_per_node=options.gpus_per_node,
        node_bandwidth_gb_s=options.node_bandwidth_gb_s,
        link_bandwidth_gb_s=options.link_bandwidth_gb_s,
    )


def _costs(options: PlanCommandOptions, model: ModelShape, cluster: Cluster) -> FrameworkCosts:
    if options.machine is not None:
        why = "machine has rates for all layers; leave out one of them"
        refuse_given(options, ("layer_times",), why)
    calibration = None if options.layer_times is None else Calibration.from_csv(options.layer_times)
    return FrameworkCosts(
        model,
        CostOptions(
            options.model_flops_utilisation,
            options.output_layer_utilisation,
            options.memory_efficiency,
            options.overlap_slowdown,
            precision=model.precision,
            overlap_gradients=options.overlap_gradients,
            overlap_tensor_parallel=options.overlap_tensor_parallel,
            overlap_weights=True,
            sends_tokens_once=options.sends_tokens_once,
            calibration=calibration,
            machine=measured_rates(options, cluster, model.precision),
            framework=FRAMEWORKS[options.framework],
        ),
    )


def _costs_in_words(options: PlanCommandOptions, costs: FrameworkCosts, cluster: Cluster) -> str:
    measured, calibration = "", costs.options.calibration
    if calibration is not None:
        error = model_error_percent(calibration, costs.model.chained.layers, cluster, costs.options)
        measured = f"; measured layer times of {options.layer_times}; computed ones differ by {error:.1f} %"
    if options.machine is not None:
        return f"costs: computed from shapes, and rates measured, of {options.machine}"
    return (
        "costs: computed from shapes and data sheets, layers at "
        f"{options.model_flops_utilisation:.0%} of the peak{experts_in_words(costs.model)}{measured}"
    )


def _plan_options(options: PlanCommandOptions, is_sequence_parallel: bool) -> PlanOptions:
    trees = TreeOptions(
        tuple(Paradigm(name) for name in options.paradigms),
        tuple(options.recompute),
        is_sequence_parallel,
        options.max_tensor_parallel,
        _numbers("expert_parallel", options.expert_parallel) or (1,),
    )
    return PlanOptions(
        trees,
        _numbers("num_stages", options.num_stages),
        _numbers("gpus_per_stage", options.gpus_per_stage),
        _numbers("num_micro_batches", options.num_micro_batches),
        options.method,
        options.stage_method,
        options.pipeline,
        options.idle_gpus,
        options.uniform,
        options.memory_gib,
        options.reserve_gib,
        options.num_plans,
        options.time_limit_s,
    )


def _batch(options: PlanCommandOptions) -> int | list[int]:
    if isinstance(options.batch, int):
        require(options.batch > 0, "batch", options.batch, "a number of samples above 0")
        return options.batch
    return list(_numbers("batch", options.batch) or ())


def _numbers(where: str, values: list[Any] | None) -> tuple[int, ...] | None:
    if values is None:
        return None
    require(bool(values), where, values, "a list with a number", "give one, or null")
    for value in values:
        require(type(value) is int and value > 0, where, value, "a whole number above 0")
    return tuple(values)


def _texts(where: str, values: list[Any]) -> list[str]:
    for value in values:
        require(isinstance(value, str), where, value, "a name")
    return values
