"""Figures as files: drawn once for each, and as matplotlib itself would draw them."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.figures.canvas import DOTS_PER_INCH, STYLE, image
from schedsearch.figures.comparison import draw_timelines
from schedsearch.figures.memory import memory
from schedsearch.schedule import Schedule


def curve(width: float) -> Figure:
    """Return a figure whose labels need room that only a layout gives."""
    figure = Figure(figsize=(width, 0.5 * width), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1, 2], [0.0, 1e6, 2e6], label="energy")
    axes.set_ylabel("energy of all devices (J)")
    figure.legend(loc="outside lower center")
    return figure


def test_a_png_has_the_pixels_that_matplotlib_gives_it_and_the_figure_stays_as_it_was() -> None:
    with mpl.rc_context(STYLE):
        figure, plain, buffer = curve(8.0), curve(8.0), io.BytesIO()
        plain.savefig(buffer, dpi=DOTS_PER_INCH, facecolor="white")
    engine, canvas, dpi = figure.get_layout_engine(), figure.canvas, figure.dpi
    pixels = imread(io.BytesIO(image(figure, "png")))
    assert (figure.get_layout_engine(), figure.canvas, figure.dpi) == (engine, canvas, dpi)
    buffer.seek(0)
    np.testing.assert_array_equal(pixels, imread(buffer))


def test_a_vector_graphic_of_very_many_blocks_is_an_image_inside() -> None:
    """Of 128 devices and 512 micro-batches the SVG had 42.7 MB."""
    few, many = (one_f_one_b(v_shape(8), number) for number in (10, 200))
    for draw in (draw_alone, lambda schedule: memory(schedule).figure):
        assert b"<image" not in image(draw(few), "svg")
        data = image(draw(many), "svg")
        assert data.count(b"<image") == 1 and len(data) < 500_000
        assert data.count(b'id="text_') > 4, "labels are no image"


def draw_alone(schedule: Schedule) -> Figure:
    return draw_timelines({"1F1B": schedule})
