"""How fast each block runs: the time-energy frontier of any schedule, and the plan for any deadline."""

from schedsearch.energy.cost import CostCurve, cost_curve
from schedsearch.energy.frontier import FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError, InstanceGraph, instance_graph
from schedsearch.energy.planning import OnProgress, compute_frontier
from schedsearch.energy.relaxation import Breakpoint, breakpoints
from schedsearch.energy.simulation import Simulation, all_maximum_clocks, simulate

__all__ = [
    "Breakpoint",
    "CostCurve",
    "EnergyError",
    "FrequencyPlan",
    "Frontier",
    "InstanceGraph",
    "OnProgress",
    "Simulation",
    "all_maximum_clocks",
    "breakpoints",
    "compute_frontier",
    "cost_curve",
    "instance_graph",
    "simulate",
]
