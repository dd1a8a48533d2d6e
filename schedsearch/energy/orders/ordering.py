"""The order and the clocks together: of several schedules, the one of least energy at a deadline.

Perseus tunes the clocks of one given order of blocks (Perseus, Sec. 3 and 4). Schedules of one period and
makespan leave lower clocks different room, mostly in warmup and cooldown, and this chooses among them. The
relaxed problem judges each; the ones that may be best get plans of real clocks. From the best ones, neighbors
in a device's order are swapped as long as that lowers the relaxed energy. A lower bound for every order comes
with them. Where schedules come from is not known here; see `schedsearch.procedures.alternatives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from placements import Profile
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, OnProgress, proved
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.orders.any_order import any_order_mj
from schedsearch.energy.planning import plan_for
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxation import breakpoints, relaxed_plans
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import InvalidScheduleError, validate

TOLERANCE = 1e-7
"""Share of energy that is not worth another order; beyond rounding errors."""

_NO_PRICE = 1e-6
"""Share of the greatest price of an edge below which a price is a rounding error."""

_WORK_OF_INSTANCE = 2e-4
"""Units of work of a schedule's relaxed problem, for each of its instances."""

PLAN_WORK = 0.25
"""Units of work to improve the plan of a schedule with."""

_STARTS = 3
"""Schedules of the least bounds from which neighbors are swapped."""

Keeps = Callable[[Schedule], bool]
"""Says whether a valid schedule may be used."""


@dataclass(frozen=True)
class RatedOrder:
    """A schedule with its energy bound and, where one was made, its plan for the deadline.

    Attributes:
        schedule: Valid.
        candidate: Which of the candidates it is, or was made of by swaps; from 0.
        is_swapped: Whether neighbors were swapped.
        lower_bound_mj: No clocks need less energy until the deadline, but for rounding errors; infinite where
            none keep the deadline.
        plan: The best found for the deadline; None where the bound did not promise enough.
        energy_mj: Energy of all devices until the deadline, with that plan; infinite without.
    """

    schedule: Schedule
    candidate: int
    is_swapped: bool
    lower_bound_mj: float
    plan: FrequencyPlan | None = None
    energy_mj: float = math.inf


@dataclass(frozen=True)
class OrderChoice:
    """The schedule of least energy, with all schedules that were judged.

    Attributes:
        best: The choice, with its plan.
        deadline_ms: Deadline that its plan keeps.
        judged: All schedules, in the order in which they were judged; the first candidate first.
        lower_bound_mj: No clocks of any order and modes of the placement's blocks need less energy until the
            deadline.
        interrupted: Whether it was interrupted from the keyboard; the choice is then the best so far.
    """

    best: RatedOrder
    deadline_ms: float
    judged: tuple[RatedOrder, ...]
    lower_bound_mj: float
    interrupted: bool = False

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that was chosen."""
        return self.best.schedule

    @property
    def plan(self) -> FrequencyPlan:
        """Return the chosen schedule's plan."""
        assert self.best.plan is not None, "only orders with a plan are chosen"
        return self.best.plan

    @property
    def gain(self) -> float | None:
        """Return the share of energy saved over the first candidate; None if that is later anyway."""
        first = self.judged[0]
        return 1 - self.best.energy_mj / first.energy_mj if first.plan is not None else None


def relaxed(
    schedule: Schedule, profile: Profile, deadline_ms: float
) -> tuple[float, dict[tuple[Instance, Instance], float]]:
    """Return a schedule's relaxed energy for a deadline (Perseus, Sec. 4.2); infinite if no clocks keep it.

    Returns:
        Energy of all devices until the deadline in mJ; and the shadow price of each wait of one instance for
        another, in W (mJ per ms).
    """
    problem = ClockProblem(schedule, profile)
    if problem.span_ms[0] > deadline_ms * (1 + TIME_TOLERANCE):
        return math.inf, {}
    plan = next(relaxed_plans(breakpoints(problem.graph, problem.curves), [deadline_ms]))
    instances, graph = problem.graph.instances, problem.graph
    edges = zip(graph.tail.tolist(), graph.head.tolist(), plan.edge_price_w.tolist(), strict=True)
    price = {(instances[tail], instances[head]): price for tail, head, price in edges}
    return plan.energy_mj + problem.waiting_w * deadline_ms, price


def best_order(
    candidates: Iterable[Schedule],
    profile: Profile,
    deadline_ms: float,
    *,
    max_plans: int = 4,
    max_swaps: int = 0,
    work_limit: float = math.inf,
    keeps: Keeps = lambda _: True,
    on_progress: OnProgress = lambda _what, _done, _all: None,
) -> OrderChoice:
    """Return the schedule that needs the least energy until a deadline, with its plan.

    The energy is that of an iteration as long as the deadline (Perseus, Sec. 4.1, Eq. 3, with T' the
    deadline). Schedules whose bound is above the energy of a plan get none of their own.

    Args:
        candidates: Schedules of one placement and number of micro-batches, at least one; the first is
            the baseline of the others. They may be made on demand.
        profile: Cost of each block at each clock.
        deadline_ms: For the iteration.
        max_plans: Candidates beside the first that may get a plan.
        max_swaps: Swaps of neighbors to try; 0 for none, and then no other order than the candidates'.
        work_limit: Units of work, of about a second, after which the best so far is returned; the first
            candidate has a plan in any case.
        keeps: Condition that a schedule made by swaps must keep.
        on_progress: Called with the number of judged schedules.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: No candidate keeps the deadline at any clocks.
        InvalidScheduleError: A candidate is not valid.
    """
    effort, judged = Effort(limit=work_limit), list[RatedOrder]()

    def is_over() -> bool:
        INTERRUPTS.raise_if_seen()
        return effort.is_over

    def planned(order: RatedOrder) -> RatedOrder:
        effort.spend(PLAN_WORK + 2 * _work_of(order.schedule))
        problem = ClockProblem(order.schedule, profile)
        plan = plan_for(problem, deadline_ms, PLAN_WORK)
        if plan is None:
            return order
        after_w = problem.waiting_w if plan.waiting_w is None else plan.waiting_w
        energy_mj = plan.energy_mj + after_w * max(deadline_ms - plan.time_ms, 0.0)
        return replace(order, plan=plan, energy_mj=energy_mj)

    def min_mj() -> float:
        return min(order.energy_mj for order in judged) * (1 - TOLERANCE)

    with INTERRUPTS.answered() as ending:
        for i, schedule in enumerate(candidates):
            bound_mj, _ = relaxed(validate(schedule), profile, deadline_ms)
            effort.spend(_work_of(schedule))
            order = RatedOrder(schedule, i, False, bound_mj)
            judged.append(planned(order) if i == 0 else order)
            on_progress("orders", i + 1, i + 1)
            if is_over():
                break
        for order in sorted(judged[1:], key=lambda order: order.lower_bound_mj)[:max_plans]:
            if order.lower_bound_mj >= min_mj() or (is_over() and min_mj() < math.inf):
                break
            judged[order.candidate] = planned(order)
        by_bound = sorted(judged, key=lambda order: order.lower_bound_mj)
        starts = [order for order in by_bound[:_STARTS] if order.lower_bound_mj < math.inf]
        done = 0
        for left, start in zip(range(len(starts), 0, -1), starts, strict=True):
            if done >= max_swaps or is_over():
                break
            until, tried, better = effort.share(effort.limit, 1 / left), 0, start
            most = math.ceil((max_swaps - done) / left)
            for tried, schedule, mj in _swaps(start.schedule, profile, deadline_ms, most, keeps):
                effort.spend(_work_of(schedule))
                if mj < better.lower_bound_mj:
                    better = RatedOrder(schedule, start.candidate, True, mj)
                on_progress("swaps", done + tried, max_swaps)
                if INTERRUPTS.seen or effort.spent >= until:
                    break
            done += tried
            if better is not start:
                judged.append(planned(better))
    if not judged and not ending.interrupted:
        raise EnergyError("candidates: there are none; give at least one schedule")
    best = min(judged, key=lambda order: order.energy_mj, default=None)
    if best is None or best.plan is None:
        if ending.interrupted:
            raise KeyboardInterrupt
        ms = min(ClockProblem(order.schedule, profile).span_ms[0] for order in judged)
        raise EnergyError(
            f"deadline_ms: {deadline_ms:.12g} cannot be kept by any of {len(judged)} "
            f"schedules; the shortest takes {ms:.6g} ms at the highest clocks, give at least that"
        )
    # of equals the first
    best = next(order for order in judged if order.energy_mj * (1 - TOLERANCE) <= best.energy_mj)
    bound_mj = proved(any_order_mj(best.schedule, profile, deadline_ms), best.energy_mj)
    return OrderChoice(best, deadline_ms, tuple(judged), bound_mj, ending.interrupted)


def _work_of(schedule: Schedule) -> float:
    return _WORK_OF_INSTANCE * len(schedule.blocks)


def _swaps(
    schedule: Schedule, profile: Profile, deadline_ms: float, most: int, keeps: Keeps
) -> Iterator[tuple[int, Schedule, float]]:
    """Yield after each swap the number of swaps tried, and the best schedule so far with its bound.

    Only neighbors whose order has a price are swapped, dearest first: without a wait of price 0 the relaxed
    optimum is the same, and that is at most the optimum with the wait turned round. Pairs that were of no use
    come last after a change elsewhere.
    """
    tried, refused, is_better = 0, set[tuple[Instance, Instance]](), True
    now_mj, price = relaxed(schedule, profile, deadline_ms)
    while is_better:
        late, is_better = set(refused), False
        dear = [pair for pair in price if price[pair] > _NO_PRICE * max(price.values())]
        for pair in sorted(dear, key=lambda pair: (pair in late, -price[pair])):
            other = swapped(schedule, *pair)
            refused.add(pair)
            if other is None or not keeps(other):
                continue
            (other_mj, other_price), tried = relaxed(other, profile, deadline_ms), tried + 1
            if other_mj < now_mj * (1 - TOLERANCE):
                schedule, now_mj, price, is_better = other, other_mj, other_price, True
            yield tried, schedule, now_mj
            if tried >= most:
                return
            if is_better:
                break


def swapped(schedule: Schedule, first: Instance, second: Instance) -> Schedule | None:
    """Return the schedule with two neighbors in a stream's order swapped on all devices that they share.

    Returns:
        The valid schedule that starts every block as soon as its order allows; None where the two are not
        neighbors on all devices that they share, one waits for the other, memory does not allow it, or they
        are one block of two micro-batches, which stay in order.
    """
    if first[0] == second[0]:
        return None
    orders = [list(order) for order in schedule.lane_orders]
    shared = [order for order in orders if first in order and second in order]
    for order in shared:
        i = order.index(first)
        if order[i + 1 : i + 2] != [second]:
            return None
        order[i : i + 2] = [second, first]
    if not shared:
        return None
    try:
        number, chosen = schedule.num_micro_batches, schedule.chosen
        return validate(as_soon_as_possible(schedule.placement, number, orders, chosen))
    except (CyclicOrderError, InvalidScheduleError):
        return None
