"""How fast each block runs: the time-energy frontier of any schedule, and the plan for any deadline.

In the order in which to read:

- `graph`: the blocks of all micro-batches as a graph of who waits for whom.
- `cost`: what a block costs at each clock, and the lower convex hull of that.
- `waiting`: what devices use while they wait.
- `bound`: what no plan can beat.
- `frontier`: plans, and the frontier of those that none beats in both time and energy.
- `simulation`: time and energy of clocks.
- `problem`: all of these as one clock problem, which everything below is handed.
- `relaxed`: the problem where blocks may take any time.
- `generators`: what makes plans of real clocks.
- `planning`: from a schedule and a profile to the frontier.
- `orders`: order and clocks together.
- `constrained`: clocks that repeat, power caps.
- `switching`: plans whose clocks change seldom.
- `baselines`: what others do.
- `interchange`: files for other programs.
"""

from schedsearch.energy.constrained.folding import PeriodicSchedule, has_order_of, repetend_of
from schedsearch.energy.constrained.periodic import PeriodicPlan, periodic_plan
from schedsearch.energy.constrained.power_cap import CappedPlan, PowerCap, capped_plan, device_power_w
from schedsearch.energy.cost import CostCurve, cost_curve
from schedsearch.energy.frontier import FrequencyPlan, Frontier, OnProgress
from schedsearch.energy.generators.improving import ExactPlan, ExactStatus, exact_plan
from schedsearch.energy.graph import EnergyError, InstanceGraph, instance_graph
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, zeus_files, zeus_stages
from schedsearch.energy.orders.ordering import OrderChoice, RatedOrder, best_order
from schedsearch.energy.planning import compute_frontier
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxed.relaxation import Breakpoint, breakpoints
from schedsearch.energy.simulation import ClockedIteration, all_maximum_clocks, simulate_at_clocks
from schedsearch.energy.switching.limits import SwitchingLimits, changes_per_iteration, num_clock_changes
from schedsearch.energy.switching.planning import (
    SwitchedPeriodicPlan,
    SwitchedPlan,
    simulate_switching,
    switched_periodic_plan,
    switched_plan,
)

__all__ = [
    "Breakpoint",
    "CappedPlan",
    "ClockProblem",
    "ClockedIteration",
    "CostCurve",
    "EnergyError",
    "ExactPlan",
    "ExactStatus",
    "FrequencyPlan",
    "Frontier",
    "InstanceGraph",
    "OnProgress",
    "OrderChoice",
    "PeriodicPlan",
    "PeriodicSchedule",
    "PowerCap",
    "RatedOrder",
    "SwitchedPeriodicPlan",
    "SwitchedPlan",
    "SwitchingLimits",
    "all_maximum_clocks",
    "best_order",
    "breakpoints",
    "capped_plan",
    "changes_per_iteration",
    "compute_frontier",
    "cost_curve",
    "device_power_w",
    "exact_plan",
    "frequencies_csv",
    "frontier_csv",
    "has_order_of",
    "instance_graph",
    "num_clock_changes",
    "periodic_plan",
    "repetend_of",
    "simulate_at_clocks",
    "simulate_switching",
    "switched_periodic_plan",
    "switched_plan",
    "zeus_files",
    "zeus_stages",
]
