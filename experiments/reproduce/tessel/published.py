"""Models and placements of Tessel's evaluation; nothing was read off a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedModel:
    """A model of the evaluation, and the bubble rates of its schedules (Table II).

    Chimera-direct has an X-shape, 1F1B a V-shape, 1F1B+ and Tessel the shape of Fig. 8. None is a cross.
    """

    name: str
    shape: str
    chimera: float
    one_f_one_b: float
    one_f_one_b_plus: float | None
    tessel: float


MODELS: Mapping[str, PublishedModel] = {
    "gpt": PublishedModel("GPT", "m_shape", 0.20, 0.0, 0.25, 0.0),
    "mt5": PublishedModel("mT5", "nn_shape", 0.20, 0.0, 0.20, 0.0),
    "flava": PublishedModel("Flava", "k_shape", 0.20, 0.0, None, 0.0),
}
"""Table II and Fig. 8, by the name that options use."""

NUM_DEVICES = 4
"""Devices of all placements in the figures."""

FIGURE_SHAPES = ("v_shape", "x_shape", "m_shape", "nn_shape", "k_shape")
"""Placements of Fig. 9 to 12."""

MAX_MICRO_BATCHES = 6
"""Micro-batches of a repetend in Fig. 8 to 10 (Sec. VI-B), and in Fig. 12, with "the same" as in Fig. 11."""


def shape_title(shape: str) -> str:
    """Return the name of a shape as people write it.

    >>> shape_title("nn_shape")
    'NN-shape'
    """
    letters = shape.removesuffix("_shape")
    return f"{letters.upper() if len(letters) <= 2 else letters.capitalize()}-shape"
