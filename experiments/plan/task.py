"""The task of `experiments.plan`: the plans of a model on a cluster, ranked, explained and written."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, read_record, require, require_known
from experiments.config.run_record import output_directory
from experiments.plan.layout_plan import ONLY_HERE, plan_in_layouts
from experiments.plan.options import PlanCommandOptions
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
from placements.block import PlacementError
from placements.cluster import Cluster, GpusError, read_cluster
from placements.files import csv_text, write_json, write_text
from placements.models.calibration import Calibration
from placements.models.chain import ModelShape
from placements.models.costing.model_error import model_error_percent
from placements.models.costing.options import CostOptions
from placements.models.zoo import read_model
from placements.placement_file import placement_to_yaml
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.exports.as_run import PlanExport, RunLimits
from placements.planners.hybrid.exports.galvatron import to_galvatron
from placements.planners.hybrid.exports.megatron import megatron_text, to_megatron
from placements.planners.hybrid.exports.torchtitan import to_torchtitan, torchtitan_text
from placements.planners.hybrid.placing.planned_placement import balanced_chunks
from placements.planners.hybrid.placing.shared_layers import PartCosts
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanStatus, RatedPlan
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.parallel_plan import PlanError
from schedsearch.figures.canvas import save as save_figure
from schedsearch.modulo.progress import PlanProgress
from schedsearch.planning.explanation import explain, in_brief, in_words, legend, ranking
from schedsearch.planning.interleaved_run import interleaved_run
from schedsearch.planning.planner import plan
from schedsearch.planning.plans import PLAN_COLUMNS, Plans
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.validate import InvalidScheduleError

log = logging.getLogger(__name__)

_PLANNERS = ("hybrid", "layouts", "pipedream", "pipedream_2bw")

_WORDS = {
    PlanStatus.OPTIMAL: "plan proved",
    PlanStatus.FEASIBLE: "not proved",
    PlanStatus.INFEASIBLE: "infeasible",
    PlanStatus.UNKNOWN: "unknown",
}

_TRIAL_COLUMNS = ("batch", "stages", "gpus_per_stage", "micro_batches", "bound_ms", "time_ms", "reason")

_RECOMPUTE = ("none", "selective", "full")


def task(config: DictConfig) -> dict[str, float | str]:
    """Plan, write the plans and why they are as they are, and return the figures of the best."""
    options = read_record(config, PlanCommandOptions)
    require_known("planner", options.planner, _PLANNERS)
    if options.planner == "pipedream":
        return plan_profile(options)
    if options.planner == "pipedream_2bw":
        named, servers = _model(options), _cluster(options)
        return plan_two_bw(options, named, servers, _costs(options, named, servers).options)
    if options.planner == "layouts":
        return plan_in_layouts(options)
    refuse_given(options, ("flat",), "it is of planner=pipedream; leave it out")
    refuse_given(options, ONLY_HERE, "it is of planner=layouts; leave it out")
    why = "planner=hybrid counts states and activations alone; leave it out, or use planner=layouts"
    refuse_given(options, ("framework",), why)
    model, cluster, costs, costs_in_words, is_sequence_parallel = _inputs(options)
    with PlanProgress() as show:
        found = plan(
            model,
            cluster,
            _batch(options),
            options=_plan_options(options, is_sequence_parallel),
            costs=costs,
            rank_by=options.rank,
            shapes=_texts("shapes", options.shapes),
            num_chunks=options.num_chunks,
            search_time_limit_s=options.search_time_limit_s,
            deadline_ms=options.deadline_ms,
            seed=options.seed,
            on_progress=show.planner,
            on_search=show.search,
        )
    directory = output_directory()
    exports = save(found, directory, costs_in_words, options.num_chunks)
    log.info("%s on %s", model.name, in_words(cluster))
    log.info("%s", "\n".join(_shown(found)))
    if found.proposed:
        log.info("best: %s", in_brief(found.best))
    log.info("%s", legend(found))
    log.info("%s", "\n".join(_proved(found)))
    log.info("%s", costs_in_words)
    log.info("plan, placement and reasons: %s", directory)
    for line in exports:
        log.info("%s", line)
    if found.interrupted:
        raise Interrupted(f"interrupted; the best plans found so far are in {directory}")
    best = found.best
    rates = {"samples_per_s": best.samples_per_s, "formula_samples_per_s": best.formula_samples_per_s}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    return {"plan": best.name, **known, "num_gpus": best.num_gpus}


def save(plans: Plans, directory: Path, costs_in_words: str, num_chunks: int) -> list[str]:
    """Write the plans, the placement of the best, why it is as it is, and the forms of other systems.

    Returns:
        A line of the systems that it was exported to, and one of each other with the reason.
    """
    proved = "".join(f"\n{line}.\n" for line in _proved(plans))
    write_text(directory / "plan.md", explain(plans, costs_in_words) + proved)
    trials = ([batch, *trial[:-1], trial.reason] for batch, trial in plans.trials)
    write_text(directory / "trials.csv", csv_text(_TRIAL_COLUMNS, trials))
    write_text(directory / "plans.csv", csv_text(PLAN_COLUMNS, (row.values() for row in plans.rows())))
    write_json(directory / "plans.json", plans.to_dict())
    if not plans.proposed:
        return []
    best = plans.best
    write_json(directory / "plan.json", plan_to_dict(best.plan))
    write_text(directory / "placement.yaml", placement_to_yaml(best.candidate.placement))
    if best.ranked is not None and best.ranked.schedule is not None:
        write_json(directory / "schedule.json", schedule_to_dict(best.ranked.schedule))
    save_figure(plans.plot(), directory / "plan")
    return _export(plans, directory / "export", num_chunks)


def _export(plans: Plans, directory: Path, num_chunks: int) -> list[str]:
    """Write the best plan for other systems; return what was written, and for which it was not and why."""
    best = plans.best
    shape = best.candidate.shape
    if shape not in ("v_shape", "loop_shape"):
        return [f"not exported: other systems have no {shape}"]
    limits = RunLimits(PartCosts(best.rated.plan.model, plans.costs), best.capacities_gib(plans.options))
    if shape == "loop_shape":
        return _export_loop(best.rated, limits, num_chunks, directory)
    lines, written = [], []
    for system, (export, files) in _SYSTEMS.items():
        try:
            exported = export(best.rated, limits)
        except PlanError as error:
            lines.append(f"not exported to {system}: {error}")
            continue
        written.append(system)
        for name, text in files(exported).items():
            write_text(directory / name, text)
    return [*([f"exported to {', '.join(written)}: {directory}"] if written else []), *lines]


def _export_loop(planned: RatedPlan, limits: RunLimits, num_chunks: int, directory: Path) -> list[str]:
    """Write a plan with several chunks on each device, if interleaved 1F1B fits; see `_export`."""
    chunks = balanced_chunks(planned.plan, limits.costs, num_chunks)
    lines, written = ["not exported to Galvatron: its plans have no loop_shape"], []
    for system, export, text_of, name in (
        ("Megatron-LM", to_megatron, megatron_text, "megatron_arguments.txt"),
        ("torchtitan", to_torchtitan, torchtitan_text, "torchtitan_arguments.txt"),
    ):
        try:
            exported = export(planned, limits, chunks)
            ms, group = interleaved_run(exported.run.plan, limits, chunks)
        except (PlanError, InvalidScheduleError) as error:
            reason = error.reason if isinstance(error, InvalidScheduleError) else str(error)
            lines.append(f"not exported to {system}: {reason}")
            continue
        said = f"interleaved 1F1B in groups of {group} micro-batches takes {ms:,.0f} ms and fits"
        exported = exported._replace(differs=(*exported.differs, said))
        written.append(system)
        write_text(directory / name, text_of(exported))
    return [*([f"exported to {', '.join(written)}: {directory}"] if written else []), *lines]


def _galvatron_files(exported: PlanExport) -> dict[str, str]:
    said = "".join(f"{line}\n" for line in exported.differs)
    return {
        "galvatron_config.json": json.dumps(exported.options, indent=2) + "\n",
        "galvatron_differs.txt": said,
    }


_SYSTEMS = {
    "Galvatron": (to_galvatron, _galvatron_files),
    "Megatron-LM": (to_megatron, lambda exported: {"megatron_arguments.txt": megatron_text(exported)}),
    "torchtitan": (to_torchtitan, lambda exported: {"torchtitan_arguments.txt": torchtitan_text(exported)}),
}
"""Of each system: what makes its form of a plan, and what makes the files of that by their names."""


def _shown(plans: Plans) -> list[str]:
    """Return the ranking as columns of text, at most 80 wide."""
    rows = ranking(plans, is_brief=True)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]).rstrip() for row in rows
    ]


def _proved(plans: Plans) -> list[str]:
    """Return for each batch what is known of the planner's best plan, by its formula."""
    lines = []
    for batch, found in plans.searches.items():
        line = f"planner, batch {batch}: {_WORDS[found.status]}"
        if found.status == PlanStatus.FEASIBLE:
            bound = f"no iteration is shorter than {found.bound_ms:,.5g} ms ({found.gap_percent:.3g} % less)"
            line += f", {bound if found.bound_ms > 0 else 'nothing is proved yet'}"
        if found.num_left:
            why = "the time limit" if found.out_of_time else "an interrupt"
            line += f"; {why} ended the search with {found.num_left} combinations of numbers left"
        lines.append(line)
    return lines


def _inputs(options: PlanCommandOptions) -> PlanInputs:
    if options.profiles is not None:
        return profiled_inputs(options)
    model, cluster = _model(options), _cluster(options)
    costs = _costs(options, model, cluster)
    return PlanInputs(model, cluster, costs, _costs_in_words(options, costs, cluster))


def _model(options: PlanCommandOptions) -> ModelShape:
    sizes = {
        name: getattr(options, name)
        for name in ("num_layers", "sequence_length", "vocab_size", "imbalance", "precision")
        if getattr(options, name) is not None
    }
    try:
        return read_model(required_model(options), **sizes)
    except PlacementError as error:
        raise OptionError(str(error)) from None


def _cluster(options: PlanCommandOptions) -> Cluster:
    try:
        return read_cluster(
            options.cluster,
            gpus_per_node=options.gpus_per_node,
            node_bandwidth_gb_s=options.node_bandwidth_gb_s,
            link_bandwidth_gb_s=options.link_bandwidth_gb_s,
        )
    except GpusError as error:
        raise OptionError(str(error)) from None


def _costs(options: PlanCommandOptions, model: ModelShape, cluster: Cluster) -> ShapeCosts:
    if options.machine is not None:
        why = "machine has rates for all layers; leave out one of them"
        refuse_given(options, ("layer_times",), why)
    calibration = None if options.layer_times is None else Calibration.from_csv(options.layer_times)
    return ShapeCosts(
        model,
        CostOptions(
            options.model_flops_utilisation,
            options.output_layer_utilisation,
            options.memory_efficiency,
            options.overlap_slowdown,
            precision=model.precision,
            overlap_gradients=options.overlap_gradients,
            calibration=calibration,
            machine=measured_rates(options, cluster, model.precision),
        ),
    )


def _costs_in_words(options: PlanCommandOptions, costs: ShapeCosts, cluster: Cluster) -> str:
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
    for name in options.paradigms:
        require_known("paradigms", name, [each.value for each in Paradigm])
    for name in options.recompute:
        require_known("recompute", name, _RECOMPUTE)
    trees = TreeOptions(
        tuple(Paradigm(name) for name in options.paradigms),
        tuple(options.recompute),
        options.sequence_parallel or is_sequence_parallel,
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
