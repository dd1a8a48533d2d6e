"""Plans whose clocks change no more often than a device can change them; such that repeat, too.

In the order in which to read:

- `limits`: how often and how fast a device changes its clock.
- `model`: what clocks do under these limits.
- `annealing`: simulated annealing of the clocks of stretches.
- `bound`: what no such plan can beat.
- `planning`: all of these in turn.
"""

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
