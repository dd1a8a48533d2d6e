"""Large-neighbourhood search (LNS) for a short schedule of all its micro-batches, with a lower bound.

Tessel solves warmup and cooldown on their own around a fixed repetend (Tessel, Sec. IV-C); we order anew
any neighbourhood of the schedule, or all of it, around whatever remains. Where memory leaves few states, the
search over these proves the least makespan. Knows nothing of repetends.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from schedsearch.core.objective import MAKESPAN, FiniteObjective
from schedsearch.procedures.neighbourhoods import neighbourhood
from schedsearch.procedures.neighbourhoods.neighbourhood import Neighbourhood
from schedsearch.schedule import Instance, Schedule
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.state_space import min_makespan
from schedsearch.validate import validate

if TYPE_CHECKING:  # as it loads OR-Tools, which is slow
    from schedsearch.procedures.neighbourhoods.model import NeighbourhoodModel


_ENDS = 0.35
"""Share of a schedule, from each end, that counts as near it."""

_GROWTH = 1.03
"""Factor by which a band grows after one that was solved to the optimum."""

_WORK_OF_BLOCK = 1e-5
"""Units of work that a step takes beside the solver's, for each block of the schedule."""

_WORK_OF_STATE = 1.8e-6
"""Units of work to look at a state."""

_SMALLEST = 20.0
"""Blocks of the smallest band."""

QUERIES, STATES, NEIGHBOURHOODS = "queries", "states", "neighbourhoods"
"""Names of what an improvement may use: questions about all blocks, states, and parts ordered anew."""

NamedStep = tuple[str, Callable[[], None]]
"""A step of an improvement, with the name of what it is part of."""


@dataclass(frozen=True)
class RoundBudget:
    """What the first round may spend; each later one has twice the work and blocks.

    Attributes:
        work: Work of one step, in CP-SAT's deterministic time of about a second: a first look, in which most
            neighbourhoods are solved to the optimum.
        doublings: Rounds after which it grows no more: by then a step may take an hour.
        work_of_states: Work of looking at states; each later round has four times as much, since what a round
            has looked at, the next looks at once more.
        blocks_with_states: Most blocks of a micro-batch with which states are looked at; with more,
            there are too many.
        neighbourhood_blocks: Blocks of a neighbourhood, few enough to be ordered anew in one step.
        devices_at_once: Most devices on which neighbourhoods are taken along all the time; on more, so few
            blocks are of each that nothing is found.
        bands_for_each: Neighbourhoods of some devices for each of these.
        whole_blocks: Most blocks of a schedule that is also solved as a whole, and twice those of the largest
            neighbourhood: the constraints on pairs of blocks grow with their square.
    """

    work: float = 1.0
    doublings: int = 12
    work_of_states: float = 0.5
    blocks_with_states: int = 60
    neighbourhood_blocks: int = 40
    devices_at_once: int = 8
    bands_for_each: int = 1
    whole_blocks: int = 420


@dataclass(frozen=True)
class ImprovedSchedule:
    """A schedule and what is proved of it.

    Attributes:
        schedule: Valid, and never longer than the one that was to be improved.
        value: Its objective in ticks.
        bound: Ticks that no schedule of as many micro-batches of the placement beats, periodic or not.
        interrupted: Whether it was interrupted from the keyboard.
    """

    schedule: Schedule
    value: int
    bound: int
    interrupted: bool = False

    @property
    def proved(self) -> bool:
        """Whether no schedule is shorter."""
        return self.value <= self.bound


def improve(
    schedule: Schedule,
    effort: Effort,
    *,
    objective: FiniteObjective = MAKESPAN,
    bound: int = 0,
    seed: int = 0,
    on_progress: Callable[[int, int, str], None] | None = None,
    first_round: RoundBudget = RoundBudget(),
) -> ImprovedSchedule:
    """Shorten a schedule by ordering its blocks anew, and bound how short one can be.

    Args:
        schedule: A valid schedule.
        effort: Its limits say when the best schedule found is returned; the solver gets only the seconds that
            a step does not take itself, as far as steps until then tell.
        objective: What is made less: the makespan, or the device span.
        bound: A lower bound on it that is known already, in ticks.
        seed: Seed of the solver's random choices; the steps are the same for the same seed, and the limits
            only say how many there are.
        on_progress: Called with the best value, the bound and the name of the last move, at first and
            whenever a value changes.
        first_round: What the first round may spend.
    """
    running = Improvement(schedule, effort, objective, bound, seed, on_progress, first_round)
    with INTERRUPTS.answered() as ending, contextlib.suppress(OutOfTimeError):
        running.go_on()
    return ImprovedSchedule(validate(running.best), running.value, running.bound, ending.interrupted)


class Improvement:
    """The state of one improvement, which can be gone on with: the best schedule and bound so far.

    Attributes:
        best: The best schedule.
        bound: Ticks that no schedule of as many micro-batches of the placement beats.
    """

    def __init__(
        self,
        schedule: Schedule,
        effort: Effort,
        objective: FiniteObjective = MAKESPAN,
        bound: int = 0,
        seed: int = 0,
        on_progress: Callable[[int, int, str], None] | None = None,
        first_round: RoundBudget = RoundBudget(),
        uses: Collection[str] = (QUERIES, STATES, NEIGHBOURHOODS),
        counted: Callable[[str], AbstractContextManager[None]] = lambda name: contextlib.nullcontext(),
    ) -> None:
        """Begin with a schedule.

        Args:
            schedule: A valid schedule.
            effort: What was done, and when to stop.
            objective: See `improve` for this and the next.
            bound: A lower bound that is known.
            seed: Seed of the solver's random choices.
            on_progress: Called whenever a value changes.
            first_round: What the first round may spend.
            uses: Names of what it may use; see `QUERIES`, `STATES` and `NEIGHBOURHOODS`.
            counted: Counts what is done inside as the work of a name.
        """
        self.uses = uses
        self.counted = counted
        self.effort = effort
        self.first_round = first_round
        self.on_progress = on_progress or (lambda best, bound, move: None)
        self.seeds = itertools.count(1000 * seed)
        self.random = random.Random(seed)
        self.beside_s = 0.0  # the most that a step has taken beside the solver's call
        self.objective = objective
        self.bound = max(bound, objective.bound(schedule.placement, schedule.num_micro_batches))
        self.begin_with(schedule)

    def begin_with(self, schedule: Schedule) -> None:
        """Begin anew with another schedule of the same placement, which is shorter."""
        self.move = "start"
        self.solved = True
        self.current = self.objective.settled(neighbourhood.in_order(schedule))
        self.best = (
            self.current if self.objective.value(self.current) < self.objective.value(schedule) else schedule
        )
        self.steps = self.all_steps()
        self.on_progress(self.value, self.bound, self.move)

    @property
    def value(self) -> int:
        """The objective of the best schedule in ticks."""
        return self.objective.value(self.best)

    @property
    def proved(self) -> bool:
        """Whether no schedule is shorter than the best."""
        return self.value <= self.bound

    def go_on(self, until: float = math.inf) -> None:
        """Take one step after another, with ever more work, until proved; the next call goes on from there.

        Args:
            until: Work after which to stop.

        Raises:
            OutOfTimeError: The time limit is over, but for what a step takes beside the solver.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        while not self.proved and self.effort.spent < until:
            if (named := next(self.steps, None)) is None:
                return
            name, step = named
            with self.counted(name):
                step()

    def all_steps(self) -> Iterator[NamedStep]:
        """Yield steps until a round does nothing; each is taken before the next is asked for."""
        if NEIGHBOURHOODS in self.uses:
            yield NEIGHBOURHOODS, self.gather
        for doublings in itertools.count():
            spent = self.effort.spent
            for name, step in self.round(2.0 ** min(doublings, self.first_round.doublings)):
                if name in self.uses:
                    yield name, step
            if self.effort.spent == spent:
                return

    def gather(self) -> None:
        """Gather shared blocks, if that is shorter."""
        gathered = self.objective.settled(neighbourhood.gathered(self.current))
        if self.objective.value(gathered) < self.objective.value(self.current):
            self.move = "shared blocks gathered"
            self.keep(gathered)

    def round(self, more: float) -> Iterator[NamedStep]:
        """Search the states, then solve the whole where it is small, and neighbourhoods where it is large.

        Args:
            more: How many times as much as in the first round it may take.
        """
        yield STATES, partial(self.search_states, more)
        blocks, first = len(self.current.blocks), self.first_round
        if blocks <= first.whole_blocks:
            yield from ((QUERIES, step) for step in self.solve_whole(more))
        if blocks > 2 * first.neighbourhood_blocks:
            size = min(first.neighbourhood_blocks * more, first.whole_blocks / 2)
            yield from ((NEIGHBOURHOODS, step) for step in self.solve_neighbourhoods(size, more))

    def search_states(self, more: float) -> None:
        """Search the states, which may find the least makespan, or raise the bound; they know no updates."""
        if (
            not self.objective.one_clock
            or self.best.placement.optimizer_blocks
            or len(self.best.placement.blocks) > self.first_round.blocks_with_states
        ):
            return
        self.move = "states"
        first = self.first_round
        found = min_makespan(
            self.best.placement,
            self.best.num_micro_batches,
            at_most=self.best.makespan - 1,
            bound=self.bound,
            time_limit_s=self.effort.require_s(),
            max_states=int(first.work_of_states * more**2 / _WORK_OF_STATE),
            on_progress=self.raise_bound,
        )
        if found is not None:
            self.effort.spend(found.states * _WORK_OF_STATE)
            self.raise_bound(min(found.bound, self.value))
            if found.schedule is not None:
                self.keep(found.schedule)

    def raise_bound(self, bound: int) -> None:
        """Take note of a lower bound."""
        if bound > self.bound:
            self.bound = bound
            self.on_progress(self.value, self.bound, self.move)

    def solve_whole(self, more: float) -> Iterator[Callable[[], None]]:
        """Order everything anew; first to be shorter, then to prove that it cannot be.

        With one micro-batch all blocks differ: so are several made one that differ.
        """
        move, whole = "all blocks anew", self.whole
        if self.best.num_micro_batches == 1:
            yield partial(
                self.step, move, whole, lambda model, budget: model.prove_by_conflicts(budget), 2 * more
            )
            yield partial(self.step, move, whole, lambda model, budget: model.prove(budget), more)
            return
        yield partial(self.step, move, whole, lambda model, budget: (model.shorten(budget), 0), more)
        yield partial(self.step, move, whole, lambda model, budget: (model.shorten_quickly(budget), 0), more)
        yield partial(self.step, move, whole, lambda model, budget: model.prove(budget), 2 * more)

    def solve_neighbourhoods(self, size: float, more: float) -> Iterator[Callable[[], None]]:
        """Order neighbourhoods of so many blocks anew: warmup, cooldown, along all the time, then bands."""
        length = max(1, int(self.current.makespan * size / len(self.current.blocks)))
        yield partial(self.shorten, "warmup anew", 0, 2 * length, 2 * more)
        end = self.current.makespan
        yield partial(self.shorten, "cooldown anew", end - 2 * length, end, 2 * more)
        bands = self.bands(size)
        begin = 0
        while begin < self.current.makespan:
            if self.current.placement.num_devices <= self.first_round.devices_at_once:
                yield partial(self.shorten, "some time anew", begin, begin + length, more)
            for _ in range(self.first_round.bands_for_each):
                yield partial(self.shorten, "some devices anew", *next(bands))
            begin += max(1, length // 2)

    def bands(self, size: float) -> Iterator[tuple[int, int, float, tuple[int, ...]]]:
        """Yield neighbourhoods of some neighbouring devices: begin, end, work and the devices.

        Half of them are near the begin or the end, where schedules are furthest from their bounds. Their size
        follows what the solver can do: it grows while they are solved to the optimum, and shrinks otherwise.
        """
        num_devices = self.current.placement.num_devices
        widths = [width for width in (2, 3, 4, 6, 8) if width < num_devices] + [num_devices]
        while True:
            width = self.random.choice(widths)
            first = self.random.randrange(num_devices - width + 1)
            makespan = self.current.makespan
            share = size * num_devices / width / len(self.current.blocks)
            length = max(1, int(makespan * share))
            begin = self.random.randrange(-length // 2, makespan)
            if self.random.random() < 0.5:
                near = int(_ENDS * makespan * self.random.random() ** 2)
                begin = self.random.choice((near, makespan - near - length))
            yield begin, begin + length, 1.0, tuple(range(first, first + width))
            size = max(_SMALLEST, size * (_GROWTH if self.solved else 1 / _GROWTH))

    def shorten(
        self, move: str, begin: int, end: int, more: float, devices: tuple[int, ...] | None = None
    ) -> None:
        """Order the neighbourhood between two ticks anew, and keep what is found.

        Args:
            move: Its name.
            begin: Tick.
            end: Tick.
            more: Work, as of `round`.
            devices: Devices whose order may change; None for all.
        """
        self.step(
            move,
            lambda: self.between(begin, end, devices),
            lambda model, budget: (model.shorten(budget), 0),
            more,
        )

    def step(
        self,
        move: str,
        take: Callable[[], Neighbourhood],
        ask: Callable[[NeighbourhoodModel, SolverBudget], tuple[dict[Instance, int] | None, int]],
        more: float,
    ) -> None:
        """Ask a neighbourhood's model for starts and a bound, and keep what is better.

        Raises:
            OutOfTimeError: There is no time for it.
        """
        from schedsearch.procedures.neighbourhoods.model import NeighbourhoodModel

        began = time.monotonic()
        self.effort.require_s(keep_s=self.beside_s)
        self.effort.spend(len(self.current.blocks) * _WORK_OF_BLOCK)
        self.move = move
        model = NeighbourhoodModel(take())
        if not model.start:
            return
        budget, asked = self.budget(more), time.monotonic()
        (starts, bound), answered = ask(model, budget), time.monotonic()
        self.accept(starts)
        self.raise_bound(bound)
        self.solved = model.solved
        self.beside_s = max(self.beside_s, asked - began + time.monotonic() - answered)

    def whole(self) -> Neighbourhood:
        """Return the whole schedule as a neighbourhood."""
        if self.objective.one_clock:
            return self.between(0, self.current.makespan)
        return neighbourhood.by_own_clocks(self.current, self.bound, self.objective.value(self.current))

    def between(self, begin: int, end: int, devices: tuple[int, ...] | None = None) -> Neighbourhood:
        """Return the neighbourhood between two ticks."""
        clocks = self.objective.clocks(self.current)
        return neighbourhood.between(self.current, begin, end, self.bound, clocks, devices)

    def accept(self, starts: dict[Instance, int] | None) -> None:
        """Go on from an order of a neighbourhood unless it is longer; equal ones lead off a plateau."""
        if starts is not None and starts.items() - self.current.start_of.items():
            self.keep(self.objective.settled(neighbourhood.with_starts(self.current, starts)))

    def keep(self, schedule: Schedule) -> None:
        """Go on from a schedule unless it is longer."""
        value = self.objective.value(schedule)
        if value <= self.objective.value(self.current):
            self.current = schedule
        if value < self.value:
            self.best = validate(schedule)
            self.on_progress(self.value, self.bound, self.move)

    def budget(self, more: float) -> SolverBudget:
        """Return what the next step may spend, now that its model is made.

        Raises:
            OutOfTimeError: There is no time for one.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        return self.effort.budget(self.first_round.work * more, next(self.seeds), self.beside_s)
