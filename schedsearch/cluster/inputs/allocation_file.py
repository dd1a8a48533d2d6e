"""A policy's decision as JSON: shares by the names of jobs and types, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from placements.files import write_json
from schedsearch.cluster.allocation import Allocation, UsedConfiguration

SMALLEST = 1e-12
"""Shares up to this are the solver's rounding, and are written as none."""


@dataclass(frozen=True)
class DecidedAllocation:
    """An allocation by the names of jobs and GPU types.

    Attributes:
        policy: As on the command line.
        objective: What it maximized or minimized; None where that is no finite number.
        objective_is: A word on what it is, with its unit.
        shares: Share of the time of each job alone on each GPU type; all types of the cluster, 0 for none.
        pairs: Shares of two jobs on the same GPUs, which come on top; each once.
        steps_per_s: Effective throughput of each job, alone and in pairs.
        dollars_per_hour: Price of all GPUs that are used.
        power_w: Power of all GPUs that are used, on average; 0 where it is not known.
        configurations: All that get time, with GPUs and clocks.
    """

    policy: str
    objective: float | None
    objective_is: str
    shares: Mapping[str, Mapping[str, float]]
    pairs: tuple[UsedConfiguration, ...]
    steps_per_s: Mapping[str, float]
    dollars_per_hour: float
    power_w: float
    configurations: tuple[UsedConfiguration, ...]

    @classmethod
    def of(cls, allocation: Allocation, policy: str, objective_is: str) -> DecidedAllocation:
        """Return what is written of an allocation."""
        names = [active.name for active in allocation.demand.jobs]
        used = allocation.used(SMALLEST)
        shares = {name: dict.fromkeys(allocation.demand.cluster.gpu_types, 0.0) for name in names}
        for one in used:
            if len(one.jobs) == 1:
                shares[one.jobs[0]][one.gpu_type] += one.share
        return cls(
            policy,
            allocation.objective if math.isfinite(allocation.objective) else None,
            objective_is,
            shares,
            tuple(one for one in used if len(one.jobs) == 2),
            dict(zip(names, allocation.rates.tolist(), strict=True)),
            allocation.dollars_per_hour,
            allocation.power_w,
            used,
        )


def write_allocation(path: str | Path, decided: DecidedAllocation) -> Path:
    """Write what was decided; return the path."""
    return write_json(path, {"schema_version": 1, **asdict(decided)})
