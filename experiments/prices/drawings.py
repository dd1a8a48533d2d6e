"""Figures of the savings of strategies, like the dissertation's Fig. 6.5 and 6.6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from schedsearch.cluster.prices.study import DYNAMIC, MULTI_CLOUD, Reduction
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.canvas import COLUMN_INCHES, save_widths
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

_WIDE_INCHES = 9.0

_MODELS_OF_PANEL = {_WIDE_INCHES: 6, COLUMN_INCHES: 3}
"""As many have room beside each other, by the width of the figure."""

SHOWN = {"preemption": "dynamic", "gpu_type": "GPU type", "packed": "multi-GPU", "multi_cloud": "multi-cloud"}
"""Names of strategies as the dissertation's figures have them."""


def save_reductions(savings: Sequence[Reduction], path: Path) -> None:
    """Draw the savings, a panel for each length and for every few models (Fig. 6.5)."""
    wide, column = (
        draw_bars(
            [
                BarPanel(f"cost of the baseline / cost, {days:g} days", groups)
                for days in dict.fromkeys(saving.days for saving in savings)
                for groups in _groups([saving for saving in savings if saving.days == days], size)
            ],
            "reduction",
            width=width,
        )
        for width, size in _MODELS_OF_PANEL.items()
    )
    save_widths(wide, column, path)


def _groups(savings: Sequence[Reduction], size: int) -> list[dict[str, dict[str, float | None]]]:
    """Return the savings of each model, in panels of a few models each."""
    models = list(dict.fromkeys(saving.model for saving in savings))
    of_model: dict[str, dict[str, float | None]] = {model: {} for model in models}
    for saving in savings:
        of_model[saving.model][SHOWN.get(saving.strategy, saving.strategy)] = saving.reduction
    parts = [models[i : i + size] for i in range(0, len(models), size)]
    return [{model.replace(" (", "\n("): of_model[model] for model in part} for part in parts]


def save_durations(savings: Sequence[Reduction], path: Path) -> None:
    """Draw the saving of moving over staying with the best offer at the start, by length (Fig. 6.6)."""
    dollars = {(saving.model, saving.days, saving.strategy): saving.mean_dollars for saving in savings}
    curves: dict[str, list[CurvePoint]] = {}
    for model, days in sorted({(saving.model, saving.days) for saving in savings}):
        ratio = dollars[model, days, MULTI_CLOUD.name] / dollars[model, days, DYNAMIC.name]
        curves.setdefault(model, []).append(CurvePoint(days, ratio))
    panels = [Panel(model.replace("batch size ", ""), {"dynamic": curve}) for model, curve in curves.items()]
    title = "Cost of staying with the first offer / cost of moving (batch size)"
    texts = "length (days)", "staying / moving", title
    wide, column = (draw_panels(panels, *texts, width=width) for width in (None, COLUMN_INCHES))
    save_widths(wide, column, path)
