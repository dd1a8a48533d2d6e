"""The energy frontier: speed, savings, gaps to the bound, and ours beside others' plans.

Energies of two plans are compared at equal deadline: both are effective energies, above the blocking power,
of plans that keep it. Gaps and savings are in percent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.benchmarks.inputs.clock_tasks import ClockTask, clock_task, made_up
from experiments.benchmarks.inputs.made_placements import made_placement
from experiments.benchmarks.timing import cpu_s, load_solvers, timed
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from schedsearch.energy import all_maximum_clocks, best_order, instance_graph, simulate_at_clocks
from schedsearch.energy.graph import Floats
from schedsearch.energy.simulation import waiting_w
from schedsearch.procedures.alternatives import schedules_of_equal_period
from schedsearch.searches.search import search

_SEARCH_WORK, _ORDER_WORK = 5.0, 5.0
"""Work for the search whose order is chosen, and for the choice."""


def prepare() -> None:
    """Load the solvers and put a question to each, so that no case pays for it."""
    load_solvers()
    task = made_up(shape="v_shape", num_devices=1, micro_batches=1, clocks=3, seed=0, noise=0.0)
    task.frontier(num_plans=3, work_limit=1.0)


def frontier(*, num_plans: int = 400, work_limit: float = 0.0, **of: Any) -> dict[str, Any]:
    """Compute a whole frontier, simulate every plan again, and hold it against its bound.

    ``off`` is the largest share by which a plan's own time or energy is not the simulated one; ``saved`` is
    at the shortest time, against all clocks at maximum, of which ``savable`` is possible.
    """
    task = clock_task(**of)
    pareto, seconds = timed(lambda: task.frontier((), num_plans, work_limit=work_limit))
    gaps = 100 * np.array([plan.gap for plan in pareto.plans])
    graph = instance_graph(task.schedule)
    done = [simulate_at_clocks(task.schedule, task.profile, plan.clock_mhz, graph) for plan in pareto.plans]
    planned = np.array([(plan.time_ms, plan.energy_mj) for plan in pareto.plans])
    again = np.array([(iteration.time_ms, iteration.energy_mj) for iteration in done])
    shortest, maximum = pareto.shortest, pareto.all_maximum
    return {
        "cpu_s": seconds,
        "plans": len(pareto.plans),
        "min_gap": float(gaps.min()),
        "mean_gap": float(gaps.mean()),
        "max_gap": float(gaps.max()),
        "shortest_gap": 100 * shortest.gap,
        "off": float(np.abs(planned / again - 1).max()),
        "saved": 100 * pareto.saving(shortest),
        "savable": 100 * (1 - shortest.lower_bound_mj / maximum.energy_mj),
        "over_maximum": shortest.time_ms / maximum.time_ms,
    }


def shares_above(task: ClockTask, theirs: Floats) -> dict[str, float]:
    """Return how much more energy another's plans use than ours at their times, in percent of theirs.

    Their plans are rows of time in ms and energy in mJ. Our frontier has a plan for each of the times.
    """
    time, energy = theirs.T
    power_w = waiting_w(task.schedule.placement, task.profile)
    ours = task.frontier(time.tolist())
    plans = [ours.at(deadline) for deadline in time.tolist()]
    best = np.array([plan.energy_mj - power_w * plan.time_ms for plan in plans])
    share = 100 * (energy - power_w * time - best) / energy
    return {"min_more": float(share.min()), "max_more": float(share.max()), "mean_more": float(share.mean())}


def orders(*, slowdown: float, seeds: int, micro_batches: int, **made: Any) -> dict[str, Any]:
    """Search with several seeds, and choose the order of least energy by a deadline.

    That is a multiple of the searched schedule's time at the highest clocks. Gains are in percent of the
    energy of that order; ``left`` is what no order saves beyond, on average.
    """
    placement = made_placement(**made)
    profile = modelled_profile(placement, GPUS["a100"])
    gains, left, seconds, late = [], [], [], []
    for seed in range(seeds):
        answer = search(placement, micro_batches, seed=seed, work_limit=_SEARCH_WORK)
        assert answer.schedule is not None, "memory is not limited"
        maximum = simulate_at_clocks(answer.schedule, profile, all_maximum_clocks(answer.schedule, profile))
        deadline_ms, began_s = slowdown * maximum.time_ms, cpu_s()
        candidates = schedules_of_equal_period(
            placement, micro_batches, answer, work_limit=0.4 * _ORDER_WORK, seed=seed
        )
        schedules = (candidate.schedule for candidate in candidates)
        chosen = best_order(schedules, profile, deadline_ms, max_swaps=480, work_limit=0.6 * _ORDER_WORK)
        seconds.append(cpu_s() - began_s)
        assert chosen.gain is not None, "the search's own schedule keeps the deadline"
        gains.append(100 * chosen.gain)
        left.append(100 * (1 - chosen.lower_bound_mj / chosen.best.energy_mj))
        late.append(simulate_at_clocks(chosen.schedule, profile, chosen.plan.clock_mhz).time_ms / deadline_ms)
    return {
        "cpu_s": max(seconds),
        "min_gain": min(gains),
        "max_gain": max(gains),
        "mean_gain": float(np.mean(gains)),
        "left": float(np.mean(left)),
        "over_deadline": max(late),
    }
