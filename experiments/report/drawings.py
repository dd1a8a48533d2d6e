"""The figures of a page as Bokeh's documents: axes, glyphs and curves, of which the page's scripts fill some.

The only module that knows Bokeh. Rows of a timeline count from 0 at the top: for each schedule the rows
of its title, as many as its lines need, then one for each device, and for each of its streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import bokeh
from bokeh.core.properties import value
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, DataRange1d, FixedTicker, NumeralTickFormatter, Range1d
from bokeh.palettes import Cividis256, Plasma256, Viridis256
from bokeh.plotting import figure

from experiments.report.html_report import PageProgram
from experiments.report.page_data import PageData, PagePlans, packed
from placements.streams import lane_name
from schedsearch.energy import FrequencyPlan
from schedsearch.figures.timeline import KIND_COLOR, KIND_NAME, SHARED_COLOR

ACCENT = "#0062A3"
"""Colour of the reader's choice: the point of the frontier, and the block that was clicked."""

_INK, _SOFT, _LINE, _IDLE = "#1D2329", "#57606A", "#D5DAE0", "#F1F3F5"
_CAPACITY = "#D55E00"
_FONT = "system-ui, sans-serif"

_LEFT_PX, _RIGHT_PX, _AXIS_PX = 60, 12, 52
"""Room besides the rows."""

_BESIDE_NAME_PX, _LETTER_PX = 32, 6
"""Room on the left besides the names of rows, and for each of their letters."""

_MOST_ZOOM = 1e5
"""Times that the whole time axis may be magnified."""

HALF_ROW = 0.43
"""Half of a block's height; rows are 1 apart."""


def page_program(data: PageData, others: Mapping[str, Sequence[FrequencyPlan]] | None = None) -> PageProgram:
    """Return the scripts of a page: Bokeh, ours, its figures by the name of their place, and their data.

    The frontier is drawn beside other plans, by their titles in its legend.
    """
    items = {"timeline": json_item(_timelines(data))}
    if data.plans is not None:
        items["frontier"] = json_item(_frontier(data.plans, others or {}))
    if data.progress:
        items["progress"] = json_item(_progress())
    kinds = {str(kind.value): [KIND_NAME[kind], KIND_COLOR[kind], SHARED_COLOR[kind]] for kind in KIND_NAME}
    looks = {
        "kinds": kinds,
        "palettes": {"micro_batch": Cividis256, "clock": Viridis256, "power": Plasma256},
        "half_row": HALF_ROW,
        "axis_px": _AXIS_PX,
    }
    # Bokeh's own script, without the parts that no figure here needs
    library = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    content = packed(data.tree() | {"items": items, "looks": looks})
    return PageProgram.of(library.read_text(encoding="utf-8"), content)


_TEXT = {"text_color": _INK, "text_font": value(_FONT), "text_font_size": "12px", "text_baseline": "bottom"}
_TITLE = {**_TEXT, "text_font_style": "bold"}
_LABEL = _TEXT | {"text_color": "color", "text_font_size": "11px"}
_LABEL |= {"text_align": "center", "text_baseline": "middle"}
_MARK = {"fill_color": "color", "fill_alpha": 0.85, "line_color": "color", "line_width": 2.4}
_AREA = {"fill_color": ACCENT, "fill_alpha": 0.3, "line_color": ACCENT, "line_width": 1.0}
_IDLE_LOOK = {"fill_color": _IDLE, "line_color": None}
_SPAN = "left right top bottom"

_Glyphs = tuple[tuple[str, str, str, dict[str, Any]], ...]

_BLOCKS: _Glyphs = (
    ("quad", "rows", _SPAN, _IDLE_LOOK),
    ("text", "titles", "x y text", _TITLE),
    ("image_rgba", "far", "image x y dw dh", {}),
    ("quad", "near", f"{_SPAN} color line", {"fill_color": "color", "line_color": "line", "line_width": 0.6}),
    ("text", "labels", "x y text color", _LABEL),
    ("segment", "waits", "x0 y0 x1 y1 color", {"line_color": "color", "line_width": 1.3}),
    ("quad", "marks", f"{_SPAN} color", _MARK),
)
"""Glyphs of the timelines that the scripts fill: kind, name, columns of the data, and looks."""

_HELD: _Glyphs = (
    ("quad", "held-rows", _SPAN, _IDLE_LOOK),
    ("text", "held-titles", "x y text", _TITLE),
    ("patches", "held-areas", "xs ys", _AREA),
    ("segment", "capacity", "x0 y0 x1 y1", {"line_color": _CAPACITY, "line_width": 1.3, "line_dash": [5, 4]}),
)
"""The same of the memory below."""


def _timelines(data: PageData) -> Any:
    """Return the timelines of all schedules, and the memory below on the same axis of time."""
    end_ms = max(schedule.makespan * schedule.placement.tick_ms for schedule in data.schedules.values())
    if data.plans is not None:
        end_ms = max(end_ms, *(plan.time_ms for plan in data.plans.frontier.plans))
    min_ms = end_ms / _MOST_ZOOM
    times = Range1d(start=0.0, end=end_ms, bounds=(0.0, end_ms), min_interval=min_ms, name="times")
    names = [lane_name(lane) for schedule in data.schedules.values() for lane in schedule.placement.lanes]
    left_px = max(_LEFT_PX, _BESIDE_NAME_PX + _LETTER_PX * max(map(len, names)))
    blocks, held = (_row_figure(name, times, left_px) for name in ("blocks", "held"))
    for plot, glyphs in ((blocks, _BLOCKS), (held, _HELD)):
        for kind, name, columns, looks in glyphs:
            getattr(plot, kind)(source=_source(columns, name), **looks)
    return column(blocks, held, sizing_mode="stretch_width", spacing=20)


def _row_figure(name: str, times: Range1d, left_px: int) -> Any:
    """Return a figure whose rows are devices; the scripts lay them out for the page's width."""
    y_range = Range1d(start=0.5, end=-0.5)
    plot = _figure(_AXIS_PX, name, x_range=times, y_range=y_range, tools="xpan,xwheel_zoom")
    plot.min_border_left = left_px
    plot.toolbar.active_drag, plot.toolbar.active_scroll = plot.tools
    plot.yaxis.ticker = FixedTicker(ticks=[])
    plot.yaxis.major_tick_line_color = plot.yaxis.axis_line_color = None
    plot.xaxis.axis_label, plot.yaxis.axis_label = "time (ms)", "device"
    plot.grid.visible = False
    return plot


def _figure(height: int, name: str, **more: Any) -> Any:
    """Return an empty figure as wide as its place."""
    plot = figure(
        height=height,
        name=name,
        sizing_mode="stretch_width",
        toolbar_location=None,
        min_border_left=_LEFT_PX,
        min_border_right=_RIGHT_PX,
        min_border_top=4,
        outline_line_color=None,
        stylesheets=[":host { outline: none !important }"],
        background_fill_color=None,
        border_fill_color="#FFFFFF",
        **more,
    )
    for axis in plot.axis:
        axis.major_label_text_font = axis.axis_label_text_font = _FONT
        axis.major_label_text_font_size, axis.axis_label_text_font_size = "11px", "12px"
        axis.axis_label_text_font_style = "normal"
        axis.major_label_text_color = axis.axis_label_text_color = _SOFT
        axis.axis_line_color = axis.major_tick_line_color = _LINE
        axis.minor_tick_line_color = None
        axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    plot.grid.grid_line_color = "#E6E9EC"
    return plot


def _source(columns: str, name: str) -> ColumnDataSource:
    return ColumnDataSource({column_name: [] for column_name in columns.split()}, name=name)


_BASELINE_COLORS = ("#CC79A7", "#E69F00", "#56B4E9", "#666666", "#009E73")
_BASELINE_MARKS = ("diamond", "triangle", "inverted_triangle", "x", "plus")
"""Colours and marks of the baselines of a frontier, as in `schedsearch.figures.frontier`."""

_MOST_MARKS = 30
"""Marks on the curve of one of them, of which some have a thousand points."""


def _frontier(plans: PagePlans, others: Mapping[str, Sequence[FrequencyPlan]]) -> Any:
    """Return energy against time, with a point that the page moves."""
    frontier = plans.frontier
    alone = list(frontier.without_straggler)
    later = [plan for plan in frontier.plans if plan not in alone]
    bound = [plan for plan in frontier.plans if plan.lower_bound_mj > 0]
    plot = _figure(340, "frontier", tools="")
    plot.xaxis.axis_label, plot.yaxis.axis_label = "iteration time (ms)", "energy of all devices (J)"
    plot.xaxis.ticker.desired_num_ticks = 5
    times_ms, bounds_j = [plan.time_ms for plan in bound], [plan.lower_bound_mj / 1e3 for plan in bound]
    dotted = {"line_color": _INK, "line_dash": "dotted", "line_width": 1.5}
    plot.line(times_ms, bounds_j, **dotted, legend_label="lower bound of any plan")
    plot.line(*_points(alone), line_color=ACCENT, line_width=1.6, legend_label="frontier")
    plot.scatter(*_points(alone), size=5, color=ACCENT, legend_label="frontier")
    if later:
        looks = {"size": 5, "line_color": ACCENT, "fill_color": "#FFFFFF"}
        plot.scatter(*_points(later), **looks, legend_label="pays only next to a straggler")
    colored = cycle(zip(_BASELINE_COLORS, _BASELINE_MARKS, strict=True))
    for (title, some), (color, mark) in zip(others.items(), colored, strict=False):
        plot.line(*_points(some), line_color=color, line_width=1.0, legend_label=title)
        marked = _points(some[:: max(len(some) // _MOST_MARKS, 1)])
        plot.scatter(*marked, color=color, marker=mark, size=8, legend_label=title)
    looks = {"marker": "square", "size": 10, "color": _CAPACITY}
    plot.scatter(*_points([frontier.all_maximum]), **looks, legend_label="all clocks at maximum")
    looks = {"marker": "star", "size": 15, "color": "#009E73", "line_color": _INK}
    plot.scatter(*_points([plans.chosen]), **looks, legend_label="chosen plan")
    looks = {"size": 15, "line_color": _INK, "line_width": 2.5, "fill_color": None}
    plot.scatter(source=_source("x y", "here"), **looks, legend_label="in the timeline")
    _calm(plot, "below")
    plot.legend.name, plot.legend.location = "legend", "top_left"
    return plot


def _calm(plot: Any, place: str) -> None:
    """Move the legend out of the axes, in small letters."""
    plot.add_layout(legend := plot.legend[0], place)
    legend.label_text_font, legend.label_text_font_size, legend.label_text_color = _FONT, "11px", _SOFT
    legend.border_line_color, legend.background_fill_alpha = None, 0.8
    legend.glyph_height, legend.spacing, legend.padding = 14, 1, 4


def _points(plans: Sequence[FrequencyPlan]) -> tuple[list[float], list[float]]:
    """Return times in ms and energies in J, by time."""
    by_time = sorted(plans, key=lambda plan: plan.time_ms)
    return [plan.time_ms for plan in by_time], [plan.energy_mj / 1e3 for plan in by_time]


def _progress() -> Any:
    """Return the axes of a search's values and bounds over its time."""
    plot = _figure(240, "progress", x_range=DataRange1d(start=0.0), tools="")
    plot.xaxis.axis_label = "time of the search (s)"
    best, bound = _source("x y", "best"), _source("x y", "bound")
    plot.step(source=best, mode="after", line_color=ACCENT, line_width=2, legend_label="best found")
    plot.scatter(source=best, size=6, color=ACCENT, legend_label="best found")
    dashed = {"line_color": _CAPACITY, "line_dash": [5, 4], "line_width": 2}
    plot.step(source=bound, mode="after", **dashed, legend_label="bound proved")
    _calm(plot, "above")
    plot.legend.orientation, plot.legend.spacing = "horizontal", 12
    return plot
