"""Simulates the jobs of a trace on a cluster; an interrupted simulation can go on later.

Its state is kept as a pickle, so that all that a policy knows of its decisions before is kept, whatever it
is. It is for those whom its user trusts, as a pickle can run code when it is read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path

from placements.files import write_bytes
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.simulator.engine import ClusterSimulation
from schedsearch.cluster.simulator.job_table import ClusterProgress
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

_GIVEN = ("cluster", "throughputs", "options", "num_jobs", "arrivals", "next_job", "reason")
"""Attributes of a simulation that do not change while it runs, or follow from the jobs of its table."""

FROM_KEYBOARD = "interrupted from the keyboard"
"""The reason of an outcome whose simulation can go on."""


def simulate_cluster(
    trace: Iterable[Job],
    cluster: GpuCluster,
    throughputs: Throughputs,
    policy: Policy,
    options: SimulationOptions | None = None,
    on_progress: Callable[[ClusterProgress], None] | None = None,
    state_path: str | Path | None = None,
) -> Outcome:
    """Return what becomes of jobs on a cluster.

    A Ctrl-C, or a KeyboardInterrupt of `on_progress`, ends the simulation at the next round. Where its state
    is kept the outcome then holds what there is, and tells what is missing.

    Args:
        trace: Jobs in the order of their arrival; may be without end if the options have a window.
        cluster: What there is.
        throughputs: Throughputs of all jobs.
        policy: A fresh one; decides until the end. Where the simulation goes on, the one that was kept does.
        options: How it is run; the defaults where none are given.
        on_progress: Called before each round.
        state_path: File in which the state of an interrupted simulation is kept. Where it is there, the
            simulation goes on from it; it is removed when the simulation is done. It is a pickle: use only
            those of people whom you trust.

    Raises:
        ClusterError: A job cannot run anywhere, the trace is not in the order of arrival or ends before
            the window, the policy gives no time to anybody, the state is of another simulation, or it cannot
            be kept.
        KeyboardInterrupt: There was a Ctrl-C, and no file is given for the state.
    """
    simulation = ClusterSimulation(trace, cluster, throughputs, policy, options or SimulationOptions())
    path = None if state_path is None else Path(state_path)
    if path is not None:
        try:
            pickle.dumps(policy)
        except Exception as cause:  # what cannot be pickled may raise anything
            raise ClusterError(
                f"policy {policy.name}: its state cannot be kept ({cause}); define its class in a module, or "
                "give no file for the state"
            ) from None
        if path.exists():
            _restore(simulation, path)
    with INTERRUPTS.answered() as ending:
        simulation.run(on_progress)
    if ending.interrupted and path is None:
        raise KeyboardInterrupt
    if ending.interrupted and path is not None:
        simulation.reason = FROM_KEYBOARD
        state = {name: value for name, value in vars(simulation).items() if name not in _GIVEN}
        write_bytes(path, pickle.dumps((_told(simulation), state)))
    elif path is not None:
        path.unlink(missing_ok=True)
    return simulation.outcome()


def _restore(simulation: ClusterSimulation, path: Path) -> None:
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
    for name, now in _told(simulation).items():
        if of[name] != now:
            raise ClusterError(
                f"{path}: is of another simulation, whose {name} differs; remove it, or give the same {name}"
            )
    for job in jobs:
        if simulation.next_job != job:
            raise ClusterError(f"{path}: is of another trace, from job {job.name} on; remove it")
        simulation.take_next()
    vars(simulation).update(state)


def _told(simulation: ClusterSimulation) -> dict[str, str]:
    """Return what has to be the same; as text, as the order of the GPU types counts too."""
    cluster, options = repr(simulation.cluster), repr(simulation.options)
    return {"policy": simulation.policy.name, "cluster": cluster, "options": options}
