"""AdaPtis: division, placement and order together, for models whose layers differ in kind.

Nemotron-H has layers of Mamba-2, of attention and of a feed-forward part, and an output layer as long as
several of them. Beside even divisions in 1F1B, interleaved 1F1B and ZB-V stands the best of some divisions,
placements and searched orders, in the memory of interleaved 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import mean
from typing import NamedTuple

from experiments.plan.inputs import inputs_of
from experiments.plan.options import PlanQuestion
from experiments.reproduce.ahead import ITERATION, MEMORY, SEARCHED, AheadOptions
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import grouped, listed, rows_with, uninterrupted, value_of
from placements import Placement
from placements.models.costing.layer_costs import layer_cost
from placements.models.parallel import LayerStrategy
from placements.stages.layout_stages import rounded
from placements.stages.stage_chain import Stage, StageChain, place
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b, zb_v
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search

PAPERS_SPEED_UP = 1.42
"""Mean speed-up over interleaved 1F1B, of other models; the largest is 2.14."""

_INTERLEAVED, _SPEED_UP = "interleaved 1F1B, even", "speed_up"


class UnequalCase(NamedTuple):
    """A model of the zoo, GPUs that share a layer, devices of the pipeline, and micro-batches."""

    model: str
    tensor_parallel: int
    num_devices: int
    num_micro_batches: int
