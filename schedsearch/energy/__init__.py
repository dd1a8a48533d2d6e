"""How fast each block runs: the time-energy frontier of any schedule, and the plan for any deadline.

In the order in which to read:

- `graph`: the block instances of all micro-batches, and the waits between them, as a graph.
- `cost`: time and energy of a block at each clock, and their lower convex hull.
- `frontier`: plans, the Pareto frontier of time and energy, and its lower bound.
- `simulation`: time and energy of clocks, waiting included.
- `relaxation`: the whole frontier by minimum cuts if blocks could take any time between two clocks.
- `problem`: all of these as one clock problem, which everything below is handed.
- `kernels`: the loops over instances and plans, compiled.
- `programs`: linear programs; the relaxed problem as one, where clocks are fixed, shared or limited.
- `generators`: ways to make plans of real clocks.
- `improving`: plans improved some instances at a time, with proof where a schedule is small.
- `planning`: from a schedule and a profile to the frontier.
- `orders`: order and clocks together.
- `limits`: plans that a real job can run.
- `baselines`: the plans of published methods.
- `interchange`: CSV files of plans and frontiers.
"""

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.frontier import FrequencyPlan, Frontier, OnProgress
from schedsearch.energy.graph import EnergyError, InstanceGraph, instance_graph
from schedsearch.energy.interchange import frequencies_csv
from schedsearch.energy.limits.folding import PeriodicSchedule, has_order_of, repetend_of
from schedsearch.energy.limits.periodic import PeriodicPlan, periodic_plan, switched_periodic_plan
from schedsearch.energy.limits.power_cap import CappedPlan, capped_plan
from schedsearch.energy.limits.switched import SwitchedPlan, switched_plan
from schedsearch.energy.limits.switching import (
    SwitchingLimits,
    changes_per_iteration,
    num_clock_changes,
    simulate_switching,
)
from schedsearch.energy.orders.ordering import best_order
from schedsearch.energy.planning import compute_frontier
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.simulation import ClockedIteration, all_maximum_clocks, simulate_at_clocks

__all__ = [
    "CappedPlan",
    "ClockProblem",
    "ClockedIteration",
    "CostCurve",
    "EnergyError",
    "FrequencyPlan",
    "Frontier",
    "InstanceGraph",
    "OnProgress",
    "PeriodicPlan",
    "PeriodicSchedule",
    "SwitchedPlan",
    "SwitchingLimits",
    "all_maximum_clocks",
    "best_order",
    "capped_plan",
    "changes_per_iteration",
    "compute_frontier",
    "frequencies_csv",
    "has_order_of",
    "instance_graph",
    "num_clock_changes",
    "periodic_plan",
    "repetend_of",
    "simulate_at_clocks",
    "simulate_switching",
    "switched_periodic_plan",
    "switched_plan",
]
