"""The time of an iteration by cause, as bars from the ideal on to the measured time."""

from __future__ import annotations

from collections.abc import Sequence

from schedsearch.figures.canvas import COLORS, COLUMN_INCHES, Figure, draw_grid, label_time, panels_in

_INCHES_OF_ROW, _INCHES_BESIDES = 0.22, 0.75


def draw_causes(title: str, parts: Sequence[tuple[str, float]], width: float = COLUMN_INCHES) -> Figure:
    """Draw each part of an iteration in a row of its own, which begins where the one above ends.

    Args:
        title: Shown above.
        parts: Name and time in ms of each part, in their order.
        width: Width in inches.
    """
    size = width, _INCHES_BESIDES + _INCHES_OF_ROW * len(parts)
    longest = sum(max(ms, 0.0) for _, ms in parts)
    with panels_in([title], size, 1, None) as (figure, grid):
        axes, begin = grid[0, 0], 0.0
        draw_grid(axes, "x")
        for row, (_, ms) in enumerate(parts):
            axes.barh(row, ms, 0.7, left=begin, color=COLORS[min(row, 1)])
            end = max(begin, begin + ms)
            inside, is_long = end > 0.7 * longest, ms > 0.3 * longest
            at = end if is_long or not inside else min(begin, begin + ms)
            axes.annotate(
                f"{ms:,.4g}",
                (at, row),
                (-3 if inside else 3, 0),
                textcoords="offset points",
                ha="right" if inside else "left",
                va="center",
                color="white" if inside and is_long else "black",
            )
            begin += ms
        axes.set_yticks(range(len(parts)), [name for name, _ in parts])
        axes.set_ylim(len(parts) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        label_time(axes)
    return figure
