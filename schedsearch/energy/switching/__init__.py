"""Plans whose clocks change no more often than a device can change them; such that repeat, too."""

from schedsearch.energy.switching.limits import SwitchingLimits, changes_per_iteration, num_clock_changes
from schedsearch.energy.switching.planning import (
    SwitchedPeriodicPlan,
    SwitchedPlan,
    simulate_switching,
    switched_periodic_plan,
    switched_plan,
)

__all__ = [
    "SwitchedPeriodicPlan",
    "SwitchedPlan",
    "SwitchingLimits",
    "changes_per_iteration",
    "num_clock_changes",
    "simulate_switching",
    "switched_periodic_plan",
    "switched_plan",
]
