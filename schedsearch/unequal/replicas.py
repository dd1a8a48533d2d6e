"""Which data-parallel replica gets which micro-batch, and in which order each replica runs its blocks.

The replicas end together, so the slowest one counts. Packings by predicted time begin; micro-batches then
change replicas and places (`schedsearch.unequal.sequencing`), and at last blocks of the slowest replica do.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import EndedBy, SearchProgress, SearchReport
from schedsearch.core.objective import FINITE, Objective
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.unequal.replica_bound import replica_bound
from schedsearch.unequal.replica_work import ReplicaWork
from schedsearch.unequal.sequence_tables import anneal_in_parts, order_of, schedule_of, sequences_of
from schedsearch.unequal.starts import executed, hand_made_orders
from schedsearch.unequal.unequal_search import effort_of, finite_objective, unequal_search

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_ROUND = 0.25
"""Units of work of the first round of changes; each later one has twice as many."""

_WORK_OF_BLOCK = 3.0e-8
"""Units of work for a block in a step of the changes."""

_SEQUENCED = 0.7
"""Share of the work that changes replicas and sequences; the rest is for blocks of the slowest replica."""

_BLOCKS_FROM = 2.0
"""Units of work of a round from which on it is for blocks too; their bound takes a second beside it."""

_FEW_BLOCKS = 200
"""Blocks of all micro-batches up to which every round is for blocks too."""

_LONG = 1.0
"""Units of work of a round from which on it begins with more heat."""

_HEAT, _HEAT_OF_LONG = 0.004, 0.03
"""Share of the value by which a step may be worse at first, on average."""


@dataclass(frozen=True)
class ReplicaSchedules:
    """A schedule for each replica.

    Attributes:
        assigned: The micro-batches of each replica, as they are numbered in its schedule.
        schedules: One for each replica; None for a replica without micro-batches.
    """

    assigned: tuple[tuple[int, ...], ...]
    schedules: tuple[Schedule | None, ...]

    def value(self, objective: Objective) -> int:
        """Return the ticks of the slowest replica."""
        return max(FINITE[objective].value(each) for each in self.schedules if each is not None)

    def slowest(self, objective: Objective) -> int:
        """Return which replica is the slowest."""
        values = [-1 if each is None else FINITE[objective].value(each) for each in self.schedules]
        return values.index(max(values))


@dataclass(frozen=True)
class ReplicaResult:
    """What was found.

    Attributes:
        found: The schedules; None where none fits the memory.
        bound: Ticks that no assignment and no order beats.
        seconds: How long it took.
        ended_by: How it ended.
        found_by: What found it.
        interrupted: Whether a Ctrl-C ended it; the answer is the best until then.
        work: Units of counted work.
    """

    found: ReplicaSchedules | None
    bound: int
    seconds: float
    ended_by: str
    found_by: str
    interrupted: bool = False
    work: float = 0.0


def packings(work: ReplicaWork) -> Iterator[tuple[str, list[list[int]]]]:
    """Yield assignments that people use, with their names, of those that keep to the replicas' room.

    The sequence of each replica is that of the numbers, or sorted.
    """
    for name, assigned in _packings(work):
        if max(float(work.weights[own].sum()) for own in assigned) <= work.room:
            yield name, assigned


def _packings(work: ReplicaWork) -> Iterator[tuple[str, list[list[int]]]]:
    replicas, number = work.num_replicas, work.num_micro_batches
    total = work.times.sum(axis=1).min(axis=0)
    longest = sorted(range(number), key=lambda n: -int(total[n]))
    heaviest = sorted(range(number), key=lambda n: -float(work.weights[n]))
    yield "round robin", [list(range(r, number, replicas)) for r in range(replicas)]
    yield "blocks", [part.tolist() for part in np.array_split(np.arange(number), replicas)]
    yield "sorted", [longest[r::replicas] for r in range(replicas)]
    used, load = np.zeros(replicas), np.zeros(replicas)
    ways = [
        ("balanced", longest, number, lambda r: load[r]),
        ("balanced, equal numbers", longest, -(-number // replicas), lambda r: load[r]),
    ]
    if float(np.ptp(work.weights)) > 0:
        ways += [
            ("balanced by tokens", heaviest, number, lambda r: used[r]),
            ("filled by tokens", heaviest, number, lambda r: -used[r]),
        ]
    for name, order, limit, key in ways:
        packed: list[list[int]] = [[] for _ in range(replicas)]
        used[:], load[:] = 0, 0
        for n in order:
            fits = [r for r in range(replicas) if used[r] + work.weights[n] <= work.room]
            fits = [r for r in fits if len(packed[r]) < limit] or fits or list(range(replicas))
            r = min(fits, key=key)
            packed[r].append(n)
            load[r] += work.times[r, :, n].sum()
            used[r] += work.weights[n]
        yield name, [sorted(each) for each in packed]


def hand_made_replicas(
    work: ReplicaWork,
    objective: str = Objective.MAKESPAN,
    names: Sequence[str] = ("one_f_one_b", "zb_h1"),
) -> dict[str, int]:
    """Return the slowest replica's ticks with usual assignments and schedules by hand, where they fit."""
    made = replicas_by_hand(work, names)
    return {name: found.value(Objective(objective)) for name, found in made if found is not None}


def replicas_by_hand(
    work: ReplicaWork, names: Collection[str]
) -> Iterator[tuple[str, ReplicaSchedules | None]]:
    """Yield usual assignments with schedules by hand, by name; None is one that does not fit on a replica."""
    for how, assigned in packings(work):
        batches = {r: work.part(r, numbers) for r, numbers in enumerate(assigned) if numbers}
        orders = {r: dict(hand_made_orders(each, names)) for r, each in batches.items()}
        for name in names:
            if any(name not in own for own in orders.values()):
                continue
            made = {
                r: executed(each, orders[r][name], range(each.num_micro_batches))
                for r, each in batches.items()
            }
            schedules = tuple(made.get(r) for r in range(work.num_replicas))
            fits = None not in made.values()
            yield f"{name}, {how}", ReplicaSchedules(tuple(map(tuple, assigned)), schedules) if fits else None


def replica_search(
    work: ReplicaWork,
    *,
    objective: str = Objective.MAKESPAN,
    given: Sequence[Sequence[int]] | None = None,
    begin_with: ReplicaSchedules | None = None,
    work_limit: float | None = None,
    time_limit_s: float | None = None,
    seed: int = 0,
    on_progress: SearchReport | None = None,
) -> ReplicaResult:
    """Search the assignment and the orders of the least makespan over all replicas.

    Args:
        work: The micro-batches.
        objective: ``makespan`` or ``device_span``.
        given: The micro-batches of each replica, which stay there; None where that is to be decided.
        begin_with: The answer is no longer.
        work_limit: Units of counted work, each of about a second; more is never worse.
        time_limit_s: As of `schedsearch.procedures.search.search`.
        seed: Seed of the random choices.
        on_progress: Called whenever something better is found.

    Raises:
        SearchError: An argument is out of its range.
    """
    effort = effort_of(time_limit_s, work_limit)
    running = _ReplicaSearch(
        work, finite_objective(objective), given, effort, seed, on_progress or (lambda _: None)
    )
    with effort.answered() as ending:
        running.run(begin_with)
    for name, made in replicas_by_hand(work, HAND_MADE) if ending.interrupted and given is None else ():
        if made is not None:
            running.keep(name, made)
    ended_by = EndedBy.of(ending, proved=running.proved)
    seconds = time.monotonic() - running.began
    return ReplicaResult(
        *(running.best, running.bound, seconds, str(ended_by), running.found_by),
        interrupted=ending.interrupted,
        work=effort.spent,
    )


@dataclass(eq=False)
class _ReplicaSearch:
    """The state of a search: the best schedules so far, and the bound."""

    work: ReplicaWork
    objective: Objective
    given: Sequence[Sequence[int]] | None
    effort: Effort
    seed: int
    on_progress: SearchReport
    bound: int = 0
    best: ReplicaSchedules | None = None
    found_by: str = ""

    def __post_init__(self) -> None:
        """Begin now."""
        self.began = time.monotonic()
        self.span = self.objective is Objective.DEVICE_SPAN

    @property
    def proved(self) -> bool:
        """Whether none is better."""
        return self.best is not None and self.best.value(self.objective) <= self.bound

    def keep(self, name: str, found: ReplicaSchedules) -> bool:
        """Keep schedules if better, and return whether they are."""
        goal = FINITE[self.objective]
        settled = tuple(None if each is None else goal.settled(each) for each in found.schedules)
        found = ReplicaSchedules(found.assigned, settled)
        value = found.value(self.objective)
        if self.best is not None and value >= self.best.value(self.objective):
            return False
        self.best, self.found_by = found, name
        elapsed_s = time.monotonic() - self.began
        self.on_progress(SearchProgress(self.objective.value, value, self.bound, 0, elapsed_s, name))
        return True

    def run(self, begin_with: ReplicaSchedules | None) -> None:
        """Go on until the best is proved.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        if begin_with is not None:
            self.keep("given", begin_with)
        if self.given is None:
            self.bound = replica_bound(self.work, self.span)
        orders = self.start()
        for number in itertools.count():
            if self.proved:
                return
            end = max(_ROUND, 2 * self.effort.spent)
            blocks = end >= _BLOCKS_FROM or self.work.times[0].size <= _FEW_BLOCKS
            orders = self.sequence(orders, number, self.effort.share(end, _SEQUENCED if blocks else 1.0))
            if blocks:
                self.polish(end)
            self.effort.spent = max(self.effort.spent, end)
            self.effort.require_s()

    def start(self) -> list[list[int]]:
        """Offer the usual assignments, and return the sequences to begin with."""
        from schedsearch.unequal.sequencing import run_of  # loads numba, which is slow

        starts = dict(packings(self.work))
        if self.given is not None:
            starts = {"as given": [list(each) for each in self.given]}
        elif self.best is not None:
            starts["given"] = [list(each) for each in self.best.assigned]
        ranked = []
        for name, orders in starts.items():
            loads = [float(self.work.weights[own].sum()) for own in orders]
            if max(loads) > self.work.room:
                continue
            g = sequences_of(self.work, orders, self.span)
            ends, ran = np.zeros(self.work.times.shape[1:]), np.zeros((self.work.times[0].size, 2), np.int64)
            value = max(run_of(g, r, ends, ran, 0, np.inf) for r in range(self.work.num_replicas))
            self.effort.spend(self.work.times[0].size * _WORK_OF_BLOCK)
            ranked.append((value, name))
        if not ranked:
            raise self.work.no_room()
        value, name = min(ranked)
        if math.isfinite(value):
            self.offer(name, sequences_of(self.work, starts[name], self.span))
        return starts[name]

    def offer(self, name: str, g: Sequences) -> None:
        """Keep the schedules of sequences if better."""
        found = [schedule_of(g, r, self.work) if g.size[r] else None for r in range(self.work.num_replicas)]
        if all(each is not None or not size for each, size in zip(found, g.size, strict=True)):
            orders = tuple(order_of(g, r) for r in range(self.work.num_replicas))
            self.keep(name, ReplicaSchedules(orders, tuple(found)))

    def sequence(self, orders: list[list[int]], number: int, until: float) -> list[list[int]]:
        """Let micro-batches change replicas and places until so much work is done; return the best."""
        g = sequences_of(self.work, orders, self.span)
        seed, work = self.seed + 1000 * number, until - self.effort.spent
        heat = _HEAT_OF_LONG if work >= _LONG * _SEQUENCED else _HEAT
        try:
            for part in anneal_in_parts(g, work, seed, heat, self.given is None):
                self.effort.require_s()
                self.effort.spend(part)
        finally:
            self.offer("sequences", g)
        return [list(order_of(g, r)) for r in range(self.work.num_replicas)]

    def polish(self, until: float) -> None:
        """Order the blocks of the slowest replica anew until so much work is done, or it is proved."""
        proved: set[int] = set()
        while self.best is not None and self.effort.spent < until and not self.proved:
            self.effort.require_s()
            slowest = self.best.slowest(self.objective)
            if slowest in proved:
                return
            left = self.effort.at_most(until - self.effort.spent)
            share = left if self.work.num_replicas == 1 else left / 2
            schedule = self.best.schedules[slowest]
            found = unequal_search(
                self.work.part(slowest, self.best.assigned[slowest]),
                objective=self.objective,
                work_limit=share,
                seed=self.seed,
                begin_with=schedule,
            )
            self.effort.spend(share)
            schedules = list(self.best.schedules)
            schedules[slowest] = found.schedule
            if not self.keep("blocks", ReplicaSchedules(self.best.assigned, tuple(schedules))):
                proved.add(slowest)
