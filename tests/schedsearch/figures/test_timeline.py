"""Figures: complete, the same every time, and drawn where they are asked to be."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from placements import Placement
from placements.shapes import k_shape, m_shape, v_shape
from schedsearch.baselines import gpipe
from schedsearch.figures.canvas import COLUMN_INCHES, MIN_POINTS, Drawing, image, save_drawing, style
from schedsearch.figures.comparison import draw_timelines
from schedsearch.figures.frontier import draw_frontier
from schedsearch.figures.memory import memory
from schedsearch.figures.timeline import timeline
from schedsearch.schedule import Instance, Schedule

PLANS = [(1000.0, 5000.0), (1100.0, 4200.0), (1250.0, 3900.0)]
FASTEST = (1000.0, 5600.0)

Times = dict[Instance, float]


def times_of(schedule: Schedule) -> tuple[Times, Times]:
    placement = schedule.placement
    starts = {instance: ticks * placement.tick_ms for instance, ticks in schedule.start_of.items()}
    return starts, {(name, n): placement.by_name[name].time * placement.tick_ms for name, n in starts}


def draw(placement: Placement, num_micro_batches: int, target: Axes | Path | None = None) -> Axes:
    schedule = gpipe(placement, num_micro_batches)
    return timeline(placement, *times_of(schedule), target, title=placement.name)


def rectangles(axes: Axes) -> int:
    return sum(
        len(collection.get_paths()) for collection in axes.collections if collection.get_gid() == "blocks"
    )


@pytest.mark.parametrize("placement", [v_shape(2), m_shape(4), k_shape(4)], ids=lambda p: p.name)
def test_each_block_instance_is_drawn_once_on_each_of_its_devices(placement: Placement) -> None:
    expected = 5 * sum(len(block.devices) for block in placement.blocks)
    assert rectangles(draw(placement, 5)) == expected


def test_a_block_without_a_clock_has_the_colour_of_its_kind() -> None:
    schedule = gpipe(v_shape(2), 2)
    clocks = {key: 1000.0 + 100 * key[1] for key in schedule.start_of if key[0] != "F1"}
    axes = timeline(schedule.placement, *times_of(schedule), clock_mhz=clocks)
    row = [artist for artist in axes.collections if artist.get_gid() == "blocks"][1]
    kinds = [artist for artist in axes.collections if artist.get_gid() == "kinds"][1]
    order = [name for name, _ in schedule.order(1)]
    same = [tuple(a) == tuple(b) for a, b in zip(row.get_facecolor(), kinds.get_facecolor(), strict=True)]
    assert same == [name == "F1" for name in order]


def test_power_colours_blocks_and_waiting() -> None:
    schedule = gpipe(v_shape(2), 3)
    power = {instance: 100.0 + 20 * i for i, instance in enumerate(schedule.start_of)}
    axes = timeline(schedule.placement, *times_of(schedule), power_w=power, power_range_w=(80.0, 400.0))
    assert rectangles(axes) == rectangles(draw(schedule.placement, 3))
    (bar,) = (other for other in axes.figure.axes if other is not axes)
    assert bar.get_ylabel() == "power (W)"
    assert bar.get_ylim() == (80.0, 400.0)
    without = timeline(schedule.placement, *times_of(schedule), power_w=power)
    (bar,) = (other for other in without.figure.axes if other is not without)
    assert bar.get_ylim() == (100.0, max(power.values()))


def test_blocks_lie_at_their_times() -> None:
    axes = draw(v_shape(2, forward_time=2, backward_time=5), 1)
    spans = set()
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and collection.get_gid() == "blocks":
            for path in collection.get_paths():
                box = path.get_extents()
                spans.add((box.x0, box.x1))
    assert spans == {(0.0, 2.0), (2.0, 4.0), (4.0, 9.0), (9.0, 14.0)}


def test_blocks_are_labelled_with_their_micro_batch_where_it_fits() -> None:
    labels = [text.get_text() for text in draw(v_shape(2), 3).texts]
    assert sorted(labels) == sorted("012" * 4)
    assert len(draw(v_shape(2), 300).texts) == 0


def test_memory_shows_peak_and_capacity() -> None:
    axes = memory(gpipe(v_shape(2).with_memory(8), 6))
    assert [text.get_text() for text in axes.texts] == ["peak 6 units\nof 8 (75%)"] * 2
    without = memory(gpipe(v_shape(2), 6))
    assert [text.get_text() for text in without.texts] == ["peak 6 units"] * 2


def test_the_frontier_states_the_saving() -> None:
    axes = draw_frontier(PLANS, FASTEST, chosen=PLANS[1], deadline_ms=1100.0, lower_bound=PLANS)
    (note,) = axes.texts
    assert note.get_text() == "25.0% less energy than\nall clocks at maximum,\n+10.0% time"
    assert axes.get_xlabel() == "iteration time (s)"
    same = draw_frontier(PLANS, FASTEST, chosen=PLANS[0], until=(PLANS[0], FASTEST))
    assert same.texts[0].get_text().endswith("all clocks at maximum,\nin the same time")


def test_the_saving_is_that_of_two_points_that_are_drawn() -> None:
    """Next to a straggler both wait until its end; a label of that with the points before it once said 31 %
    where these were 29 % apart."""
    waited = (1200.0, 4300.0), (1200.0, 6600.0)
    axes = draw_frontier(PLANS[:2], FASTEST, chosen=PLANS[1], until=waited, stragglers=PLANS[2:])
    assert axes.texts[0].get_text().split("\n") == [
        f"{1 - 4300 / 6600:.1%} less energy than",
        "all clocks at maximum,",
        "that wait until 1.2 s",
    ]
    ends = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in axes.lines if len(line.get_xdata()) == 2]
    assert {(1.2, 4.3), (1.2, 6.6)} <= set(ends)
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["frontier: best plan for a time"].get_xdata()) == [1.0, 1.1]
    apart = lines["pays only next to a straggler"]
    assert list(apart.get_xdata()) == [1.25] and apart.get_linestyle() == "None"


def drawings() -> dict[str, Drawing]:
    """Return the figures of a paper on a schedule and its plans."""
    schedule = gpipe(m_shape(4).with_memory(9), 4)
    starts, durations = times_of(schedule)
    clocks = {instance: 1410.0 - 15 * i for i, instance in enumerate(starts)}
    waited = (PLANS[2], (1250.0, 6600.0))
    return {
        "timeline": lambda axes: timeline(schedule.placement, starts, durations, axes, title="a title"),
        "clocks": lambda axes: timeline(schedule.placement, starts, durations, axes, clock_mhz=clocks),
        "memory": lambda axes: memory(schedule, axes),
        "frontier": lambda axes: draw_frontier(
            PLANS, FASTEST, axes, chosen=PLANS[1], until=waited, others={"other": PLANS}, title="a title"
        ),
    }


def test_a_column_of_a_paper_has_all_of_it_at_its_width(tmp_path: Path) -> None:
    """Vector files, 3.3 inches wide: the drawing is the same, and nothing is beyond the edge."""
    for name, draw in drawings().items():
        save_drawing(draw, tmp_path / name)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        width = re.search(r'<svg [^>]*?width="([\d.]+)pt"', (tmp_path / f"{name}.svg").read_text())
        assert width is not None and float(width[1]) == pytest.approx(72 * COLUMN_INCHES)
        column = Figure(figsize=(COLUMN_INCHES, 2.5), layout="constrained")
        axes = draw(column.add_subplot())
        assert not axes.get_title(loc="left"), "a paper has captions"
        pixels = imread(io.BytesIO(image(column, "png")))
        assert (pixels[:, [0, -1]] == 1.0).all(), "something is beyond the edge"


def test_text_at_the_width_of_a_column_is_large_enough_to_print() -> None:
    """Journals ask for seven points."""
    schedule = gpipe(m_shape(4), 4)
    figures = [draw_timelines({"one": schedule, "two": schedule}, COLUMN_INCHES)]
    for draw in drawings().values():
        column = Figure(figsize=(COLUMN_INCHES, 2.5), layout="constrained")
        with mpl.rc_context(style(column)):
            draw(column.add_subplot())
        figures.append(column)
    for column in figures:
        image(column, "svg")
        texts = [text for text in column.findobj(Text) if text.get_text() and text.get_visible()]
        assert texts and min(text.get_fontsize() for text in texts) >= MIN_POINTS == 7


def test_memory_has_one_scale_for_all_devices() -> None:
    """A device with half of the others' capacity has half of their height."""
    axes = memory(gpipe(replace(v_shape(2), memory=(12, 6), memory_unit_mib=1.0), 6))
    heights = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert heights == pytest.approx([0.43 - 0.86, 1.43 - 0.43])
    assert axes.get_ylabel() == "memory, each row\n0 to 12 MiB"
