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
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from schedsearch.core.objective import MAKESPAN, FiniteObjective
from schedsearch.procedures.neighbourhoods import neighbourhood
from schedsearch.procedures.neighbourhoods.neighbourhood import Aim, Neighbourhood
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.state_space import min_makespan
from schedsearch.validate import validate

_GROWTH = 1.03
"""Factor by which a band grows after one that was solved to the optimum."""

_WORK_OF_BLOCK = 1e-5
"""Units of work of a step beside the solver's, per block of the schedule."""

_WORK_OF_STATE = 1.8e-6
"""Units of work per state."""

_SMALLEST = 20.0
"""Blocks of the smallest band."""

QUERIES, STATES, NEIGHBOURHOODS = "queries", "states", "neighbourhoods"
"""Names of the methods of an improvement: queries about all blocks, states, and neighbourhoods."""

IMPROVEMENTS = frozenset({QUERIES, STATES, NEIGHBOURHOODS})
"""All of these names."""

Step = tuple[str, Callable[[], None]]
"""The name of a step's method, one of `IMPROVEMENTS`, and the function that makes the step."""


@dataclass(frozen=True)
class RoundBudget:
    """Work and sizes of the first round; each later round has twice the work and blocks.

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
        whole_blocks: Most blocks of a schedule that is also solved as a whole, and twice those of the largest
            neighbourhood: the constraints on pairs of blocks grow with their square.
    """

    work: float = 1.0
    doublings: int = 12
    work_of_states: float = 0.5
    blocks_with_states: int = 60
    neighbourhood_blocks: int = 40
    devices_at_once: int = 8
    whole_blocks: int = 420


class Improvement:
    """The state of one improvement, which can be continued: the best schedule and the bound so far.

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
        uses: Collection[str] = IMPROVEMENTS,
        counted: Callable[[str], AbstractContextManager[None]] = lambda name: contextlib.nullcontext(),
    ) -> None:
        """Begin with a valid schedule; the seed determines the steps, and the limits their number.

        Args:
            schedule: A valid schedule.
            effort: Work done so far, and the limits.
            objective: Objective to make less: makespan or device span.
            bound: A known lower bound.
            seed: Seed of the solver's random choices.
            on_progress: Called with the best value, the bound and the name of the last move, at first and
                whenever a value changes.
            first_round: Work and sizes of the first round.
            uses: Some of `IMPROVEMENTS`.
            counted: Charges the work done inside to a name.
        """
        self.effort, self.objective, self.first_round = effort, objective, first_round
        self.uses, self.counted = uses, counted
        self.on_progress = on_progress or (lambda best, bound, move: None)
        self.seeds, self.random = itertools.count(1000 * seed), random.Random(seed)
        self.bound = max(bound, objective.bound(schedule.placement, schedule.num_micro_batches))
        self.begin_with(schedule)

    def begin_with(self, schedule: Schedule) -> None:
        """Begin anew with another schedule of the same placement, which is shorter."""
        self.move, self.solved = "start", True
        self.current = self.objective.settled(neighbourhood.in_order(schedule))
        self.best = min(schedule, self.current, key=self.objective.value)
        self.steps = self._all_steps()
        self.on_progress(self.value, self.bound, self.move)

    @property
    def value(self) -> int:
        """The objective of the best schedule in ticks."""
        return self.objective.value(self.best)

    @property
    def proved(self) -> bool:
        """Whether the best schedule meets the bound."""
        return self.value <= self.bound

    def go_on(self, until: float = math.inf) -> None:
        """Take steps with ever more work, until the optimum is proved; the next call continues from there.

        Args:
            until: Work after which to stop.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        while not self.proved and self.effort.spent < until:
            if (named := next(self.steps, None)) is None:
                return
            name, step = named
            with self.counted(name):
                step()

    def _all_steps(self) -> Iterator[Step]:
        """Yield steps until a round spends no work; each step is made before the next is asked for."""
        if NEIGHBOURHOODS in self.uses:
            yield NEIGHBOURHOODS, self._gather
        for doublings in itertools.count():
            spent = self.effort.spent
            for name, step in self._round(2.0 ** min(doublings, self.first_round.doublings)):
                if name in self.uses:
                    yield name, step
            if self.effort.spent == spent:
                return

    def _round(self, more: float) -> Iterator[Step]:
        """Yield the steps of a round, with `more` times the work of the first round.

        The states are searched, then the whole is ordered anew where it is small: first to be shorter, then
        to prove that it cannot be. Then come neighbourhoods where it is large: warmup, cooldown, along all
        the time, and bands of some devices, whose size follows what the solver can do.
        """
        first, num_devices = self.first_round, self.current.placement.num_devices
        yield STATES, partial(self._search_states, more)
        blocks = len(self.current.blocks)
        if blocks <= first.whole_blocks:
            aims = [(Aim.SHORTEN, more), (Aim.SHORTEN_QUICKLY, more), (Aim.PROVE, 2 * more)]
            if self.best.num_micro_batches == 1:  # all blocks differ: so are several made one that differ
                aims = [(Aim.PROVE_BY_CONFLICTS, 2 * more), (Aim.PROVE, more)]
            for aim, work in aims:
                yield QUERIES, partial(self._step, "all blocks anew", self._whole, aim, work)
        if blocks <= 2 * first.neighbourhood_blocks:
            return

        def anew(move: str, begin: int, end: int, work: float, *devices: int) -> Step:
            take = partial(self._between, begin, end, devices or None)
            return NEIGHBOURHOODS, partial(self._step, move, take, Aim.SHORTEN, work)

        size = band = min(first.neighbourhood_blocks * more, first.whole_blocks / 2)
        length = max(1, int(self.current.makespan * size / blocks))
        yield anew("warmup anew", 0, 2 * length, 2 * more)
        last = self.current.makespan
        yield anew("cooldown anew", last - 2 * length, last, 2 * more)
        widths = [width for width in (2, 3, 4, 6, 8) if width < num_devices] + [num_devices]
        for begin in itertools.count(0, max(1, length // 2)):
            if begin >= (makespan := self.current.makespan):
                return
            if num_devices <= first.devices_at_once:
                yield anew("some time anew", begin, begin + length, more)
                makespan = self.current.makespan
            if begin:
                band = max(_SMALLEST, band * (_GROWTH if self.solved else 1 / _GROWTH))
            width = self.random.choice(widths)
            top = self.random.randrange(num_devices - width + 1)
            long = max(1, int(makespan * (band * num_devices / width / blocks)))
            since = self.random.randrange(-long // 2, makespan)
            yield anew("some devices anew", since, since + long, 1.0, *range(top, top + width))

    def _gather(self) -> None:
        """Gather shared blocks at the ends, if the schedule becomes shorter."""
        gathered = self.objective.settled(neighbourhood.gathered(self.current))
        if self.objective.value(gathered) < self.objective.value(self.current):
            self.move = "shared blocks gathered"
            self._keep(gathered)

    def _search_states(self, more: float) -> None:
        """Search the least makespan over states, or raise the bound; only without optimizer blocks."""
        placement, first = self.best.placement, self.first_round
        has_many = len(placement.blocks) > first.blocks_with_states
        if not self.objective.one_clock or placement.optimizer_blocks or has_many:
            return
        self.move = "states"
        result = min_makespan(
            placement,
            self.best.num_micro_batches,
            at_most=self.best.makespan - 1,
            bound=self.bound,
            time_limit_s=self.effort.require_s(),
            max_states=int(first.work_of_states * more**2 / _WORK_OF_STATE),
            on_progress=self._raise_bound,
        )
        if result is not None:
            self.effort.spend(result.states * _WORK_OF_STATE)
            self._raise_bound(min(result.bound, self.value))
            if result.schedule is not None:
                self._keep(result.schedule)

    def _step(self, move: str, take: Callable[[], Neighbourhood], aim: Aim, work: float) -> None:
        """Ask a neighbourhood's model for starts and a bound, and keep a better schedule and a better bound.

        Starts of an equally long schedule are taken too: this leads off a plateau.

        Raises:
            OutOfTimeError: There is no time for it.
        """
        from schedsearch.procedures.neighbourhoods.model import NeighbourhoodModel  # OR-Tools is slow to load

        self.effort.require_s()
        self.effort.spend(len(self.current.blocks) * _WORK_OF_BLOCK)
        self.move = move
        model = NeighbourhoodModel(take())
        if not model.start:
            return
        starts, bound = model.solve(aim, self.effort.budget(self.first_round.work * work, next(self.seeds)))
        if starts is not None and starts.items() - self.current.start_of.items():
            self._keep(self.objective.settled(neighbourhood.with_starts(self.current, starts)))
        self._raise_bound(bound)
        self.solved = model.solved

    def _whole(self) -> Neighbourhood:
        """Return the whole schedule as a neighbourhood."""
        if self.objective.one_clock:
            return self._between(0, self.current.makespan)
        return neighbourhood.by_own_clocks(self.current, self.bound, self.objective.value(self.current))

    def _between(self, begin: int, end: int, devices: tuple[int, ...] | None = None) -> Neighbourhood:
        """Return the neighbourhood between two ticks."""
        clocks = self.objective.clocks(self.current)
        return neighbourhood.between(self.current, begin, end, self.bound, clocks, devices)

    def _raise_bound(self, bound: int) -> None:
        """Raise the lower bound, and report it."""
        if bound > self.bound:
            self.bound = bound
            self.on_progress(self.value, self.bound, self.move)

    def _keep(self, schedule: Schedule) -> None:
        """Continue from a schedule unless its objective is worse; keep it as the best if it is better."""
        value = self.objective.value(schedule)
        if value <= self.objective.value(self.current):
            self.current = schedule
        if value < self.value:
            self.best = validate(schedule)
            self.on_progress(self.value, self.bound, self.move)
