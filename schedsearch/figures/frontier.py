"""The figure of a time-energy frontier. The module does not know how plans are found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from schedsearch.figures.canvas import draw_grid, drawing_on, is_narrow, legend_below, small_points

TimeEnergy = tuple[float, float]
"""Time in ms and energy in mJ of an iteration."""


def draw_frontier(
    plans: Sequence[TimeEnergy],
    all_maximum: TimeEnergy,
    target: Axes | None = None,
    *,
    chosen: TimeEnergy | None = None,
    deadline_ms: float | None = None,
    lower_bound: Sequence[TimeEnergy] = (),
    until: tuple[TimeEnergy, TimeEnergy] | None = None,
    stragglers: Sequence[TimeEnergy] = (),
    others: Mapping[str, Sequence[TimeEnergy]] | None = None,
    title: str = "",
) -> Axes:
    """Draw the energy of an iteration against its time.

    Args:
        plans: The frontier; each point in ms and mJ, as for the rest.
        all_maximum: The plan to compare with, all clocks at their maximum.
        target: Axes to draw on; None for a new figure's axes.
        chosen: The plan that was chosen.
        deadline_ms: When the iteration must end.
        lower_bound: Least energy that any plan of some times can use.
        until: `chosen` and `all_maximum` until an equal time, the waiting included, for the label to compare;
            by default their own points.
        stragglers: Slower plans that only pay next to a straggler, and so are not on the frontier.
        others: Plans to compare with, by their names in the legend.
        title: Text above the axes.
    """
    longest_ms = max(time for time, _ in (all_maximum, *plans, *stragglers))
    per_unit, unit = (1e3, "s") if longest_ms >= 1e3 else (1.0, "ms")
    with drawing_on(target, (9.5, 5.2)) as axes:

        def draw(points: Sequence[TimeEnergy], look: Mapping[str, Any], **more: Any) -> None:
            by_time = sorted(points)
            times, energies = [time / per_unit for time, _ in by_time], [mj / 1e3 for _, mj in by_time]
            if points:
                axes.plot(times, energies, **{**look, **more})

        draw(plans, _FRONTIER)
        draw(stragglers, _STRAGGLERS)
        draw(lower_bound, _LOWER_BOUND)
        if deadline_ms is not None:
            axes.axvline(deadline_ms / per_unit, **_DEADLINE)
        draw([all_maximum], _ALL_MAXIMUM)
        if chosen is not None:
            draw([chosen], _CHOSEN)
            ends = zip((all_maximum, chosen), reversed(until or ()), strict=False)
            for i, (begin, end) in enumerate(pair for pair in ends if pair[1][0] > pair[0][0]):
                draw([begin, end], _WAITING, label=f"{'_' * i}waiting until an equal time")
        for (label, points), look in zip((others or {}).items(), cycle(_OTHERS), strict=False):
            line = "-" if len(points) > 1 else "none"
            every = max(len(points) // _MAX_MARKS, 1)
            draw(points, {**_OTHER, **look}, linestyle=line, markevery=every, label=label)
        axes.margins(x=0.06, y=0.12)
        if chosen is not None:
            _annotate_saving(axes, chosen, all_maximum, until, per_unit, unit)
        axes.set(xlabel=f"iteration time ({unit})", ylabel="energy of all devices (J)")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        draw_grid(axes)
        if is_narrow(figure := axes.figure.figure):
            for curve in axes.lines:
                curve.set_markersize(0.5 * curve.get_markersize())
                curve.set_linewidth(0.6 * curve.get_linewidth())
            legend_below(figure, axes.get_legend_handles_labels()[0])
            figure.set_figheight(_NARROW_HEIGHT)
        else:
            axes.set_title(title, loc="left")
            axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return axes


_NARROW_HEIGHT = 3.2
"""Height of a column's figure, in inches."""

_BLACK, _BLUE = "#000000", "#0072B2"

_FRONTIER: dict[str, Any] = {"color": _BLUE, "marker": "o", "markersize": 3.5, "linewidth": 1.4}
_FRONTIER["label"] = "frontier: best plan for a time"
_STRAGGLERS = {**_FRONTIER, "linestyle": "none", "markerfacecolor": "white"}
_STRAGGLERS["label"] = "pays only next to a straggler"
_LOWER_BOUND: dict[str, Any] = {"color": _BLACK, "linestyle": (0, (1, 1.5)), "linewidth": 1.3, "zorder": 3}
_LOWER_BOUND["label"] = "lower bound of any plan"
_DEADLINE: dict[str, Any] = {"color": _BLACK, "linestyle": "--", "linewidth": 1.2, "label": "deadline"}
_ALL_MAXIMUM: dict[str, Any] = {"color": "#D55E00", "marker": "s", "markersize": 8, "linestyle": "none"}
_ALL_MAXIMUM["label"] = "all clocks at maximum"
_CHOSEN: dict[str, Any] = {"color": "#009E73", "marker": "*", "markersize": 16, "linestyle": "none"}
_CHOSEN |= {"markeredgecolor": _BLACK, "markeredgewidth": 0.7, "label": "chosen plan"}
_WAITING: dict[str, Any] = {"color": "#333333", "linestyle": "-.", "linewidth": 1.0, "zorder": 1.8}
_WAITING |= {"marker": "s", "markersize": 6, "markerfacecolor": "white", "markevery": [1]}
_OTHERS = [
    {"color": color, "marker": marker}
    for color, marker in zip(("#CC79A7", "#E69F00", "#56B4E9", "#666666", "#009E73"), "D^vxP", strict=True)
]
_OTHER: dict[str, Any] = {"markersize": 5, "linewidth": 0.8, "zorder": 1.5}

_MAX_MARKS = 30
"""Most marks on a curve of `others`; some of these have a thousand points."""


def _annotate_saving(
    axes: Axes,
    chosen: TimeEnergy,
    all_maximum: TimeEnergy,
    until: tuple[TimeEnergy, TimeEnergy] | None,
    per_unit: float,
    unit: str,
) -> None:
    """Write the chosen plan's saving next to the baseline's energy, with an arrow down to the plan."""
    (own_ms, own_mj), (baseline_ms, baseline_mj) = until or (chosen, all_maximum)
    saving = 1 - own_mj / baseline_mj if baseline_mj > 0 else math.nan
    slower = own_ms / all_maximum[0] - 1 if all_maximum[0] > 0 else 0.0
    when = "in the same time"
    if abs(slower) >= 5e-4:
        when = f"that wait until {own_ms / per_unit:.4g} {unit}" if until else f"{slower:+.1%} time"
    left, right = axes.get_xlim()
    is_left = baseline_ms / per_unit < (left + right) / 2
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + _ROOM_OF_TEXT * (high - low))
    axes.annotate(
        f"{saving:.1%} less energy than\nall clocks at maximum,\n{when}",
        (own_ms / per_unit, own_mj / 1e3),
        xytext=(baseline_ms / per_unit + (0.02 if is_left else -0.02) * (right - left), baseline_mj / 1e3),
        ha="left" if is_left else "right",
        va="bottom",
        fontsize=small_points(axes.figure.figure),
        arrowprops={"arrowstyle": "->", "color": "#333333", "relpos": (0.0 if is_left else 1.0, 0.0)},
    )


_ROOM_OF_TEXT = 0.2
"""Height above the points for the label, as a share of their range of energy."""
