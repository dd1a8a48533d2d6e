"""The order and the clocks together: of several schedules, the one of least energy at a deadline.

Perseus tunes the clocks of one given order of blocks (Perseus, Sec. 3 and 4). Schedules of one period and
makespan leave lower clocks different room, mostly in warmup and cooldown, and this chooses among them. The
relaxed problem, one linear program, judges each; what may be best gets a plan of real clocks. From the best
one, neighbors in a device's order are swapped as long as that lowers the relaxed energy. A schedule that is
small enough gets its best order and clocks from one program. What no order can beat is said beside (`joint`).
Where schedules come from is not known here; see `schedsearch.procedures.alternatives`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from placements import Profile
from schedsearch.energy.bound import proved
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, OnProgress
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.orders.any_order import any_order_mj
from schedsearch.energy.orders.joint import best_order_and_clocks, is_small
from schedsearch.energy.planning import plan_for
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxed.highs import SolverError
from schedsearch.energy.relaxed.timing_program import free_timing, min_energy
from schedsearch.energy.simulation import simulate_at_clocks
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import InvalidScheduleError, validate

TOLERANCE = 1e-7
"""Share of energy that is not worth another order; beyond the rounding errors of the linear program."""

_NO_PRICE = 1e-6
"""Share of the greatest price of an edge below which a price is a rounding error."""

_WORK_OF_INSTANCE = 2e-4
"""Units of work of a schedule's linear program, for each of its instances."""

PLAN_WORK = 0.25
"""Units of work to improve the plan of a schedule with."""

_STARTS = 3
"""Schedules of the least bounds from which neighbors are swapped."""

Keeps = Callable[[Schedule], bool]
"""Says whether a valid schedule may be used."""


@dataclass(frozen=True)
class RatedOrder:
    """What is known of one schedule.

    Attributes:
        schedule: Valid.
        candidate: Which of the candidates it is, or was made of by swaps; from 0.
        is_swapped: Whether neighbors were swapped.
        lower_bound_mj: No clocks need less energy until the deadline, but for rounding errors; infinite where
            none keep the deadline, and all blocks at their cheapest where the solver failed.
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
    """The schedule of least energy, and what it was chosen from.

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
        """Return its plan."""
        assert self.best.plan is not None, "only what has a plan is chosen"
        return self.best.plan

    @property
    def gain(self) -> float | None:
        """Return the share of energy saved over the first candidate; None if that is later anyway."""
        first = self.judged[0]
        return 1 - self.best.energy_mj / first.energy_mj if first.plan is not None else None

    @property
    def loss(self) -> float:
        """Return by how much of the bound the first candidate may be above the best order, modes and clocks.

        Where it was chosen without clocks, that is what choosing so costs at most; infinite if it is late.
        """
        return self.judged[0].energy_mj / self.lower_bound_mj - 1 if self.lower_bound_mj > 0 else math.nan

    @property
    def gap(self) -> float:
        """Return by how much of the bound the choice may be above the best order and clocks."""
        return self.best.energy_mj / self.lower_bound_mj - 1 if self.lower_bound_mj > 0 else math.nan


@dataclass(frozen=True)
class Relaxed:
    """A schedule's relaxed optimum.

    Attributes:
        energy_mj: Energy of all devices until the deadline.
        price_w: What each wait of one instance for another costs: the power that it takes to make up for it.
    """

    energy_mj: float
    price_w: dict[tuple[Instance, Instance], float]


def relaxed(schedule: Schedule, profile: Profile, deadline_ms: float) -> Relaxed | None:
    """Return the relaxed optimum of a schedule for a deadline (Perseus, Sec. 4.2), or None if it has none.

    Raises:
        SolverError: The solver failed, or says of a deadline that the fastest clocks keep that it cannot be.
    """
    problem = ClockProblem(schedule, profile)
    graph, timing = problem.graph, free_timing(problem.graph, problem.curves)
    until_ms = deadline_ms * (1 + TIME_TOLERANCE)
    found = min_energy(timing, until_ms)
    if found is None:
        if problem.span_ms[0] <= until_ms:
            raise SolverError(
                f"deadline_ms: {deadline_ms:.12g} is too near the shortest iteration to be judged"
            )
        return None
    waiting_mj = problem.waiting_w * deadline_ms
    pairs = ((graph.instances[tail], graph.instances[head]) for tail, head, _ in graph.edges)
    return Relaxed(found.energy_mj + waiting_mj, dict(zip(pairs, found.edge_price.tolist(), strict=True)))


def _lower_bound_mj(schedule: Schedule, profile: Profile, deadline_ms: float) -> float:
    """Return `RatedOrder.lower_bound_mj`."""
    try:
        found = relaxed(schedule, profile, deadline_ms)
    except SolverError:
        problem = ClockProblem(schedule, profile)
        min_mj = float(problem.table.energy(problem.table.last[:, None])[0])
        return min_mj + problem.waiting_w * deadline_ms
    return math.inf if found is None else found.energy_mj


def best_order(
    candidates: Iterable[Schedule],
    profile: Profile,
    deadline_ms: float,
    *,
    max_plans: int = 4,
    max_swaps: int = 0,
    work_limit: float = math.inf,
    keeps: Keeps = lambda _: True,
    on_progress: OnProgress | None = None,
) -> OrderChoice:
    """Return the schedule that needs the least energy until a deadline, with its plan.

    The energy is that of an iteration as long as the deadline (Perseus, Sec. 4.1, Eq. 3, with T' the
    deadline). Schedules whose bound is above the energy of a plan get none of their own.

    Args:
        candidates: Schedules of one placement and number of micro-batches, at least one; the first is what
            the others are measured against. They may be made while they are asked for.
        profile: Cost of each block at each clock.
        deadline_ms: For the iteration.
        max_plans: Candidates beside the first that may get a plan.
        max_swaps: Swaps of neighbors to try; 0 for none, and then no other order than the candidates'.
        work_limit: Units of work, of about a second, after which the best so far is returned; the first
            candidate has a plan in any case.
        keeps: What a schedule made by swaps must keep.
        on_progress: Told how many schedules are judged.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: No candidate keeps the deadline at any clocks.
        InvalidScheduleError: A candidate is not valid.
    """
    effort = Effort(limit=work_limit)
    running = _Choice(profile, deadline_ms, effort, on_progress or (lambda _what, _done, _all: None))
    with INTERRUPTS.answered() as ending:
        running.judge_all(candidates)
        running.plan_best(max_plans)
        if max_swaps > 0:
            running.swap(max_swaps, keeps)
            running.order_jointly(keeps)
    running.interrupted = ending.interrupted
    return running.chosen()


@dataclass
class _Choice:
    """One choice's state: all that is judged so far."""

    profile: Profile
    deadline_ms: float
    effort: Effort
    on_progress: OnProgress
    judged: list[RatedOrder] = field(default_factory=list)
    proved_mj: float = 0.0
    interrupted: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the work is done; tells of Ctrl-C by raising."""
        INTERRUPTS.raise_if_seen()
        return self.effort.is_over

    def judge_all(self, candidates: Iterable[Schedule]) -> None:
        """Bound the energy of every candidate; plan the first, so that there is something to choose."""
        for i, schedule in enumerate(candidates):
            bound_mj = _lower_bound_mj(validate(schedule), self.profile, self.deadline_ms)
            self.effort.spend(_work_of(schedule))
            self.judged.append(RatedOrder(schedule, i, False, bound_mj))
            if i == 0:
                self.plan(0)
            self.on_progress("orders", i + 1, i + 1)
            if self.is_over:
                break
        if not self.judged:
            raise EnergyError("candidates: there are none; give at least one schedule")

    def plan(self, i: int) -> None:
        """Give a judged schedule its plan, if it keeps the deadline."""
        self.effort.spend(PLAN_WORK + 2 * _work_of(self.judged[i].schedule))
        with contextlib.suppress(EnergyError):
            self.judged[i] = _planned(self.judged[i], self.profile, self.deadline_ms)

    def plan_best(self, most: int) -> None:
        """Plan those of the least bounds, until no bound is below the best energy."""
        order = sorted(range(1, len(self.judged)), key=lambda i: self.judged[i].lower_bound_mj)
        for i in order[:most]:
            bound_mj = self.judged[i].lower_bound_mj
            if bound_mj == math.inf or bound_mj >= self.min_mj * (1 - TOLERANCE):
                break
            if self.is_over and self.min_mj < math.inf:
                break
            self.plan(i)

    @property
    def min_mj(self) -> float:
        """The least energy of a plan so far."""
        return min(each.energy_mj for each in self.judged)

    def swap(self, most: int, keeps: Keeps) -> None:
        """Go on from the candidates of the least bounds by swaps, and plan what comes of each."""
        by_bound = sorted(self.judged, key=lambda each: each.lower_bound_mj)
        starts = [each for each in by_bound[:_STARTS] if each.lower_bound_mj < math.inf]
        done = 0
        for i, start in enumerate(starts):
            if most <= done or self.is_over:
                return
            until = self.effort.share(self.effort.limit, 1 / (len(starts) - i))
            done += self.swap_from(
                start, keeps, done, (done + math.ceil((most - done) / (len(starts) - i)), most), until
            )

    def swap_from(
        self, start: RatedOrder, keeps: Keeps, done: int, limits: tuple[int, int], until: float
    ) -> int:
        """Swap from one schedule until so many swaps or so much work is done; return how many it took.

        The limits are for this schedule, and of all for the progress.
        """
        reached, tried = start, 0
        for tried, schedule, bound_mj in _swaps(
            start.schedule, self.profile, self.deadline_ms, limits[0] - done, keeps
        ):
            self.effort.spend(_work_of(start.schedule))
            if schedule is not None:
                reached = RatedOrder(schedule, start.candidate, True, bound_mj)
            self.on_progress("swaps", done + tried, limits[1])
            if INTERRUPTS.seen or self.effort.spent >= until:
                break
        if reached is not start:
            self.judged.append(reached)
            self.plan(len(self.judged) - 1)
        return tried

    def order_jointly(self, keeps: Keeps) -> None:
        """Find the best order, modes and clocks of a small schedule by a program, as far as the work goes."""
        now = min(self.judged, key=lambda each: each.energy_mj)
        if now.plan is None or self.is_over or not is_small(now.schedule):
            return
        problem = ClockProblem(now.schedule, self.profile)
        with contextlib.suppress(OutOfTimeError):
            found = best_order_and_clocks(
                problem, now.plan.clock_mhz, self.deadline_ms, self.effort.budget(math.inf, 0)
            )
            if found is None:
                return
            self.proved_mj = found.bound_mj + problem.waiting_w * self.deadline_ms
            if found.schedule is not None and keeps(found.schedule):
                bound_mj = _lower_bound_mj(found.schedule, self.profile, self.deadline_ms)
                self.judged.append(RatedOrder(found.schedule, now.candidate, True, bound_mj))
                self.plan(len(self.judged) - 1)

    def chosen(self) -> OrderChoice:
        """Return the best; of equals the first."""
        best: RatedOrder | None = None
        for each in self.judged:
            if each.plan is not None and (best is None or each.energy_mj < best.energy_mj * (1 - TOLERANCE)):
                best = each
        if best is None:
            if self.interrupted:
                raise KeyboardInterrupt
            ms = min(ClockProblem(each.schedule, self.profile).span_ms[0] for each in self.judged)
            raise EnergyError(
                f"deadline_ms: {self.deadline_ms:.12g} cannot be kept by any of {len(self.judged)} "
                f"schedules; the shortest takes {ms:.6g} ms at the highest clocks, give at least that"
            )
        bound_mj = max(self.proved_mj, any_order_mj(best.schedule, self.profile, self.deadline_ms))
        bound_mj = proved(bound_mj, best.energy_mj)
        return OrderChoice(best, self.deadline_ms, tuple(self.judged), bound_mj, self.interrupted)


def _work_of(schedule: Schedule) -> float:
    return _WORK_OF_INSTANCE * len(schedule.blocks)


def _planned(each: RatedOrder, profile: Profile, deadline_ms: float) -> RatedOrder:
    """Return a judged schedule with its plan for the deadline, simulated anew; without one if it is late."""
    problem = ClockProblem(each.schedule, profile)
    plan = plan_for(problem, deadline_ms, PLAN_WORK)
    if plan is None:
        return each
    again = simulate_at_clocks(each.schedule, profile, plan.clock_mhz)
    waiting_w = problem.waiting_w if again.waiting_w is None else again.waiting_w
    energy_mj = again.energy_mj + waiting_w * max(deadline_ms - again.time_ms, 0.0)
    return RatedOrder(each.schedule, each.candidate, each.is_swapped, each.lower_bound_mj, plan, energy_mj)


def _swaps(
    schedule: Schedule, profile: Profile, deadline_ms: float, most: int, keeps: Keeps
) -> Iterator[tuple[int, Schedule | None, float]]:
    """Yield after each swap how many were tried, and the better schedule with its bound, if it is one.

    Only neighbors whose order has a price are swapped, dearest first: without a wait of price 0 the relaxed
    optimum is the same, and that is at most the optimum with the wait turned round. Pairs that were of no use
    come last after a change elsewhere.
    """
    tried, refused = 0, dict[tuple[Instance, Instance], None]()
    now = _relaxed_if_known(schedule, profile, deadline_ms)
    while now is not None:
        better: tuple[Schedule, Relaxed] | None = None
        for pair in _priced(now, refused):
            other = swapped(schedule, *pair)
            refused[pair] = None
            if other is None or not keeps(other):
                continue
            found = _relaxed_if_known(other, profile, deadline_ms)
            tried += 1
            if found is not None and found.energy_mj < now.energy_mj * (1 - TOLERANCE):
                better = other, found
                break
            yield tried, None, now.energy_mj
            if tried >= most:
                return
        if better is None:
            return
        schedule, now = better
        yield tried, schedule, now.energy_mj
        if tried >= most:
            return


def _relaxed_if_known(schedule: Schedule, profile: Profile, deadline_ms: float) -> Relaxed | None:
    """Return the relaxed optimum, None also where the solver failed: no swap is made then."""
    with contextlib.suppress(SolverError):
        return relaxed(schedule, profile, deadline_ms)
    return None


def _priced(now: Relaxed, refused: Iterable[tuple[Instance, Instance]]) -> list[tuple[Instance, Instance]]:
    """Return the pairs whose order has a price, dearest first, those that were refused last."""
    min_w = _NO_PRICE * max(now.price_w.values(), default=0.0)
    late = set(refused)
    pairs = [pair for pair, price in now.price_w.items() if price > min_w]
    return sorted(pairs, key=lambda pair: (pair in late, -now.price_w[pair]))


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
