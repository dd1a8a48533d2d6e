"""Pictures of schedules with modes and streams: a row for each stream, hosts, and each block's mode."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from modes_and_streams import communicated, offloaded, recomputed

from schedsearch.figures.comparison import draw_timelines
from schedsearch.figures.memory import memory
from schedsearch.schedule import Schedule


def row_names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def collections_of(axes: Axes, gid: str) -> list[PolyCollection]:
    return [poly for poly in axes.collections if poly.get_gid() == gid and isinstance(poly, PolyCollection)]


def test_each_stream_has_a_row_below_its_device() -> None:
    (axes,) = draw_timelines({"": offloaded()}).axes
    assert row_names(axes) == ["device 0", "device 0 copy_in", "device 0 copy_out"]
    assert [len(row.get_paths()) for row in collections_of(axes, "blocks")] == [6, 1, 1]


@pytest.mark.parametrize(
    ("schedule", "hatched"), [(recomputed(), [2]), (offloaded(), [1, 1]), (communicated(), [])]
)
def test_blocks_of_modes_are_hatched(schedule: Schedule, hatched: list[int]) -> None:
    (axes,) = draw_timelines({"": schedule}).axes
    assert [len(row.get_paths()) for row in collections_of(axes, "modes")] == hatched


def test_blocks_are_as_long_as_they_take() -> None:
    """A backward that computes the forward again takes 6 ticks, not 4; a slowed forward 5, not 4."""

    def widths(schedule: Schedule) -> list[float]:
        (axes,) = draw_timelines({"": schedule}).axes
        boxes = [path.get_extents() for path in collections_of(axes, "blocks")[0].get_paths()]
        return [float(box.width) for box in boxes]

    assert widths(recomputed()) == [2, 2, 4, 6]
    assert widths(offloaded(1.5)) == [4, 5, 6, 4, 6, 6]


def test_a_host_that_holds_something_has_a_row_below_its_device() -> None:
    axes = memory(offloaded())
    assert row_names(axes) == ["device 0", "device 0 host"]
    peaks = ["peak 8 units\nof 12 (67%)", "peak 4 units\nof 40 (10%)"]
    assert [text.get_text() for text in axes.texts] == peaks
    assert row_names(memory(recomputed())) == ["device 0", "device 1"]


def test_what_is_needed_while_a_block_runs_is_drawn_where_there_are_modes() -> None:
    def names(schedule: Schedule) -> list[str]:
        legend = memory(schedule).get_legend()
        return [text.get_text() for text in legend.get_texts()]

    assert names(recomputed()) == ["memory held", "needed besides while a block runs", "capacity"]
    assert names(offloaded()) == ["memory held", "capacity"]
