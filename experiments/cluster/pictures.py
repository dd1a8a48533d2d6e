"""The figures of simulations, from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cluster.loads import LoadRow
from experiments.cluster.running import SimulationPoint
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.figures.canvas import COLUMN_INCHES, save_widths
from schedsearch.figures.cluster import (
    BusyGpus,
    LoadPoint,
    draw_busy_gpus,
    draw_completion_times,
    draw_loads,
)

_INTERVALS = 240
"""Of the time axis of busy GPUs."""

_HOUR_S = 3600.0


def save_pictures(found: Outcome, directory: Path) -> dict[str, bytes]:
    """Write the figures of one simulation as PNG, PDF and SVG; return each that can be drawn as PNG."""
    pictures = {}
    if len(found.jcts_s):
        hours = {found.policy: found.jcts_s / _HOUR_S}
        pictures["completion_times"] = _save(draw_completion_times, hours, directory / "completion_times")
    if len(found.rounds.start_s):
        pictures["busy_gpus"] = _save(draw_busy_gpus, busy_gpus(found), directory / "busy_gpus")
    return pictures


def save_load_pictures(
    rows: Sequence[LoadRow], jcts_s: Mapping[SimulationPoint, Sequence[float]], directory: Path
) -> dict[str, bytes]:
    """Write the figures of a comparison of policies; return them as PNG.

    Completion times are those of the highest load, of all seeds together.
    """
    pictures = {}
    loads = [point.jobs_per_hour for point in jcts_s]
    hours: dict[str, list[float]] = {}
    for point, values in jcts_s.items():
        if values and (point.jobs_per_hour is None or point.jobs_per_hour == max(filter(None, loads))):
            name = str(SimulationPoint(point.policy, point.jobs_per_hour))
            hours.setdefault(name, []).extend(value / _HOUR_S for value in values)
    if hours:
        pictures["completion_times"] = _save(draw_completion_times, hours, directory / "completion_times")
    curves: dict[str, list[LoadPoint]] = {}
    for row in rows:
        if row.jobs_per_hour is not None and row.average_jct_s is not None:
            mean, low, high = row.average_jct_s, row.low_s, row.high_s
            in_hours = ((mean if value is None else value) / _HOUR_S for value in (mean, low, high))
            curves.setdefault(row.policy, []).append(LoadPoint(row.jobs_per_hour, *in_hours))
    if curves:
        pictures["loads"] = _save(draw_loads, curves, directory / "loads")
    return pictures


def busy_gpus(found: Outcome) -> BusyGpus:
    """Return the busy GPUs of each type, averaged over intervals of equal length."""
    start_s = found.rounds.start_s
    last_s = float(start_s[-1])
    end_s = found.end_s if found.end_s > last_s else last_s + found.round_s
    lengths = np.minimum(np.diff(np.append(start_s, end_s)), found.round_s)
    edges = np.linspace(float(start_s[0]), end_s, _INTERVALS + 1)
    # GPU seconds until each begin and end of a round: between them they grow evenly.
    times = np.stack([start_s, start_s + lengths], axis=1).ravel()
    busy = {}
    for number, gpu_type in enumerate(found.cluster.gpu_types):
        done = np.cumsum(found.rounds.busy_gpus[:, number] * lengths)
        until = np.stack([np.append(0.0, done[:-1]), done], axis=1).ravel()
        busy[gpu_type] = np.diff(np.interp(edges, times, until)) / np.diff(edges)
    return BusyGpus(edges / _HOUR_S, busy, found.cluster.workers)


def _save(draw: Callable[..., Any], what: object, path: Path) -> bytes:
    return save_widths(draw(what), draw(what, COLUMN_INCHES), path)
