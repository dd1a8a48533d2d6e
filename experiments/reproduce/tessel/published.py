"""What Tessel's paper prints of its tables and figures; nothing was read off a picture.

The figures themselves were not at hand, so a value that is only drawn is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedModel:
    """A model of the evaluation, and the placements that its schedules have.

    Attributes:
        name: As the tables write it.
        shape: Shape of Tessel's placement and of 1F1B+ (Fig. 8).
        chimera: Bubble rate of Chimera-direct in its X-shape (Table II), as of those that follow.
        one_f_one_b: Rate of 1F1B in its V-shape.
        one_f_one_b_plus: Rate of 1F1B+ in Tessel's placement; None where the paper has a cross.
        tessel: Rate of Tessel's own schedule.
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
"""Of all placements in the figures."""

FIGURE_SHAPES = ("v_shape", "x_shape", "m_shape", "nn_shape", "k_shape")
"""Of the placements of Fig. 9 to 12."""


def shape_title(shape: str) -> str:
    """Return the name of a shape as people write it.

    >>> shape_title("nn_shape")
    'NN-shape'
    """
    letters = shape.removesuffix("_shape")
    return f"{letters.upper() if len(letters) <= 2 else letters.capitalize()}-shape"


MAX_MICRO_BATCHES = 6
"""Of a repetend in Fig. 8 to 10 (Sec. VI-B), and in Fig. 12, where "the same" is enough as in Fig. 11."""

LEAST_IN_FLIGHT = {"v_shape": 4, "m_shape": 6, "nn_shape": 6}
"""Micro-batches with which a repetend has no bubble, at the least (Sec. VI-C, of Fig. 11)."""

TIME_OPTIMAL_S = {16: 3752.0}
"""Seconds of the time-optimal search for a V-shape, by micro-batches (Sec. III-B, of Fig. 3)."""

NN_SHAPE_BUBBLE_RATE = 0.20
"""Of six micro-batches of an NN-shape, warmup and cooldown included, by both searches (Sec. VI-B)."""

MEAN_SEARCH_S = 147.3
"""Of Tessel's searches (Sec. VI-B, of Fig. 10)."""

OVER_ONE_F_ONE_B_PLUS = 1.4
"""Tessel's speedup over 1F1B+ in training, at most, of GPT and of mT5 (Sec. VI-D, of Fig. 13 and 14)."""

PARAMETERS = {
    "gpt_11b": 11.0,
    "gpt_24b": 24.0,
    "gpt_47b": 47.0,
    "gpt_77b": 77.0,
    "mt5_1.8b": 1.8,
    "mt5_9.5b": 9.5,
    "mt5_43b": 43.0,
    "mt5_88b": 88.0,
}
"""1e9 of them (Table III), by the model's name in `placements.models.zoo`."""

SLOWEST_OVER_FASTEST = {40: 3.4}
"""Time of the slowest stage over the fastest, by layers (Sec. II, of Fig. 2)."""

LATENCY_BUDGET_MS = 400.0
"""Of an inference (Sec. VI-D)."""

OVER_TENSOR_PARALLEL = 1.5
"""Tessel's throughput within the budget over that of tensor parallelism (Sec. VI-D, of Fig. 15)."""

OVER_ONE_F_ONE_B_FOR_FEW = 2.0
"""Tessel's throughput over 1F1B's for few micro-batches, at most (likewise)."""

LATENCY_SAVED = 0.38
"""Share of an inference's latency that Tessel saves, at most (abstract)."""

WAIT_OVERHEAD = 0.06
"""What devices wait above the theory's share, at most (Sec. VI-E, of Fig. 16)."""

BLOCK_TIME_RATIO = 4.0
"""Time of the slowest stage's blocks of GPT on 16 GPUs, 1F1B over Tessel: "almost 400" over "around 100"
seconds (Sec. VI-E, of Fig. 16)."""

NON_BLOCKING_SPEED_UP = 1.9
"""Of non-blocking communication, at most (Sec. VI-E, of Fig. 17)."""
