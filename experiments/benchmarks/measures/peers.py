"""Ours beside every peer on small tasks of growing size, in one run: both in turn, ours first.

``over_peer`` is our answer over the peer's, less of it is better; ``cpu`` is the ratio of CPU seconds.
Tessel's search is of our own making from the paper; lowtime and torch are as they are installed.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.benchmarks.inputs.clock_tasks import clock_task
from experiments.benchmarks.inputs.made_placements import made_placement
from experiments.benchmarks.measures.frontier import prepare, shares_above
from experiments.benchmarks.others.lowtime_plans import lowtime_clocks
from experiments.benchmarks.timing import MedianRatio, beside_peer, cpu_s, in_turn, timed
from placements import Placement
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.energy import simulate_at_clocks
from schedsearch.metrics import peak_memory
from schedsearch.searches.search import search
from schedsearch.tessel import tessel as tessel_search

__all__ = ["lowtime", "prepare", "tessel", "torch_runtime", "torch_schedule"]

_ROUNDS = 3
"""Pairs of runs of each case; the least and the largest ratio are given beside the median."""


def tessel(
    *, time_limit_s: float, rounds: int = _ROUNDS, more_memory: int = 0, **made: Any
) -> dict[str, Any]:
    """Search a whole schedule of three micro-batches a device as we do and as Tessel does, one per repetend.

    Ours is made shorter for a second more than its proof of the period takes; ``cpu_proof`` compares the
    proofs. Each of Tessel's runs ends after the limit in wall-clock seconds.
    """
    placement = made_placement(**made)
    placement = placement.with_memory(placement.num_devices + more_memory)
    number = 3 * placement.num_devices
    runs = [(_ours(placement, number), _tessels(placement, number, time_limit_s)) for _ in range(rounds)]
    our_s, peer_s = ([run[2] for run in side] for side in zip(*runs, strict=True))
    our_proof_s, peer_proof_s = ([run[1] for run in side] for side in zip(*runs, strict=True))
    ours, theirs = (run[0] for run in runs[-1])
    figures = {"task": f"Tessel, {placement.name}", "devices": placement.num_devices}
    figures |= beside_peer(our_s, peer_s) | MedianRatio.of(our_proof_s, peer_proof_s).figures("cpu_proof")
    return figures | _answers("makespan", _makespan(ours), _makespan(theirs))


def _makespan(result: Answer) -> int | None:
    return None if result.schedule is None else result.schedule.makespan


def _ours(placement: Placement, micro_batches: int) -> tuple[Answer, float, float]:
    """Return our schedule, and CPU seconds of the proof of its period and of all of it."""
    options: dict[str, Any] = {"micro_batches_per_repetend": 1, "solver": "z3"}
    proof, proof_s = timed(
        lambda: search(placement, micro_batches, objectives=("period",), time_limit_s=60.0, **options)
    )
    options["time_limit_s"] = proof.seconds + 1.0
    whole, whole_s = timed(lambda: search(placement, micro_batches, **options))
    return whole, proof_s, whole_s


def _tessels(placement: Placement, micro_batches: int, limit_s: float) -> tuple[Answer, float, float]:
    """Return Tessel's schedule, and the CPU seconds of its sweep over repetends and of all of it."""
    began_s, sweep_ends_s = cpu_s(), list[float]()

    def note(progress: SearchProgress) -> None:
        if progress.phase.startswith("completion"):
            sweep_ends_s.append(cpu_s())

    result = tessel_search(placement, micro_batches, time_limit_s=limit_s, on_progress=note)
    if result.interrupted:
        raise KeyboardInterrupt
    ended_s = cpu_s()
    return result, [*sweep_ends_s, ended_s][0] - began_s, ended_s - began_s


def lowtime(*, unit_ms: float, rounds: int = _ROUNDS, **of: Any) -> dict[str, Any]:
    """Compute the whole frontier as we do and with lowtime, on the same graph and costs.

    Each step of lowtime shortens the iteration by a unit. ``over_peer`` is the mean energy at equal
    deadlines; ``min_more`` and ``max_more`` say how much more lowtime uses, in percent.
    """
    task = clock_task(**of)
    problem = task.problem
    _, clocks, figures = in_turn(
        rounds, task.frontier, lambda: lowtime_clocks(problem.graph, problem.curves, unit_ms)
    )
    places = {
        name: [i for i, instance in enumerate(problem.graph.instances) if instance[0] == name]
        for name in problem.curves
    }
    plans = [
        simulate_at_clocks(
            task.schedule,
            task.profile,
            {name: plan[rows].tolist() for name, rows in places.items()},
            problem.graph,
        )
        for plan in clocks.T
    ]
    shares = shares_above(task, np.array([(plan.time_ms, plan.energy_mj) for plan in plans]))
    size = {
        "task": f"lowtime, {task.schedule.placement.num_devices} stages",
        "micro-batches": task.schedule.num_micro_batches,
    }
    return size | figures | {"over_peer": 1 - shares["mean_more"] / 100} | shares


def torch_runtime(*, micro_batches: int, width: int, rows: int, rounds: int) -> dict[str, Any]:
    """Run 1F1B on four processes in our runtime and in torch's, iteration by iteration in turn.

    ``wall`` is the ratio of the times of iterations, ``off`` the largest difference of gradients.
    """
    from experiments.benchmarks.others.torch_runtime import run_beside_torch

    schedule = one_f_one_b(v_shape(4), micro_batches)
    (our_ms, torch_ms), (our_cpu_s, torch_cpu_s), error = run_beside_torch(schedule, width, rows, rounds)
    size = {"task": "torch's runtime", "blocks": len(schedule.blocks)}
    wall = MedianRatio.of(our_ms, torch_ms).figures("wall")
    wall |= {"wall_s": statistics.median(our_ms) / 1000, "peer_wall_s": statistics.median(torch_ms) / 1000}
    return size | beside_peer(our_cpu_s, torch_cpu_s) | wall | {"off": error}


def torch_schedule(
    *, torch_name: str, devices: int, micro_batches: int, rounds: int = _ROUNDS
) -> dict[str, Any]:
    """Search a schedule with the memory that one of torch's takes, and hold it against torch's.

    torch's rule only writes its table.
    """
    from experiments.benchmarks.others.torch_schedules import torch_schedule as made

    theirs = made(torch_name, devices, micro_batches)
    placement = replace(theirs.placement, memory=tuple(map(int, peak_memory(theirs))))
    ours, theirs, figures = in_turn(
        rounds,
        lambda: search(placement, micro_batches, time_limit_s=20.0),
        lambda: made(torch_name, devices, micro_batches),
    )
    size = {"task": f"torch's {torch_name}", "blocks": len(theirs.blocks)}
    return size | figures | _answers("makespan", _makespan(ours), theirs.makespan)


def _answers(name: str, ours: float | None, theirs: float | None) -> dict[str, Any]:
    """Return both answers, and ours over the peer's where both have one."""
    figures = {name: ours, f"peer_{name}": theirs}
    return figures | {"over_peer": ours / theirs} if ours and theirs else figures
