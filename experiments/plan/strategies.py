"""`experiments.plan` with the default planner or Galvatron-BMW's: plans ranked, explained and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.config.run_record import output_directory
from experiments.plan.inputs import plan_inputs, shared_fields
from experiments.plan.options import BmwPlanner, DefaultPlanner, PlanQuestion
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns, write_json, write_text
from placements.placement_file import placement_to_yaml
from placements.planners.hybrid.decision_trees import Paradigm, TreeOptions
from placements.planners.hybrid.placing.shared_layers import PartCosts
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanStatus
from placements.planners.hybrid.search.layout_search import LayoutOptions
from placements.trainers.as_run import planned_by
from placements.trainers.files import export
from runtime.torch_pipelining.csv import in_loss_order, torch_order
from schedsearch.core.progress import PlanProgress
from schedsearch.figures.canvas import save as save_figure
from schedsearch.figures.perfetto import write_perfetto
from schedsearch.planning.explanation import explain, in_words, legend, ranking
from schedsearch.planning.layout_plans import planned_layout
from schedsearch.planning.planner import plan
from schedsearch.planning.plans import PLAN_COLUMNS, Plans, RankedPlan, capacities_gib
from schedsearch.planning.uniform_run import division_bound_ms
from schedsearch.schedule_file import schedule_to_dict

_MOST_ROWS = 1000
"""Layouts in the table of all, the best ones."""


def task(question: PlanQuestion, planner: DefaultPlanner | BmwPlanner) -> Result:
    """Plan; the figures are the best plan's.

    Raises:
        OptionError: An option is wrong.
    """
    model, cluster, costs, costs_in_words, is_sequence_parallel = plan_inputs(question)
    with PlanProgress() as show:
        plans = plan(
            model,
            cluster,
            question.batch,
            costs=costs,
            on_progress=show.planner,
            on_search=show.search,
            **_options(question, planner, is_sequence_parallel),
        )
    proved = [*_proved(plans), *_lines_of_layouts(plans)]
    explained = explain(plans, costs_in_words) + "\n".join(["", "```", *proved, "```", ""])
    files: dict[str, object] = {"plan.md": explained, "plans.json": plans.to_dict()}
    figures: dict[str, float | str] = {}
    lines, exports = list[str](), list[str]()
    if plans.proposed:
        best, training = plans.best, plans.best.training_figures(model)
        files |= {"plan.json": plan_to_dict(best.plan), "placement.yaml": placement_to_yaml(best.placement)}
        if best.schedule:
            files["schedule.json"] = schedule_to_dict(best.schedule)
            files["trace.json"] = partial(write_perfetto, rows={"planned": best.schedule})
        rate = {} if best.samples_per_s is None else {"samples_per_s": best.samples_per_s}
        figures = {"plan": best.name, **rate, **training.known, "num_gpus": best.plan.num_gpus}
        figures["gib"] = max(best.peaks_mib) / 1024
        lines.append(f"best plan: {training}")
        exports = export_best(plans, output_directory() / "export")
    return Result(
        figures=figures,
        tables=tables_of(plans),
        files=files,
        pictures={"plan": lambda path: save_figure(plans.plot(), path)} if plans.proposed else {},
        sentences=[
            f"{model.name} on {in_words(cluster)}",
            *text_columns(ranking(plans)),
            *lines,
            legend(plans),
            *proved,
            *(f"left out: {line}" for line in plans.left_out),
            costs_in_words,
            *exports,
        ],
        interrupted="the best plans found so far are in" * plans.interrupted,
    )


def _options(
    question: PlanQuestion, planner: DefaultPlanner | BmwPlanner, is_sequence_parallel: bool | None
) -> dict[str, Any]:
    """Return the options of `plan` that the planner has; costs may say whether sequences are parallel."""
    trees = shared_fields(TreeOptions, planner)
    trees["paradigms"] = tuple(map(Paradigm, planner.paradigms))
    if is_sequence_parallel is not None:
        trees["sequence_parallel"] = is_sequence_parallel
    options = PlanOptions(TreeOptions(**trees), **shared_fields(PlanOptions, planner, question))
    arguments: dict[str, Any] = {"options": options, "rank_by": planner.rank, "workers": planner.workers}
    if isinstance(planner, DefaultPlanner):
        layouts = LayoutOptions(planner.micro_batch_sizes, max_chunks=planner.max_chunks)
        arguments |= {"uniform": planner.uniform, "layouts": layouts, "shapes": planner.shapes}
    return arguments


def export_best(plans: Plans, directory: Path) -> list[str]:
    """Write the best plan for other systems; return a line of these, and of each other the reason."""
    best, plan = plans.best, plans.best.plan
    if best.run is not None:
        limit_gib = plans.layouts[plan.global_batch_size].limit_gib
        lines = export(planned_layout(best.run, limit_gib), directory)
        return [*lines, *([] if best.run.order is None else _export_order(best, directory))]
    if best.shape != "v_shape":
        return [f"not exported: other systems have no {best.shape} of layers each in its own strategy"]
    costs, capacities = PartCosts(plan.model, plans.costs), capacities_gib(plan, plans.options)
    return export(planned_by(best.rated, costs, capacities), directory)


def _export_order(best: RankedPlan, directory: Path) -> list[str]:
    """Write a layout's searched order for Megatron-LM and torch; return how to run it, and without it."""
    assert best.run is not None and best.schedule is not None, "a layout in a searched order"
    order = in_loss_order(best.schedule)
    blocks = tuple(replace(block, data_parallel=1) for block in order.placement.blocks)
    order = order.under(replace(order.placement, blocks=blocks, num_gpus=(), nodes=None))  # a rank a stage
    write_json(directory / "schedule.json", schedule_to_dict(order))
    write_text(directory / "schedule.csv", str(torch_order(order)))
    own_ms, by_hand_ms = best.run.iteration_ms, replace(best.run, order=None).iteration_ms
    return [
        "order: Megatron-LM runs schedule.json by runtime.hooks.megatron.MegatronOrder, without experts; "
        "torchtitan schedule.csv by --parallelism.pipeline_parallel_schedule_csv",
        f"order: without it an iteration takes {by_hand_ms:,.0f} ms, {by_hand_ms / own_ms - 1:.1%} more",
    ]


def tables_of(plans: Plans) -> dict[str, Table]:
    """Return the plans, and the best layouts by the formula where there are any."""
    rows = []
    for layouts in plans.layouts.values():
        for estimate in layouts.estimates[:_MOST_ROWS]:
            row = vars(estimate.layout.degrees) | vars(estimate.layout)
            del row["degrees"]
            row |= {"formula_ms": f"{estimate.time_ms:.1f}", "load_ms": f"{estimate.load_ms:.1f}"}
            row |= {"gib": f"{estimate.gib:.2f}", "fits": estimate.gib <= layouts.limit_gib}
            rows.append(row)
    tables = {"plans": Table(dict, plans.rows(), PLAN_COLUMNS)}
    return tables | ({"layouts": Table(dict, rows)} if rows else {})


def _lines_of_layouts(plans: Plans) -> Iterator[str]:
    """Yield a line about the layouts of each batch."""
    for batch, layouts in plans.layouts.items():
        known = "none fits"
        of_batch = (rated for rated in plans.proposed if rated.run and rated.plan.global_batch_size == batch)
        if (best := next(of_batch, None)) and best.run and best.iteration_ms and best.bound_ms:
            division_ms = division_bound_ms(best.run.layout, fmean(best.run.loads_ms))
            known = (
                f"{layouts.num_layouts - layouts.num_left} rated by the formula; {best.name} takes "
                f"{best.iteration_ms:,.0f} ms, in any order not less than {best.bound_ms:,.0f}, in any "
                f"division of its layers than {division_ms:,.0f}; no layout that fits takes "
                f"less than {layouts.bound_ms:,.0f} ms, in any division and order "
                f"({1 - layouts.bound_ms / best.iteration_ms:.1%} below it)"
            )
        yield f"layouts, batch {batch}: {known}"
        if layouts.num_left:
            why = "interrupted" if layouts.interrupted else "the time limit is over"
            yield f"layouts, batch {batch}: {why}: {layouts.num_left} were not looked at"


def _proved(plans: Plans) -> list[str]:
    """Return for each batch a line about chains of stages whose layers have strategies of their own."""
    lines = []
    for batch, search in plans.searches.items():
        known = "proved" if search.plans and search.status is PlanStatus.OPTIMAL else search.status.lower()
        if search.plans:
            known = f"{search.plans[0].time_ms:,.0f} ms by the formula, {known}"
        elif search.num_left == 0 and search.bound_ms > 0:
            known = "none by the formula is faster than the best plan"
        known += f", among stages under {plans.options.pipeline}, each layer in its own strategy"
        if search.status is PlanStatus.FEASIBLE:
            bound = f"no iteration is under {search.bound_ms:,.5g} ms ({search.gap_percent:.3g} % less)"
            known += f", {bound if search.bound_ms > 0 else 'nothing is proved yet'}"
        if search.num_left:
            why = "the time limit" if search.out_of_time else "an interrupt"
            known += f"; {why} ended the search with {search.num_left} combinations of numbers left"
        lines.append(f"strategies, batch {batch}: {known}")
    return lines
