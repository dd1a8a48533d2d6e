"""Plans that both repeat with the repetend and keep switching limits, for loops in generated code.

The search is that for any switched plan, on a schedule with few rounds in the middle: blocks of the steady
part that repeat have one clock, and count for all the rounds that are left out. These make the iteration
longer by the period in which the loop runs at those clocks, changes within a repetend and from each to the
next included. So the work does not depend on the number of micro-batches, but for the simulation of all of
them in the end, which must confirm the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schedsearch.energy.folding import Tie, shortened
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan
from schedsearch.energy.graph import EnergyError, Floats, Ints
from schedsearch.energy.periodic import SETTLING_ROUNDS, PeriodicPlan, periodic_plan
from schedsearch.energy.simulation import all_maximum_clocks, simulate
from schedsearch.energy.switching.descent import one_for_each_device
from schedsearch.energy.switching.limits import SwitchingLimits
from schedsearch.energy.switching.model import State, SwitchingModel
from schedsearch.energy.switching.planning import SwitchedPlan, best_tied_state, plan_of
from schedsearch.energy.waiting import waiting_w
from schedsearch.graph import DifferenceSystem

MOST_ATTEMPTS = 6
"""Times that the limits are made stricter where the whole schedule does not confirm a plan."""

FINEST = 2.0**-40
"""Share of the sum of all times that is less than any real difference of times."""

STRICTER = 1.15
"""Dwell factor after a failed confirmation."""


@dataclass(frozen=True)
class SwitchedPeriodicPlan:
    """A plan whose clocks repeat and that keeps the limits.

    Attributes:
        periodic: Its clocks. What this class says of times does not know the limits.
        switched: The same for all micro-batches, with time and energy under the limits.
    """

    periodic: PeriodicPlan
    switched: SwitchedPlan


def switched_periodic_plan(
    alone: PeriodicPlan, limits: SwitchingLimits, free: FrequencyPlan, lower_bound_mj: float = 0.0
) -> SwitchedPeriodicPlan:
    """Return a plan of little energy whose clocks repeat, and that keeps limits and deadline.

    Args:
        alone: The periodic plan without limits, for the same micro-batches and deadline.
        limits: To be kept, also from each repetend to the next.
        free: The plan without limits that does not repeat.
        lower_bound_mj: Energy until the deadline that no plan under the limits is below, where it is known.

    Raises:
        EnergyError: No plan was found that keeps the deadline.
    """
    number, deadline_ms, profile = alone.num_micro_batches, alone.deadline_ms, alone.profile
    latest_ms = deadline_ms * (1 + TIME_TOLERANCE)
    whole = SwitchingModel(alone.periodic.schedule(number), profile, limits, latest_ms)
    tied = _Tied.of(alone, limits, latest_ms)
    state = best_tied_state(tied.model, _starts(tied, alone))
    for _ in range(MOST_ATTEMPTS):
        if state is None:
            break
        made = tied.plan(alone, state)
        done = whole.state(whole.clocks_of(made.unrolled(number).clock_mhz))
        if whole.keeps(done):
            waiting_mj = waiting_w(alone.periodic.placement, profile) * deadline_ms
            least_mj = max(alone.relaxed_mj, lower_bound_mj) - waiting_mj
            return SwitchedPeriodicPlan(made, plan_of(whole, done, free, deadline_ms, least_mj))
        tied = tied.stricter(max(done.time_ms - latest_ms, 0.0))
        state = best_tied_state(tied.model, iter([state.clock, tied.one_each()]))
    raise EnergyError(
        f"deadline_ms: {deadline_ms:.12g} is kept by no plan that repeats and was found under a dwell of "
        f"{limits.dwell_ms:g} ms and {limits.latency_ms:g} ms per change of clock; give more time"
    )


def _starts(tied: _Tied, alone: PeriodicPlan) -> Iterator[Ints]:
    """Yield clocks to take changes out of: periodic plans for the deadline and faster, and steadier ones."""
    model, number = tied.model, model_number(tied)
    yield model.clocks_of(alone.unrolled(number).clock_mhz)
    schedule = alone.periodic.schedule(alone.num_micro_batches)
    fastest_ms = simulate(schedule, alone.profile, all_maximum_clocks(schedule, alone.profile)).time_ms
    for deadline_ms in ((alone.deadline_ms + fastest_ms) / 2, fastest_ms):
        if deadline_ms < alone.deadline_ms * (1 - TIME_TOLERANCE):
            faster = periodic_plan(alone.periodic, alone.profile, alone.num_micro_batches, deadline_ms)
            yield model.clocks_of(faster.unrolled(number).clock_mhz)
    yield tied.maximum()
    yield from model.faster_than(tied.maximum())
    yield tied.one_each()


def model_number(tied: _Tied) -> int:
    """Return the micro-batches of the shortened schedule."""
    return tied.model.schedule.num_micro_batches


@dataclass(frozen=True, eq=False)
class _Tied:
    """The shortened schedule.

    Attributes:
        model: With ties.
        ties: Which tie each instance has; shape ``(instances,)``.
        loop: The rounds that are left out; None without any.
    """

    model: SwitchingModel
    ties: tuple[Tie, ...]
    loop: _Repetend | None

    @classmethod
    def of(cls, plan: PeriodicPlan, limits: SwitchingLimits, latest_ms: float) -> _Tied:
        """Return the shortened schedule of a plan."""
        periodic = plan.periodic
        number, left_out = shortened(periodic, plan.num_micro_batches, SETTLING_ROUNDS)
        bare = SwitchingModel(periodic.schedule(number), plan.profile, limits, latest_ms)
        ties = tuple(periodic.ties(instance, number)[-1] for instance in bare.graph.instances)
        numbers = {tie: k for k, tie in enumerate(dict.fromkeys(ties))}
        group = np.array([numbers[tie] for tie in ties], dtype=np.int64)
        members = np.bincount(group)
        steady = np.array([tie.part == "steady" for tie in ties])
        weight = 1.0 + left_out * steady / members[group]
        at = [periodic.position(instance)[1] for instance in bare.graph.instances]
        loop = _Repetend.of(bare, ties, at, left_out) if left_out else None
        return cls(replace(bare, group=group, weight=weight, loop=loop), ties, loop)

    def plan(self, alone: PeriodicPlan, state: State) -> PeriodicPlan:
        """Return the clocks of a state as a periodic plan."""
        clocks = dict(zip(self.ties, state.clock.tolist(), strict=True))
        period_ms = None
        if self.loop is not None:
            period_ms = self.loop.period_ms(self.model.times(state.clock), state.clock)
        return replace(alone, clock_mhz=clocks, period_ms=period_ms)

    def stricter(self, by_ms: float) -> _Tied:
        """Return the same with a deadline that is earlier, or else a longer dwell."""
        model = self.model
        if by_ms > 0:
            return replace(self, model=replace(model, latest_ms=model.latest_ms - by_ms))
        limits = replace(model.limits, dwell_ms=model.limits.dwell_ms * STRICTER)
        return replace(self, model=replace(model, limits=limits))

    def maximum(self) -> Ints:
        """Return the highest clocks."""
        return self.model.clocks_of(all_maximum_clocks(self.model.schedule, self.model.profile))

    def one_each(self) -> Ints:
        """Return one clock for each device."""
        return one_for_each_device(self.model, self.maximum())


@dataclass(frozen=True, eq=False)
class _Repetend:
    """One round of the steady part, and how many of them are left out.

    Attributes:
        instance: Index of the instance that stands for each node; shape ``(nodes,)``.
        tail: Node that is waited for, for each wait.
        head: Node that waits.
        rounds: Earlier, in which the tail runs.
        delay_ms: Least time from end to start.
        is_adjacent: Whether a device runs the head just after the tail.
        left_out: Rounds.
        latency_ms: Of a change of clock.
    """

    instance: Ints
    tail: Ints
    head: Ints
    rounds: Ints
    delay_ms: Floats
    is_adjacent: NDArray[np.bool_]
    left_out: int
    latency_ms: float

    @classmethod
    def of(cls, model: SwitchingModel, ties: Sequence[Tie], at: Sequence[int], left_out: int) -> _Repetend:
        """Return the last round in which all is steady, with its waits for itself and those before."""
        last = max(k for k, tie in zip(at, ties, strict=True) if tie.part == "steady")
        instance = [
            i for i, (k, tie) in enumerate(zip(at, ties, strict=True)) if k == last and tie.part == "steady"
        ]
        node = {ties[i]: k for k, i in enumerate(instance)}
        pairs = {pair for order in model.orders for pair in pairwise(order)}
        waits = [
            (node[ties[tail]], node[ties[head]], last - at[tail], delay, (tail, head) in pairs)
            for tail, head, delay in model.graph.edges
            if at[head] == last and ties[head] in node and ties[tail] in node
        ]
        tail, head, rounds, delay, adjacent = zip(*waits, strict=True)
        return cls(
            np.array(instance),
            np.array(tail),
            np.array(head),
            np.array(rounds),
            np.array(delay, dtype=np.float64),
            np.array(adjacent, dtype=np.bool_),
            left_out,
            model.limits.latency_ms,
        )

    def more_ms(self, time_ms: Floats, clock: Ints) -> float:
        """Return how much longer the rounds that are left out make the iteration."""
        return self.left_out * self.period_ms(time_ms, clock)

    def period_ms(self, time_ms: Floats, clock: Ints) -> float:
        """Return how long each round takes in the long run.

        Args:
            time_ms: Of each instance of the schedule.
            clock: MHz of each.
        """
        own, mhz = time_ms[self.instance], clock[self.instance]
        changes = self.is_adjacent & (mhz[self.tail] != mhz[self.head])
        weight = own[self.tail] + np.where(changes, np.maximum(self.delay_ms, self.latency_ms), self.delay_ms)
        finest_ms = float(weight.sum()) * FINEST or 1.0
        whole = np.rint(weight / finest_ms).astype(np.int64)
        cycle = DifferenceSystem(len(own), self.tail, self.head, whole, self.rounds).critical_cycle()
        return float(weight[cycle].sum() / self.rounds[cycle].sum()) if cycle else 0.0
