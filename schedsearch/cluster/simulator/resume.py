"""The state of an interrupted simulation as plain data, from which it goes on as if nothing had been.

A policy that decides by what it did before gives its own state, as a basis to begin the next program with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from placements.plain_data import Field
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.policy import state_of, with_state
from schedsearch.cluster.rounds import Candidates, Lease, Rounds
from schedsearch.cluster.simulator.engine import Simulation
from schedsearch.cluster.simulator.failures import GpuFailures, random_from_json
from schedsearch.cluster.simulator.outcome_file import (
    none_for_odd,
    recorded_from_json,
    recorded_to_json,
    snapshot_from_json,
    snapshot_to_json,
)

SCHEMA_VERSION = 1


def to_json(simulation: Simulation) -> dict[str, Any]:
    """Return the state between two rounds."""
    history = simulation.history
    return {
        "schema_version": SCHEMA_VERSION,
        "of": _fingerprint(simulation),
        "jobs": [_job_mark(job) for job in simulation.table.jobs],
        "table": simulation.table.to_json(),
        "now_s": simulation.now_s,
        "decided_s": simulation.decided_s,
        "is_stale": simulation.is_stale,
        "valid_until_s": none_for_odd(simulation.valid_until_s),
        "done": simulation.done,
        "rounds": _rounds_to_json(simulation.rounds),
        "failures": simulation.failures.to_json(),
        "shuffler": simulation.shuffler.getstate(),
        "busy_s": history.busy_s.tolist(),
        "series": history.rounds,
        "decisions": [[none_for_odd(value) for value in row] for row in history.decisions],
        "snapshots": [snapshot_to_json(one) for one in history.snapshots],
        "recorded": recorded_to_json(history.recorded),
        "policy": state_of(simulation.policy),
    }


def restore(simulation: Simulation, data: object, path: Path) -> None:
    """Bring a fresh simulation into a state that was kept.

    Raises:
        ClusterError: The state is not of this cluster, policy, options and trace.
    """
    root = Field(data, "", ClusterError)
    if root.get("schema_version").value != SCHEMA_VERSION:
        raise ClusterError(f"{path}: is not the state of a simulation; remove it, or give another file")
    state: dict[str, Any] = root.mapping()
    now = _fingerprint(simulation)
    for name, kept in state["of"].items():
        if kept != now[name]:
            raise ClusterError(
                f"{path}: is of another simulation, whose {name} differs; remove it, or give the same {name}"
            )
    for kept in state["jobs"]:
        if simulation.arrivals.next is None or _job_mark(simulation.arrivals.next) != kept:
            raise ClusterError(f"{path}: is of another trace, from job {kept[0]} on; remove it")
        simulation.table.add(simulation.arrivals.take())
    simulation.table.restore(state["table"])
    for name in ("now_s", "decided_s", "is_stale", "done"):
        setattr(simulation, name, state[name])
    until_s = state["valid_until_s"]
    simulation.valid_until_s = np.inf if until_s is None else until_s
    _restore_rounds(simulation.rounds, state["rounds"])
    simulation.failures = GpuFailures.from_json(state["failures"], simulation.options.failures)
    simulation.shuffler = random_from_json(state["shuffler"])
    history = simulation.history
    history.busy_s = np.array(state["busy_s"])
    history.rounds = [tuple(row) for row in state["series"]]
    history.decisions = [
        (time_s, jobs, np.nan if error is None else error, shortfall)
        for time_s, jobs, error, shortfall in state["decisions"]
    ]
    history.snapshots = [snapshot_from_json(one) for one in state["snapshots"]]
    history.recorded = recorded_from_json(state["recorded"])
    with_state(simulation.policy, state["policy"])


def _fingerprint(simulation: Simulation) -> dict[str, Any]:
    """Return what has to be the same; as text, which holds infinite numbers too."""
    return {
        "policy": simulation.policy.name,
        "cluster": repr(simulation.cluster),
        "options": repr(simulation.options),
    }


def _job_mark(job: Job) -> list[str]:
    return [job.name, repr(job)]


def _rounds_to_json(rounds: Rounds) -> dict[str, Any]:
    found = rounds.candidates
    return {
        "keys": found.keys,
        "share": found.share.tolist(),
        "steps_per_s": found.steps_per_s,
        "power_w": found.power_w,
        "received_s": rounds.received_s.tolist(),
        "deficits_s": [[*key, owed] for key, owed in rounds.deficits_s.items()],
        "leases": {name: list(lease) for name, lease in rounds.leases.items()},
        "gone": sorted(rounds.gone),
    }


def _restore_rounds(rounds: Rounds, data: dict[str, Any]) -> None:
    keys = tuple((tuple(jobs), number, gpus, clock) for jobs, number, gpus, clock in data["keys"])
    rounds.candidates = Candidates(
        keys,
        np.array([key[1] for key in keys], dtype=np.int64),
        np.array([key[2] for key in keys], dtype=np.int64),
        np.array(data["share"], dtype=np.float64),
        tuple(tuple(rates) for rates in data["steps_per_s"]),
        tuple(data["power_w"]),
    )
    rounds.received_s = np.array(data["received_s"], dtype=np.float64)
    rounds.deficits_s = {
        (tuple(jobs), number, gpus, clock): owed for jobs, number, gpus, clock, owed in data["deficits_s"]
    }
    rounds.leases = {name: Lease(number, tuple(gpus)) for name, (number, gpus) in data["leases"].items()}
    rounds.gone = set(data["gone"])
    rounds.prepare()
