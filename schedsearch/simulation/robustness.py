"""Schedules beside each other under several conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placements import Placement
from schedsearch.results import TableResult
from schedsearch.schedule import Schedule
from schedsearch.simulation.conditions import Conditions
from schedsearch.simulation.iterations import SimulatedIterations, simulate

JITTER, SLOW_DEVICE, SLOW_PAIR = 0.1, 1.2, 4.0
"""Factors of `usual_conditions`: jitter, a slow device and a slow pair of devices."""


@dataclass(frozen=True, eq=False)
class DegradationRow:
    """A schedule under conditions.

    Attributes:
        schedule: Its name.
        conditions: Their name.
        undisturbed_ms: The iteration without conditions.
        iterations: With them.
    """

    schedule: str
    conditions: str
    undisturbed_ms: float
    iterations: SimulatedIterations

    @property
    def longer(self) -> float:
        """Share by which the mean iteration is longer than the undisturbed one."""
        return self.iterations.mean_ms / self.undisturbed_ms - 1


@dataclass(frozen=True, eq=False)
class Degradation(TableResult):
    """Every schedule under every condition.

    Attributes:
        rows: Schedule after schedule.
    """

    rows: tuple[DegradationRow, ...]


def usual_conditions(placement: Placement) -> dict[str, Conditions]:
    """Return jitter of a tenth, a middle device that is a fifth slower, and a middle link four times as slow.

    A slow link is of no effect where the placement has no transfer times.
    """
    middle = placement.num_devices // 2
    conditions = {
        f"jitter {JITTER:.0%}": Conditions(jitter=JITTER),
        f"device {middle} x {SLOW_DEVICE:g}": Conditions(slow_devices={middle: SLOW_DEVICE}),
    }
    if middle > 0:
        pairs = {(middle - 1, middle): SLOW_PAIR, (middle, middle - 1): SLOW_PAIR}
        conditions[f"link {middle - 1}-{middle} x {SLOW_PAIR:g}"] = Conditions(slow_pairs=pairs)
    return conditions


def degradation(
    schedules: Mapping[str, Schedule],
    conditions: Mapping[str, Conditions] | None = None,
    iterations: int = 1000,
    seed: int = 0,
) -> Degradation:
    """Return how much longer iterations become, for each schedule under each of some conditions.

    Args:
        schedules: Schedules by name.
        conditions: Conditions by name; None for `usual_conditions` of each schedule's placement.
        iterations: For each schedule and condition.
        seed: Seed of all draws.

    Raises:
        ConditionsError: Conditions do not fit a placement.
    """
    rows = []
    for name, schedule in schedules.items():
        undisturbed_ms = simulate(schedule, iterations=1).mean_ms
        applied = usual_conditions(schedule.placement) if conditions is None else conditions
        for condition, each in applied.items():
            rows.append(
                DegradationRow(name, condition, undisturbed_ms, simulate(schedule, each, iterations, seed))
            )
    return Degradation(tuple(rows))
