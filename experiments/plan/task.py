"""The task of `experiments.plan`: the plans of a model on a cluster, ranked, explained and written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require
from experiments.config.run_record import output_directory
from experiments.plan.inputs import (
    cluster_of,
    computed_costs,
    model_of,
    plan_inputs,
    refuse_not_of_planner,
)
from experiments.plan.options import PlanCommandOptions
from experiments.plan.own_layouts import lines_of_layouts, read_own_layouts, save_layouts
from experiments.plan.pipedream_plan import plan_profile
from experiments.plan.two_bw_plan import plan_two_bw
from placements.files import csv_text, text_columns, write_json, write_text
from placements.placement_file import placement_to_yaml
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.placing.shared_layers import PartCosts
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanStatus
from placements.planners.hybrid.search.layout_search import LayoutOptions
from placements.trainers.as_run import planned_by
from placements.trainers.files import export
from schedsearch.core.progress import PlanProgress
from schedsearch.figures.canvas import save as save_figure
from schedsearch.planning.explanation import explain, in_words, legend, ranking
from schedsearch.planning.layout_plans import planned_layout
from schedsearch.planning.planner import plan
from schedsearch.planning.plans import PLAN_COLUMNS, Plans, capacities_gib
from schedsearch.schedule_file import schedule_to_dict

log = logging.getLogger(__name__)

_TRIAL_COLUMNS = ("batch", "stages", "gpus_per_stage", "micro_batches", "bound_ms", "time_ms", "reason")


def task(options: PlanCommandOptions) -> dict[str, float | str]:
    """Plan, write the plans and why they are as they are, and return the figures of the best."""
    refuse_not_of_planner(options)
    if options.planner == "pipedream":
        return plan_profile(options, cluster_of(options))
    if options.planner == "pipedream_2bw":
        named, servers = model_of(options), cluster_of(options)
        return plan_two_bw(options, named, servers, computed_costs(options, named, servers).options)
    model, cluster, costs, costs_in_words, is_sequence_parallel = plan_inputs(options)
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
            shapes=options.shapes,
            num_chunks=options.num_chunks,
            seed=options.seed,
            on_progress=show.planner,
            on_search=show.search,
            on_layouts=show.layouts,
        )
    directory = output_directory()
    proved = [*_proved(found), *lines_of_layouts(found)]
    exports = save(found, directory, costs_in_words, proved)
    log.info("%s on %s", model.name, in_words(cluster))
    lines = [*text_columns(ranking(found)), legend(found), *proved]
    lines += [*(f"left out: {line}" for line in found.left_out), costs_in_words]
    for line in (*lines, f"plan, placement and reasons: {directory}", *exports):
        log.info("%s", line)
    if found.interrupted:
        raise Interrupted(f"interrupted; the best plans found so far are in {directory}")
    best = found.best
    rates = {"samples_per_s": best.samples_per_s}
    if best.formula_ms is not None:
        rates["formula_samples_per_s"] = 1e3 * best.plan.global_batch_size / best.formula_ms
    known = {name: rate for name, rate in rates.items() if rate is not None}
    return {"plan": best.name, **known, "num_gpus": best.plan.num_gpus, "gib": max(best.peaks_mib) / 1024}


def save(plans: Plans, directory: Path, costs_in_words: str, proved: list[str]) -> list[str]:
    """Write the plans, the placement of the best, why it is as it is, and the forms of other systems.

    Returns:
        A line of the systems that it was exported to, and one of each other with the reason.
    """
    text = explain(plans, costs_in_words) + "\n".join(["", "```", *proved, "```", ""])
    write_text(directory / "plan.md", text)
    save_layouts(plans, directory)
    trials = ([batch, *trial] for batch, found in plans.searches.items() for trial in found.trials)
    write_text(directory / "trials.csv", csv_text(_TRIAL_COLUMNS, trials))
    write_text(directory / "plans.csv", csv_text(PLAN_COLUMNS, (row.values() for row in plans.rows())))
    write_json(directory / "plans.json", plans.to_dict())
    if not plans.proposed:
        return []
    best = plans.best
    write_json(directory / "plan.json", plan_to_dict(best.plan))
    write_text(directory / "placement.yaml", placement_to_yaml(best.placement))
    if best.schedule is not None:
        write_json(directory / "schedule.json", schedule_to_dict(best.schedule))
    save_figure(plans.plot(), directory / "plan")
    return _export(plans, directory / "export")


def _export(plans: Plans, directory: Path) -> list[str]:
    """Write the best plan for other systems; return what was written, and for which it was not and why."""
    best, plan = plans.best, plans.best.plan
    if best.run is not None:
        limit_gib = plans.layouts[plan.global_batch_size].limit_gib
        return export(planned_layout(best.run, limit_gib), directory)
    if best.shape != "v_shape":
        return [f"not exported: other systems have no {best.shape} of layers each in its own strategy"]
    costs, capacities = PartCosts(plan.model, plans.costs), capacities_gib(plan, plans.options)
    return export(planned_by(best.rated, costs, capacities), directory)


def _proved(plans: Plans) -> list[str]:
    """Return for each batch what is known of the best plan of chains of stages."""
    lines, options = [], plans.options
    for batch, found in plans.searches.items():
        status = "proved" if found.status == PlanStatus.OPTIMAL else found.status.lower()
        best = f"{found.plans[0].time_ms:,.0f} ms by the formula, " if found.plans else ""
        line = f"hybrid, batch {batch}: {best}{status} among stages under {options.pipeline}, each layer in "
        line += "its own strategy"
        if found.status == PlanStatus.FEASIBLE:
            bound = f"no iteration is shorter than {found.bound_ms:,.5g} ms ({found.gap_percent:.3g} % less)"
            line += f", {bound if found.bound_ms > 0 else 'nothing is proved yet'}"
        if found.num_left:
            why = "the time limit" if found.out_of_time else "an interrupt"
            line += f"; {why} ended the search with {found.num_left} combinations of numbers left"
        lines.append(line)
    return lines


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
