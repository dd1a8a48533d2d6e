"""`experiments.plan` with layouts: every layer shared alike, as training frameworks are configured."""

from __future__ import annotations

from pathlib import Path

from experiments.plan.options import PlanCommandOptions
from experiments.plan.own_layouts import explained_csv, explained_lines
from experiments.plan.profiled_inputs import refuse_given, require_sizes
from placements.files import csv_text, write_text
from placements.planners.hybrid.search.layout_search import LayoutEstimate
from schedsearch.figures.canvas import save as save_figure
from schedsearch.figures.layout_memory import MemoryPanel, draw_layout_memory
from schedsearch.planning.layout_parts import memory_by_part
from schedsearch.planning.layout_plans import (
    SETTINGS,
    LayoutPlan,
    LayoutPlans,
    layout_in_words,
    settings_of,
)
from schedsearch.planning.plans import Plans

_ONLY_LAYOUTS = ("micro_batch_sizes", "max_chunks", "explain")
_ONLY_HYBRID = (
    *("profiles", "layer_times", "uniform", "sequence_parallel", "method", "stage_method", "pipeline"),
    *("idle_gpus", "shapes", "num_chunks", "seed", "deadline_ms"),
    "overlap_gradients",
)
"""Options of one of the two planners."""

COLUMNS = (*SETTINGS, "formula_ms", "load_ms", "gib", "fits")
"""Columns of the table of all layouts."""

MEMORY_COLUMNS = ("stage", "kind", "tensor", "gib", "held", "rule")
"""Columns of the table of the memory of the best layout."""

_MOST_ROWS = 1000
"""Layouts in that table, the best ones."""


def refuse_not_of(options: PlanCommandOptions) -> None:
    """Refuse what the planner that is asked for does not have.

    Raises:
        OptionError: An option is of another planner, or wrong.
    """
    refuse_given(options, ("flat",), "it is of planner=pipedream; leave it out")
    if options.planner == "hybrid":
        refuse_given(options, _ONLY_LAYOUTS, "it is of planner=layouts; leave it out")
    if options.planner == "layouts":
        refuse_given(options, _ONLY_HYBRID, "it is not of planner=layouts; leave it out")
    require_sizes(options)


def save_layouts(plans: Plans, directory: Path) -> None:
    """Write all layouts, the user's own beside the best, and the memory of the first plan if it is one."""
    if plans.layouts:
        layouts = (
            _row(found, each) for found in plans.layouts.values() for each in found.estimates[:_MOST_ROWS]
        )
        write_text(directory / "layouts.csv", csv_text(COLUMNS, layouts))
    for found in plans.layouts.values():
        if found.own and found.plans:
            write_text(directory / "explained.csv", explained_csv(found))
        best = plans.proposed[0].found if plans.proposed else None
        if isinstance(best, LayoutPlan) and best in found.plans:
            rows = (
                [stage, part.kind, part.name, f"{part.gib:.3f}", part.held, part.rule]
                for stage in range(best.run.plan.num_stages)
                for part in best.run.memory(stage)
            )
            write_text(directory / "memory.csv", csv_text(MEMORY_COLUMNS, rows))
            panels = _memory_panels(found, best, plans.options.reserve_gib)
            save_figure(draw_layout_memory(panels), directory / "memory")


def lines_of_layouts(plans: Plans) -> list[str]:
    """Return what is known of the layouts of each batch, and the user's own part by part."""
    lines = []
    for batch, found in plans.layouts.items():
        known = [_bound(found), _without_pipeline(found)] if found.plans else ["none fits"]
        known += [_not_looked_at(found)] if found.interrupted or found.left else []
        lines += [f"layouts, batch {batch}: {line}" for line in known]
        lines += explained_lines(found) if found.plans else []
    return lines


def _memory_panels(found: LayoutPlans, best: LayoutPlan, reserve_gib: float) -> list[MemoryPanel]:
    """Return what each stage holds by part, of the best layout and of the user's own."""
    return [
        MemoryPanel(
            layout_in_words(plan.layout),
            {f"stage {i}": memory_by_part(plan.run, i) for i in range(plan.run.plan.num_stages)},
            found.limit_gib + reserve_gib,
            reserve_gib,
        )
        for plan in (best, *(each for each in found.own if each.layout != best.layout))
    ]


def _row(found: LayoutPlans, each: LayoutEstimate) -> list[object]:
    settings = settings_of(each.layout)
    figures = f"{each.time_ms:.1f}", f"{each.load_ms:.1f}", f"{each.gib:.2f}", each.gib <= found.limit_gib
    return [*(settings[name] for name in SETTINGS), *figures]


def _bound(found: LayoutPlans) -> str:
    best_ms = found.plans[0].run.iteration_ms
    gap = 100 * (1 - found.bound_ms / best_ms)
    return (
        f"{found.num_fitting} of {len(found.estimates)} layouts fit by the formula; no schedule of one of "
        f"them is shorter than {found.bound_ms:,.0f} ms ({gap:.1f} % below the best)"
    )


def _not_looked_at(found: LayoutPlans) -> str:
    """Return what an interrupt or the time limit left out."""
    if not found.left:
        return f"interrupted: all layouts are rated, {len(found.plans)} of the best timed by a schedule"
    why = "interrupted" if found.interrupted else "time_limit_s is over"
    return f"{why}: {len(found.left)} were not looked at; the bound is that of the others"


def _without_pipeline(found: LayoutPlans) -> str:
    best, alone = found.plans[0].estimate, found.without_pipeline
    if alone is None:
        return "without a pipeline nothing fits"
    if alone.layout == best.layout:
        return "the best has no pipeline"
    more = 100 * (alone.time_ms / best.time_ms - 1)
    return f"without a pipeline, {layout_in_words(alone.layout)}: {more:.1f} % longer by the formula"
