"""All commands by name with their purposes, the most used first; loads nothing else."""

from __future__ import annotations

from pathlib import Path

PURPOSES = {
    "search": "Search a schedule for a placement, with proofs.",
    "compare": "Put schedules of one model side by side.",
    "plan": "Plan a model on a cluster; rank plans by their schedules.",
    "layout": "Divide a model's layers for Megatron-LM and torchtitan.",
    "replay": "Say from a trace where a run's time goes; find better orders.",
    "frontier": "Search a schedule, and choose clocks that save energy.",
    "run": "All of it: search, clocks, scripts, a run and a report.",
    "profile": "Measure the cost of each block on this machine.",
    "profile_rates": "Measure this GPU's rates by shape, as shares of its peak.",
    "check": "Check each claim of a schedule file without the search.",
    "cluster": "Simulate many jobs on GPUs of several types.",
    "replan": "Ways to go on when a device is lost or slow.",
    "prices": "Compute the savings of a job that moves among spot prices.",
    "predict": "Predict time and memory of runs beside measured ones.",
    "reproduce": "Make tables and figures of papers again, beside theirs.",
}
"""The sentence that help says of each command; its name is its room's."""


def names() -> tuple[str, ...]:
    """Return the commands that are installed: a wheel has no room for the items of papers."""
    rooms = Path(__file__).parents[1]
    return tuple(name for name in PURPOSES if rooms.joinpath(name).is_dir())
