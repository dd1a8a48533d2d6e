"""A plan as a figure: the layers of each stage, how its GPUs share them, and the memory of a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import RatedPlan, SharedLayers
from schedsearch.figures.canvas import COLORS, ROW_HEIGHT, STYLE, Figure, legend_below

_CAPACITY_LINE: dict[str, Any] = {"color": "#D55E00", "linewidth": 1.2, "linestyle": "--"}

_CHARACTERS = 110
"""Characters of a label that go beside each other in the width of all layers."""


def draw_plan(
    rated: RatedPlan,
    names: Mapping[LayerStrategy, str],
    peaks_gib: Sequence[float],
    capacities_gib: Sequence[float],
    chunks: Sequence[tuple[int, range]] = (),
    shared: SharedLayers | None = None,
    title: str = "",
) -> Figure:
    """Draw a row for each stage: its layers in order, coloured by how its GPUs share them, and its memory.

    Layers on all GPUs go through all rows.

    Args:
        rated: The plan, with the memory of its stages.
        names: Name of each strategy in it, for the legend.
        peaks_gib: Peak memory of a GPU of each stage, shared layers included.
        capacities_gib: Memory of a GPU for states and activations, by stage.
        chunks: Stage and layers of each chunk, in order of the model; empty where a stage has one.
        shared: The layers on all GPUs.
        title: Shown above.
    """
    plan = rated.plan
    used = dict.fromkeys([*plan.strategies, *([] if shared is None else [shared.strategy])])
    colors = {strategy: COLORS[i % len(COLORS)] for i, strategy in enumerate(used)}
    with mpl.rc_context(STYLE):
        figure = Figure(12.0, 1.6 + 0.34 * plan.num_stages)
        layers, memory = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
        chunks = chunks or [(i, stage.layers) for i, stage in enumerate(plan.stages)]
        _draw_layers(layers, _bars(plan, chunks, shared), colors)
        _draw_memory(memory, peaks_gib, capacities_gib)
        of_stage = [
            [chunk for stage, chunk in chunks if stage == i and chunk] for i in range(plan.num_stages)
        ]
        rows = [
            f"stage {i}: GPUs {_span(stage.gpus)}{_kinds(plan, i)}{_divided(of_stage[i])}"
            for i, stage in enumerate(plan.stages)
        ]
        layers.set_yticks(range(plan.num_stages), rows)
        layers.set_ylim(plan.num_stages - 0.45, -0.55)
        layers.set_title(title, loc="left")
        legend_below(figure, [Patch(color=color, label=names[how]) for how, color in colors.items()])
    return figure


class _Bar(NamedTuple):
    """Equal layers of one stage, or of several on all GPUs.

    Attributes:
        rows: Their stages.
        left: Layers before them.
        number: Number of layers.
        name: Name of the layers.
        strategy: Strategy by which the GPUs share the layers.
    """

    rows: range
    left: int
    number: int
    name: str
    strategy: LayerStrategy


def _bars(plan: Plan, chunks: Sequence[tuple[int, range]], shared: SharedLayers | None) -> list[_Bar]:
    """Return the bars of all chunks, and the bars of layers on all GPUs between these."""
    places = () if shared is None else shared.places
    bars: list[_Bar] = []
    for stage, chunk in chunks:
        for (name, strategy), run in groupby(chunk, lambda i: (plan.layers[i].name, plan.strategies[i])):
            first, *others = run
            behind = first + 1 + len(others)
            between = (place for place in places if first < place < behind)  # where shared layers come
            for begin, end in pairwise(sorted({first, behind, *between})):
                left = begin + sum(place <= begin for place in places)
                bars.append(_Bar(range(stage, stage + 1), left, end - begin, name, strategy))
    if shared is None:
        return bars
    alike = groupby(enumerate(shared.layers), key=lambda pair: (places[pair[0]], pair[1].name))
    for (place, name), layers in alike:
        indices = [i for i, _ in layers]
        bars.append(_Bar(range(plan.num_stages), place + indices[0], len(indices), name, shared.strategy))
    return bars


def _draw_layers(axes: Axes, bars: Sequence[_Bar], colors: Mapping[LayerStrategy, str]) -> None:
    num_layers = max(bar.left + bar.number for bar in bars)
    for bar in bars:
        middle, height = (bar.rows[0] + bar.rows[-1]) / 2, len(bar.rows) - 1 + ROW_HEIGHT
        axes.barh(middle, bar.number, height, left=bar.left, color=colors[bar.strategy], edgecolor="white")
        is_tall = len(bar.rows) > 1
        label = f"{bar.number} {bar.name}{'s' * (bar.number > 1)}"
        if not is_tall and len(label) > _CHARACTERS * bar.number / num_layers:
            label = str(bar.number) if bar.number > 1 else ""
        if label:
            axes.text(
                bar.left + bar.number / 2,
                middle,
                label,
                ha="center",
                va="center",
                fontsize=8,
                color="white",
                rotation=90 if is_tall else 0,
            )
    axes.set_xlim(0, num_layers)
    axes.set_xlabel("layers of the model")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_memory(axes: Axes, peaks_gib: Sequence[float], capacities_gib: Sequence[float]) -> None:
    axes.barh(range(len(peaks_gib)), peaks_gib, ROW_HEIGHT, color="#BBBBBB")
    different = sorted(set(capacities_gib))
    for row, capacity in enumerate(capacities_gib):
        axes.vlines(capacity, row - 0.5, row + 0.5, **_CAPACITY_LINE)
    axes.set_xlim(0, max(*peaks_gib, *capacities_gib) * 1.05)
    listed = " and ".join(f"{capacity:.4g}" for capacity in different)
    axes.set_xlabel(f"peak of one GPU in GiB,\nof {listed} (dashed)")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _kinds(plan: Plan, stage: int) -> str:
    """Return the GPUs of a stage in words; empty if the cluster has one kind."""
    if len({nodes.gpu for nodes in plan.cluster.nodes}) == 1:
        return ""
    names = dict.fromkeys(name.removeprefix("NVIDIA ") for name, _ in plan.group(stage).pattern)
    return f", {' and '.join(names)}"


def _divided(chunks: Sequence[range]) -> str:
    """Return the number of layers and chunks of a stage as text; empty for a stage of one chunk."""
    number = sum(map(len, chunks))
    return f", {number} layers in {len(chunks)} chunks" if len(chunks) > 1 else ""


def _span(gpus: range) -> str:
    return str(gpus.start) if len(gpus) == 1 else f"{gpus.start}-{gpus.stop - 1}"
