"""The emulation: Table 6, and Fig. 7 and 8, which have stragglers too (Perseus, Sec. 6.3).

GPT-3 175B has measured profiles of its stages; Bloom 176B has none here, and is modelled. Every saving is a
share of the energy of all blocks at their highest clocks, over an equal time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.reproductions.item import Claim, Item, Row, Trend
from experiments.reproductions.perseus.authors_results import envpipe_iteration, planned_frontier
from experiments.reproductions.perseus.published import GPU_TITLES, NUM_PIPELINES, TABLE_6, TITLES
from experiments.reproductions.perseus.savings import ENVPIPE, OURS, SAVING, Tuned, tuned
from experiments.reproductions.perseus.workloads import (
    EMULATED,
    PerseusOptions,
    Workload,
    cases_of,
    costed,
    data_folder,
)
from schedsearch.energy.baselines import compute_baselines, perseus_frontier
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.panels import Panel, Point, draw_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure
