"""The order that is best on average over scenarios, or in most of them, beside other schedules."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schedsearch.results import TableResult
from schedsearch.robust.annealing import annealed
from schedsearch.robust.drawn_orders import current_orders, drawn_orders
from schedsearch.robust.scenarios import Scenario, weights_of
from schedsearch.schedule import Schedule, as_soon_as_possible, require_plain
from schedsearch.simulation.conditions import ConditionsError
from schedsearch.simulation.iterations import simulate
from schedsearch.solver.effort import Effort
from schedsearch.validate import validate

ROBUST = "robust"
"""Name of the order found, in tables."""

_STARTS = 3
"""Number of schedules to start from: the best given ones."""

_FIRST_ROUND = 0.1
"""Units of work of each start's first round; each later round has twice as much, and begins with its best."""

_HEAT = 0.002
"""Share of the value by which a step may be worse at first, on average."""

_WORK_OF_CELL, _WORK_OF_ENTRY = 1.2e-9, 1.0e-8
"""Units of work, about a second each, for the start of one block in one draw, or in however few draws."""

_ITERATIONS = 1000
"""Simulated iterations of each schedule in each scenario, with other draws than in the search."""


@dataclass(frozen=True, eq=False)
class ScenarioRow:
    """Iteration times of a schedule simulated in a scenario.

    Attributes:
        schedule: Name of the schedule.
        scenario: Name of the scenario.
        mean_ms: Mean time of an iteration.
        error_ms: Half the width of the mean's 95 % confidence interval.
        p50_ms: Median time of an iteration.
        p95_ms: 95th percentile.
        p99_ms: 99th percentile.
        bound_ms: Lower bound on the mean time over all orders.
    """

    schedule: str
    scenario: str
    mean_ms: float
    error_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    bound_ms: float


@dataclass(frozen=True, eq=False)
class RobustResult(TableResult):
    """The order found, and the iteration times of every schedule in every scenario.

    Attributes:
        schedule: The order found as a validated schedule, with the placement's own times.
        rows: `ROBUST` first, then the schedules given; for each, all scenarios.
        mean_ms: Weighted mean time over all scenarios, by name of schedule.
        bound_ms: Lower bound on this mean over all orders.
        interrupted: Whether a Ctrl-C ended the search; the order is the best until then.
    """

    schedule: Schedule
    rows: tuple[ScenarioRow, ...]
    mean_ms: Mapping[str, float]
    bound_ms: float
    interrupted: bool = False


def robust_search(
    schedules: Mapping[str, Schedule],
    scenarios: Sequence[Scenario],
    *,
    quantile: float | None = None,
    draws: int = 32,
    work_limit: float = 20.0,
    time_limit_s: float = math.inf,
    seed: int = 0,
) -> RobustResult:
    """Search an order that is good in all scenarios.

    It begins with the best of the given schedules, and lets neighbours on a device change places, on a path
    that ends one of the draws (simulated annealing). No device ever holds more than its capacity. The order
    is at least as good as each given one on the draws of the search; the table has others.

    Args:
        schedules: Valid ones of one placement and number of micro-batches, by name.
        scenarios: Scenarios in which the order should be good.
        quantile: Quantile of the iteration time to minimise, such as 0.95; None for the mean.
        draws: Draws of each scenario whose times vary.
        work_limit: Units of counted work, each of about a second.
        time_limit_s: Seconds for the search.
        seed: Seed of all draws and choices.

    Raises:
        ConditionsError: There is no schedule or no scenario, or a number is out of its range.
        PlacementError: The placement has modes or streams.
    """
    from schedsearch.robust.swaps import anneal, current_ticks  # loads numba, which is slow

    if not schedules or not scenarios:
        raise ConditionsError(f"{'schedules' if not schedules else 'scenarios'}: is empty; give at least one")
    if quantile is not None and not 0 < quantile <= 1:
        raise ConditionsError(f"quantile: {quantile!r} is not above 0 and at most 1; give one, as 0.95")
    for name, value in (("draws", draws), ("work_limit", work_limit)):
        if not value > 0:
            raise ConditionsError(f"{name}: {value!r} is not above 0; give more")
    given, level = list(schedules.values()), -1.0 if quantile is None else quantile
    placement, number = given[0].placement, given[0].num_micro_batches
    require_plain(placement, "a search with scenarios", "use schedsearch search without them")
    for scenario in scenarios:
        scenario.conditions.check(placement)
    starts = [drawn_orders(schedule, scenarios, draws, seed) for schedule in given]
    ranked = sorted(range(len(starts)), key=lambda i: current_ticks(starts[i], level))[:_STARTS]
    some = starts[0]
    cells = some.times.size + some.delays.size + some.times.shape[1] * len(some.order)
    work_of_step = cells * max(_WORK_OF_CELL, _WORK_OF_ENTRY / some.times.shape[1])
    effort = Effort(time.monotonic() + time_limit_s, limit=work_limit)
    with effort.answered() as ending:
        for turn in itertools.count():
            options = {"work": _FIRST_ROUND * 2**turn, "work_of_step": work_of_step, "heat": _HEAT}
            for i in ranked:
                take = functools.partial(anneal, starts[i], level)
                for _ in annealed(take, effort, seed=seed + 1000 * turn, **options):
                    pass
    chosen = min(ranked, key=lambda i: current_ticks(starts[i], level))
    best = current_orders(starts[chosen], given[chosen])
    robust = validate(as_soon_as_possible(placement, number, best))
    bounds = [scenario.bound_ms(placement, number) for scenario in scenarios]
    rows, means = [], {}
    for name, schedule in {ROBUST: robust, **schedules}.items():
        pairs = zip(scenarios, bounds, strict=True)
        new_rows = [_row(name, schedule, scenario, bound, seed) for scenario, bound in pairs]
        rows += new_rows
        means[name] = _mean([row.mean_ms for row in new_rows], scenarios)
    return RobustResult(robust, tuple(rows), means, _mean(bounds, scenarios), ending.interrupted)


def _mean(values: Sequence[float], scenarios: Sequence[Scenario]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights_of(scenarios), strict=True))


def _row(name: str, schedule: Schedule, scenario: Scenario, bound_ms: float, seed: int) -> ScenarioRow:
    simulated = simulate(schedule, scenario.conditions, _ITERATIONS, seed + 1)
    error_ms = 1.96 * float(simulated.iteration_ms.std(ddof=1)) / math.sqrt(_ITERATIONS)
    p50, p95, p99 = simulated.percentiles_ms.values()
    return ScenarioRow(name, scenario.name, simulated.mean_ms, error_ms, p50, p95, p99, bound_ms)
