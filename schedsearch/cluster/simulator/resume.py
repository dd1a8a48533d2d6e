"""The state of an interrupted simulation as a file, from which it goes on as if nothing had been.

The file is a pickle, so that all that a policy knows of its decisions before is kept, whatever it is. It is
for those whom its user trusts, as a pickle can run code when it is read.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from placements.files import write_bytes
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.simulator.engine import ClusterSimulation

_STATE = (
    *("now_s", "decided_s", "is_stale", "done"),
    *("table", "rounds", "failures", "shuffler", "history", "policy"),
)
"""Attributes of a simulation that change while it runs; where the trace is follows from the table's jobs."""


def check_can_be_kept(policy: Policy) -> None:
    """Check that the state of a policy can be written, before anything is simulated.

    Raises:
        ClusterError: It cannot be pickled.
    """
    try:
        pickle.dumps(policy)
    except Exception as cause:  # what cannot be pickled may raise anything
        raise ClusterError(
            f"policy {policy.name}: its state cannot be kept ({cause}); define its class in a module, or "
            "give no file for the state"
        ) from None


def write_state(simulation: ClusterSimulation, path: Path) -> Path:
    """Write the state between two rounds; return the path of the file."""
    state = {name: getattr(simulation, name) for name in _STATE}
    return write_bytes(path, pickle.dumps((_fingerprint(simulation), state)))


def restore(simulation: ClusterSimulation, path: Path) -> None:
    """Bring a fresh simulation into a state that was kept, with the policy that was kept.

    Raises:
        ClusterError: The state is not of this cluster, policy, options and trace.
    """
    try:
        of, state = pickle.loads(path.read_bytes())
        jobs = state["table"].jobs
    except Exception:  # a broken pickle may raise anything
        raise ClusterError(
            f"{path}: is not the state of a simulation; remove it, or give another file"
        ) from None
    for name, now in _fingerprint(simulation).items():
        if of[name] != now:
            raise ClusterError(
                f"{path}: is of another simulation, whose {name} differs; remove it, or give the same {name}"
            )
    for job in jobs:
        if simulation.arrivals.next != job:
            raise ClusterError(f"{path}: is of another trace, from job {job.name} on; remove it")
        simulation.arrivals.take()
    vars(simulation).update(state)


def _fingerprint(simulation: ClusterSimulation) -> dict[str, str]:
    """Return what has to be the same; as text, as the order of the GPU types counts too."""
    return {
        "policy": simulation.policy.name,
        "cluster": repr(simulation.cluster),
        "options": repr(simulation.options),
    }
