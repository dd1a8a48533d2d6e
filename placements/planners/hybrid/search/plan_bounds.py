"""Times that no stage can beat with given layers under its memory.

The module does not divide layers and does not choose strategies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.planners.hybrid.stage_tables import StageTable

_NUM_PRICES = 20
"""Prices of memory that are tried: more make the bounds hardly tighter."""


class StageRoom(NamedTuple):
    """Costs, micro-batches and memory of a stage.

    Attributes:
        table: The costs of layers on it.
        in_flight: Micro-batches that it holds at its peak.
        capacity_mib: Memory of each of its GPUs.
    """

    table: StageTable
    in_flight: int
    capacity_mib: float


class Contents(NamedTuple):
    """Sequences that consecutive layers can be, each once, up to some number of layers.

    Attributes:
        which: Index of the others, by the layer after the last and how many they are; -1 where there are no
            layers, or not so many; shape ``(num_layers + 1, max_layers + 1)``.
        end: A layer after the last.
        number: Number of layers; both arrays have the shape ``(num_contents,)``.
    """

    which: NDArray[np.int64]
    end: NDArray[np.int64]
    number: NDArray[np.int64]


def contents_of(kinds: Sequence[int], max_layers: int) -> Contents:
    """Return what consecutive layers can be; those with the same kinds in order are one.

    Args:
        kinds: Kind of each layer of the model, in order.
        max_layers: Most layers that are consecutive.
    """
    own, num_layers = np.asarray(kinds), len(kinds)
    which = np.full((num_layers + 1, max_layers + 1), -1)
    shorter = np.zeros(num_layers + 1, dtype=np.int64)
    ends: list[NDArray[np.int64]] = []
    num_contents = 0
    for number in range(1, max_layers + 1):
        end = np.arange(number, num_layers + 1)
        longer = shorter[end - 1] * (own.max() + 1) + own[end - 1]
        _, firsts, shorter[end] = np.unique(longer, return_index=True, return_inverse=True)
        which[end, number] = num_contents + shorter[end]
        ends.append(end[firsts])
        num_contents += len(firsts)
    numbers = np.repeat(np.arange(1, max_layers + 1), [len(each) for each in ends])
    return Contents(which, np.concatenate(ends), numbers)


def stage_bounds_ms(
    stages: Sequence[StageRoom], kinds: Sequence[int], contents: Contents
) -> NDArray[np.float64]:
    """Return what layers as a stage cost at least, for all stages and all layers one after the other.

    With memory at a price, the least cost of each layer and its memory, less the price of the capacity: the
    Lagrangian relaxation of the stage's capacity, at the best of some prices. Infinite where the layers do
    not fit with the least memory of each.

    Args:
        stages: Stages of the pipeline.
        kinds: Kind of each layer of the model, in order.
        contents: See `contents_of`.

    Returns:
        By stage, the layer after the last and the number of layers; ``(num_stages, num_layers + 1,
        max_layers + 1)``.
    """
    own = np.unique(kinds)
    place = np.searchsorted(own, kinds)
    prices = _prices(stages[0], own)
    known: dict[tuple[int, int, float], NDArray[np.float64]] = {}
    for stage in stages:
        key = (id(stage.table), stage.in_flight, stage.capacity_mib)
        if key not in known:
            values = np.vstack([_priced(stage, own, prices), _min_held(stage, own)])[:, place]
            until = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
            sums = until[:, contents.end] - until[:, contents.end - contents.number]
            whole = (sums[:-1] - (prices * stage.capacity_mib)[:, None]).max(axis=0)
            fits = sums[-1] <= stage.capacity_mib * (1 + 1e-9)
            min_ms = np.append(np.where(fits, whole, np.inf), np.inf)
            known[key] = min_ms[contents.which]
    return np.array([known[id(stage.table), stage.in_flight, stage.capacity_mib] for stage in stages])


def _min_held(stage: StageRoom, kinds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the least that a layer of each kind holds."""
    options = [stage.table.options[kind] for kind in kinds]
    return np.array([float(np.min(each.static_mib + stage.in_flight * each.kept_mib)) for each in options])


def _prices(stage: StageRoom, kinds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return prices of a MiB in ms from nothing on, around what strategies of a layer trade it for."""
    rates = []
    for kind in kinds:
        each, cost = stage.table.options[kind], stage.table.costs_ms[kind]
        memory = each.static_mib + stage.in_flight * each.kept_mib
        spread = float(np.ptp(memory))
        if spread > 0:
            rates.append(max(float(np.ptp(cost)), 1e-9 * float(cost.max())) / spread)
    if not rates:
        return np.zeros(1)
    return np.concatenate([[0.0], np.geomspace(min(rates) * 1e-3, max(rates) * 1e3, _NUM_PRICES)])


def _priced(stage: StageRoom, kinds: NDArray[np.int64], prices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least cost of a layer of each kind with its memory at each price; (prices, kinds)."""
    found = np.empty((len(prices), len(kinds)))
    for column, kind in enumerate(kinds):
        each, cost = stage.table.options[kind], stage.table.costs_ms[kind]
        memory = each.static_mib + stage.in_flight * each.kept_mib
        found[:, column] = (cost[None, :] + prices[:, None] * memory[None, :]).min(axis=1)
    return np.maximum(found, 1e-12)
