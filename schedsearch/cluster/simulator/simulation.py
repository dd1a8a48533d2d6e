"""Simulates the jobs of a trace on a cluster; an interrupted simulation can go on later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.simulator.engine import ClusterSimulation
from schedsearch.cluster.simulator.job_table import ClusterProgress
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.resume import check_can_be_kept, restore, write_state
from schedsearch.cluster.throughputs import Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

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
        check_can_be_kept(policy)
        if path.exists():
            restore(simulation, path)
    with INTERRUPTS.answered() as ending:
        simulation.run(on_progress)
    if ending.interrupted and path is None:
        raise KeyboardInterrupt
    if ending.interrupted and path is not None:
        simulation.reason = FROM_KEYBOARD
        write_state(simulation, path)
    elif path is not None:
        path.unlink(missing_ok=True)
    return simulation.outcome()
