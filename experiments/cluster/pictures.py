"""The figures of a simulation: completion times, and busy GPUs over time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.figures.canvas import COLUMN_INCHES, save_widths
from schedsearch.figures.cluster import BusyGpus, draw_busy_gpus, draw_completion_times

_INTERVALS = 240
"""Of the time axis of busy GPUs."""

_HOUR_S = 3600.0


def pictures_of(outcome: Outcome) -> dict[str, Callable[[Path], object]]:
    """Return the figures that the outcome has enough for, by name, as functions that write them.

    They are the share of the jobs done within a number of hours after their arrival, and the GPUs of each
    type that ran a job over time, above each other.
    """
    pictures: dict[str, Callable[[Path], object]] = {}
    if len(outcome.jcts_s):
        jcts_h = {outcome.policy: outcome.jcts_s / _HOUR_S}
        pictures["completion_times"] = partial(_save, draw_completion_times, jcts_h)
    if len(outcome.rounds.start_s):
        pictures["busy_gpus"] = partial(_save, draw_busy_gpus, busy_gpus(outcome))
    return pictures


def busy_gpus(outcome: Outcome) -> BusyGpus:
    """Return the busy GPUs of each type, averaged over intervals of equal length."""
    start_s = outcome.rounds.start_s
    last_s = float(start_s[-1])
    end_s = outcome.end_s if outcome.end_s > last_s else last_s + outcome.round_s
    lengths = np.minimum(np.diff(np.append(start_s, end_s)), outcome.round_s)
    edges = np.linspace(float(start_s[0]), end_s, _INTERVALS + 1)
    # GPU seconds until each begin and end of a round: between them they grow evenly.
    times = np.stack([start_s, start_s + lengths], axis=1).ravel()
    busy = {}
    for number, gpu_type in enumerate(outcome.cluster.gpu_types):
        done = np.cumsum(outcome.rounds.busy_gpus[:, number] * lengths)
        until = np.stack([np.append(0.0, done[:-1]), done], axis=1).ravel()
        busy[gpu_type] = np.diff(np.interp(edges, times, until)) / np.diff(edges)
    return BusyGpus(edges / _HOUR_S, busy, outcome.cluster.workers)


def _save(draw: Callable[..., Any], drawn: object, path: Path) -> None:
    save_widths(draw(drawn), draw(drawn, COLUMN_INCHES), path)
