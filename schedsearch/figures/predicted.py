"""Predictions against measurements: a point for each, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schedsearch.figures.canvas import Figure, curve_look, draw_logarithms, legend_below, panels_in

Points = Mapping[str, Sequence[tuple[float, float]]]
"""Measured and predicted figures above 0, by the name of their series."""


def draw_predicted(panels: Mapping[str, Points]) -> Figure:
    """Draw predictions against measurements, in a panel for each title.

    A title is the figure with its unit, such as "time (ms)". A series has the same colour and mark in all
    panels. On the line both are equal; between the dotted ones the prediction is within 10 %.
    """
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    looks = {name: {**curve_look(i), "linestyle": ""} for i, name in enumerate(names)}
    handles = {}
    with panels_in(list(panels), (5.0 * len(panels), 5.0), len(panels)) as (figure, grid):
        for axes, (title, points) in zip(grid.flat, panels.items(), strict=True):
            for name, pairs in points.items():
                how = {"markersize": 4, "alpha": 0.6, "label": name, **looks[name]}
                (handles[name],) = axes.plot(*zip(*pairs, strict=True), **how)
            figures = [figure for pairs in points.values() for pair in pairs for figure in pair]
            ends = 0.8 * min(figures), 1.25 * max(figures)
            for factor, line in ((1.0, "-"), (0.9, ":"), (1.1, ":")):
                axes.plot(ends, [factor * end for end in ends], color="#888888", lw=0.8, ls=line, zorder=1)
            axes.set(xlim=ends, ylim=ends, xlabel=f"measured {title}", ylabel=f"predicted {title}")
            draw_logarithms(axes, "xy")
        legend_below(figure, list(handles.values()))
    return figure
