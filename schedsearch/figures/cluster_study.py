"""Figures of a study of a cluster: what each run saves, and its power over the day."""

from __future__ import annotations

from matplotlib.figure import Figure

from schedsearch.cluster.planned_jobs.study import StudyResult
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.panels import Panel, Point, draw_panels

_SHOWN = {"kwh": "energy", "kg_co2": "CO2", "average_jct_h": "completion"}
"""Figures of a run that are drawn, by their names in the picture."""


def draw_savings(found: StudyResult) -> Figure:
    """Draw energy, carbon and completion times of each run as shares of its baseline's."""
    bars = {
        name: {row["run"]: 1 - row[f"{key}_saved"] for row in found.rows() if row["baseline"]}
        for key, name in _SHOWN.items()
    }
    return draw_bars([BarPanel("each run over its baseline at the highest clocks", bars)], "share", width=7.0)


def draw_power_by_hour(found: StudyResult) -> Figure:
    """Draw the mean power of all GPUs in each hour of the day."""
    curves = {
        name: [Point(hour + 0.5, kw) for hour, kw in enumerate(found.energy(name).kw_by_hour(found.end_s))]
        for name in found.outcomes
    }
    return draw_panels(
        [Panel("all GPUs, idle ones included", curves)], "hour of the day", "kW", "Mean power over the day"
    )
