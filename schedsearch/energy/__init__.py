"""How fast each block runs: the time-energy frontier of any schedule, and the plan for any deadline."""

from schedsearch.energy.cost import CostCurve, cost_curve
from schedsearch.energy.folding import PeriodicSchedule, has_order_of, repetend_of
from schedsearch.energy.frontier import FrequencyPlan, Frontier, OnProgress
from schedsearch.energy.graph import EnergyError, InstanceGraph, instance_graph
from schedsearch.energy.improving import ExactPlan, ExactStatus, exact_plan
from schedsearch.energy.interchange import frequencies_csv, frontier_csv, zeus_files, zeus_stages
from schedsearch.energy.ordering import Chosen, Judged, best_order
from schedsearch.energy.periodic import PeriodicPlan, periodic_plan
from schedsearch.energy.planning import compute_frontier
from schedsearch.energy.policy import Interval, Job, Policy, Stay, least_cost_policy, read_signal, until
from schedsearch.energy.power_cap import CappedPlan, PowerCap, capped_plan, device_power_w
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxation import Breakpoint, breakpoints
from schedsearch.energy.simulation import Simulation, all_maximum_clocks, simulate
from schedsearch.energy.switching import (
    SwitchedPeriodicPlan,
    SwitchedPlan,
    SwitchingLimits,
    changes_per_iteration,
    num_clock_changes,
    simulate_switching,
    switched_periodic_plan,
    switched_plan,
)

__all__ = [
    "Breakpoint",
    "CappedPlan",
    "Chosen",
    "ClockProblem",
    "CostCurve",
    "EnergyError",
    "ExactPlan",
    "ExactStatus",
    "FrequencyPlan",
    "Frontier",
    "InstanceGraph",
    "Interval",
    "Job",
    "Judged",
    "OnProgress",
    "PeriodicPlan",
    "PeriodicSchedule",
    "Policy",
    "PowerCap",
    "Simulation",
    "Stay",
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
    "least_cost_policy",
    "num_clock_changes",
    "periodic_plan",
    "read_signal",
    "repetend_of",
    "simulate",
    "simulate_switching",
    "switched_periodic_plan",
    "switched_plan",
    "until",
    "zeus_files",
    "zeus_stages",
]
