"""A plan as a figure: the layers of each stage, how its GPUs share them, and the memory of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.plan_options import RatedPlan
from schedsearch.figures.canvas import ROW_HEIGHT, STYLE, legend_below

_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_CAPACITY_LINE: dict[str, Any] = {"color": "#D55E00", "linewidth": 1.2, "linestyle": "--"}


def draw_plan(
    rated: RatedPlan, names: dict[LayerStrategy, str], capacities_gib: Sequence[float], title: str = ""
) -> Figure:
    """Draw a row for each stage: its layers in order, coloured by how its GPUs share them, and its memory.

    Args:
        rated: The plan and what its stages hold.
        names: Of each strategy in it, for the legend.
        capacities_gib: What each GPU of a stage has for states and activations, by stage.
        title: Shown above.
    """
    plan = rated.plan
    colors = {
        strategy: _COLORS[i % len(_COLORS)] for i, strategy in enumerate(dict.fromkeys(plan.strategies))
    }
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12.0, 1.6 + 0.34 * plan.num_stages), layout="constrained")
        layers, memory = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
        _draw_layers(layers, rated, colors)
        _draw_memory(memory, [stage.peak_mib / 1024 for stage in rated.stages], capacities_gib)
        rows = [f"stage {i}: GPUs {_span(stage.gpus)}" for i, stage in enumerate(plan.stages)]
        layers.set_yticks(range(plan.num_stages), rows)
        layers.set_ylim(plan.num_stages - 0.45, -0.55)
        layers.set_title(title, loc="left")
        legend_below(figure, [Patch(color=color, label=names[how]) for how, color in colors.items()])
    return figure


def _draw_layers(axes: Axes, rated: RatedPlan, colors: dict[LayerStrategy, str]) -> None:
    for row in range(rated.plan.num_stages):
        place = rated.plan.stages[row].layers.start
        for layer, strategy, count in rated.plan.runs(row):
            axes.barh(row, count, ROW_HEIGHT, left=place, color=colors[strategy], edgecolor="white")
            if count >= len(rated.plan.model.layers) / 24:
                axes.text(
                    place + count / 2,
                    row,
                    f"{count} {layer.name}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white",
                )
            place += count
    axes.set_xlim(0, len(rated.plan.model.layers))
    axes.set_xlabel("layers of the model")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_memory(axes: Axes, peaks_gib: Sequence[float], capacities_gib: Sequence[float]) -> None:
    axes.barh(range(len(peaks_gib)), peaks_gib, ROW_HEIGHT, color="#BBBBBB")
    different = sorted(set(capacities_gib))
    for each in different:
        axes.axvline(each, **_CAPACITY_LINE)
    axes.set_xlim(0, max(*peaks_gib, *capacities_gib) * 1.05)
    listed = " and ".join(f"{each:.4g}" for each in different)
    axes.set_xlabel(f"peak of one GPU in GiB,\nof {listed} (dashed)")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _span(gpus: range) -> str:
    return str(gpus.start) if len(gpus) == 1 else f"{gpus.start}-{gpus.stop - 1}"
