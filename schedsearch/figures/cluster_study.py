"""Figures of a study of a cluster: what each run saves, and its power over the day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.canvas import Figure
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

_SHOWN = {"kwh": "energy", "average_jct_h": "completion"}
"""Figures of a run that are drawn, by their names in the picture."""


def draw_savings(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw energy and completion times of each row of a study as shares of its baseline's."""
    bars = {
        name: {row["run"]: 1 - row[f"{key}_saved"] for row in rows if row["baseline"]}
        for key, name in _SHOWN.items()
    }
    return draw_bars([BarPanel("each run over its baseline at the highest clocks", bars)], "share", width=7.0)


def draw_power_by_hour(kw_by_run: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the mean power of all GPUs in each hour of the day, by the name of the run."""
    curves = {
        name: [CurvePoint(hour + 0.5, kw) for hour, kw in enumerate(by_hour)]
        for name, by_hour in kw_by_run.items()
    }
    return draw_panels(
        [Panel("all GPUs, idle ones included", curves)], "hour of the day", "kW", "Mean power over the day"
    )
