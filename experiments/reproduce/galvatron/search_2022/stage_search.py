"""Strategies for the layers of one stage by dynamic programming over MiB (Galvatron-BMW, Sec. IV-A2, Eq. 4).

Plans without recomputation only, so that a stage's memory is the sum of its layers'. It does not know what a
strategy is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class StageCosts:
    """What the layers of a stage cost under each strategy.

    Attributes:
        types: The type of each layer, from 0; at least one.
        time_s: By type and strategy; shape ``(num_types, num_strategies)``.
        memory_mib: Memory in the same shape, as whole numbers above 0.
        transitions_s: Between two layers; shape ``(num_strategies, num_strategies)``: from, to.
        capacity_mib: For all layers together.
    """

    types: NDArray[np.int64]
    time_s: NDArray[np.float64]
    memory_mib: NDArray[np.int64]
    transitions_s: NDArray[np.float64]
    capacity_mib: int


def fits(stage: StageCosts) -> bool:
    """Return whether there are strategies with which the layers fit."""
    return int(stage.memory_mib.min(axis=1)[stage.types].sum()) <= stage.capacity_mib


def min_time_s(stage: StageCosts) -> float:
    """Return what no choice of strategies is below, in s.

    It is the Lagrangian dual without transitions: a price on memory is best where two strategies of a type
    cost the same.
    """
    numbers = np.bincount(stage.types, minlength=len(stage.time_s))
    slower = stage.time_s[:, :, None] - stage.time_s[:, None, :]
    smaller = stage.memory_mib[:, None, :] - stage.memory_mib[:, :, None]
    pays = (slower > 0) & (smaller > 0)
    prices = np.concatenate(([0.0], slower[pays] / smaller[pays]))
    each = (stage.time_s + prices[:, None, None] * stage.memory_mib).min(axis=2)
    return float((each @ numbers - prices * stage.capacity_mib).max())


def best_strategies(stage: StageCosts) -> tuple[float, tuple[int, ...]] | None:
    """Return the least time in s and the strategy of each layer; None where nothing fits.

    Of equal choices it is the original's: from the last layer back, the first strategy of the list.
    """
    if not fits(stage):
        return None
    times, memories = stage.time_s[stage.types], stage.memory_mib[stage.types]
    least, most = _needed(memories, stage.capacity_mib)
    num_layers, num_strategies = times.shape
    tables: list[NDArray[np.float64]] = []
    before, start = np.zeros((num_strategies, most[0] + 1)), 0
    for layer in range(num_layers):
        low, high = least[layer], most[layer]
        table = np.full((num_strategies, high - low + 1), np.inf)
        transitions = stage.transitions_s if layer else np.zeros_like(stage.transitions_s)
        for strategy, memory in enumerate(memories[layer]):
            first = max(low, memory)
            if first <= high:
                reached = before[:, first - memory - start : high - memory - start + 1]
                best = (reached + transitions[:, strategy, None]).min(axis=0)
                table[strategy, first - low :] = best + times[layer, strategy]
        tables.append(table)
        before, start = table, low
    return _trace(stage, tables, least)


def _needed(memories: NDArray[np.int64], capacity: int) -> tuple[list[int], list[int]]:
    """Return between which MiB the layers up to each one may end, so that those after it fit."""
    after_most = np.append(np.cumsum(memories.max(axis=1)[::-1])[::-1][1:], 0)
    after_least = np.append(np.cumsum(memories.min(axis=1)[::-1])[::-1][1:], 0)
    least = np.maximum(capacity - after_most, 0)
    return [int(each) for each in least], [int(each) for each in capacity - after_least]


def _trace(
    stage: StageCosts, tables: list[NDArray[np.float64]], least: list[int]
) -> tuple[float, tuple[int, ...]]:
    """Return the time and the strategies that the tables lead to."""
    times, memories = stage.time_s[stage.types], stage.memory_mib[stage.types]
    strategy, left = int(np.argmin(tables[-1][:, -1])), stage.capacity_mib
    time_s = float(tables[-1][strategy, -1])
    chosen = [strategy]
    for layer in range(len(tables) - 1, 0, -1):
        left -= int(memories[layer, strategy])
        reached = tables[layer - 1][:, left - least[layer - 1]]
        strategy = int(np.argmin(reached + stage.transitions_s[:, strategy] + times[layer, strategy]))
        chosen.append(strategy)
    return time_s, tuple(reversed(chosen))
