"""The least period, over one, two and more micro-batches per repetend."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from placements import Placement
from schedsearch.bounds.load_and_path import period_bound
from schedsearch.modulo.bisection import Asking, ModuloSearch
from schedsearch.modulo.infeasible import why_infeasible
from schedsearch.modulo.known import Known
from schedsearch.modulo.result import Objective, Status, Tried
from schedsearch.repetend import Repetend
from schedsearch.solver.portfolio import MANY_INSTANCES
from schedsearch.solver.query import Answer
from schedsearch.starts.first_repetends import (
    Start,
    greedy_starts,
    hand_made_repetends,
    simulated_repetends,
    with_start,
)
from schedsearch.starts.serial import serial_period
from schedsearch.state_space import LeastPeriod, least_period
from schedsearch.state_space.min_cycle_ratio import MOST_STATES

if TYPE_CHECKING:  # as they load numba and OR-Tools, which are slow
    from schedsearch.modulo.many_blocks.device_beam import DeviceBeams
    from schedsearch.modulo.many_blocks.shifted_patterns import ShiftedPatterns

_SHARE_OF_ONE = 0.6
"""Share of the work that one micro-batch per repetend gets where more may follow."""

_SHARE_OF_GREEDY = 0.2
"""Share of the work after which no more greedy repetends are made: on 320 devices they take some seconds."""

_SHARE_OF_HAND_MADE = 0.8
"""Share of the work after which no more repetends of hand-made schedules are made: on 32 devices they take
some seconds, on a hundred a minute."""

_SHARE_OF_SIMULATED = 0.2
"""Share of the work that making repetends of simulated schedules gets."""

_SHARE_OF_ANNEALING = 0.5
"""Share of the work that orders are annealed for at most."""

_SHARE_OF_PATTERNS = {False: 0.15, True: 0.6}
"""Share of the work that patterns of a few devices, shifted to the others, get where a solver can be asked
about all blocks at once, and where there are too many."""

_LINE = 32
"""Blocks from which on orders are found from device to device where devices are a line; else a solver is as
quick."""

_SHARE_OF_DEVICE_BY_DEVICE = {False: 0.3, True: 0.85}
"""Share of the work that it gets at most where a solver can be asked about all blocks, and where there are
too many: what follows then rarely finds anything better."""

_SHARE_OF_NEIGHBOURHOODS = 0.2
"""Share of the work that neighbourhoods of the best repetend get where there are many blocks."""

_SIZES_OF_SIMULATED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Micro-batches per repetend into which simulated schedules are folded, up to the number of devices."""

_MANY_BLOCKS = 48
"""Blocks from which on hand-made repetends come before the solver.

One of many micro-batches that meets the bound is then enough.
"""

_NOT_FOUND = "no schedule was found in the time given; raise search.time_limit_s"

_SEEDS_OF_ROUND = 1009
"""Difference between the seeds of two consecutive rounds."""

_WORK_OF_STATE = 4e-6
"""Units of work to look at a state, for the least period."""

_SHARE_OF_STATES = 0.2
"""Share of the work left that the state-space search for the least period gets."""


class Sweep:
    """What was tried and proved of the period so far; Ctrl-C leaves it as it stands.

    Attributes:
        placement: What runs where, without optimizer blocks.
        period_bound: Ticks per micro-batch that no repetend beats.
        least_period: What the state-space search proved; None where it was not needed, or gave up.
        asked: Numbers of micro-batches per repetend that a solver is asked for.
        starts: Repetends that are known without a solver, by their number of micro-batches.
        searches: One for each number that was tried.
        best: That of the best repetend; None before there is one.
        failure: The status and the reason while there is none.
        rounds: How often it was gone on with.
    """

    def __init__(
        self,
        placement: Placement,
        before: Sequence[Objective],
        asking: Asking,
        given: Repetend | None = None,
    ) -> None:
        """Begin with the bounds that need no search.

        Args:
            placement: What runs where.
            before: Objectives before the period.
            asking: Solvers to call, in order.
            given: A repetend that the caller begins with, of any number of micro-batches.
        """
        self.placement = placement.per_micro_batch
        self.before = before
        self.asking = asking
        self.period_bound = period_bound(placement)
        self.least_period: LeastPeriod | None = None
        self.asked: tuple[int, ...] = (1,)
        self.starts: dict[int, Start] = {}
        if given is not None:
            self.starts[given.micro_batches] = Start(given, "what the search began with")
        self.searches: dict[int, ModuloSearch] = {}
        self.best: ModuloSearch | None = None
        self.failure = Status.UNKNOWN, _NOT_FOUND
        self.rounds = 0
        self._states_looked_at = 0
        self._greedy = greedy_starts(self.placement, self.period_bound, asking.effort)
        self._hand_made = hand_made_repetends(self.placement, self.period_bound, asking.effort)
        self._simulated: Iterator[Start] | None = None
        self._beams: DeviceBeams | None = None
        self._patterns: ShiftedPatterns | None = None
        self._annealed_first: dict[int, Repetend] = {}

    def _take_hand_made_and_greedy(self, until: float) -> None:
        """Go on with hand-made and greedy repetends, until there are no more."""
        self._draw(self._hand_made, self.asking.effort.share(until, _SHARE_OF_HAND_MADE))
        self._draw(self._greedy, self.asking.effort.share(until, _SHARE_OF_GREEDY))

    def _draw(self, starts: Iterator[Start], until: float) -> None:
        """Take starts until so much work is done, or there are no more."""
        while self.asking.effort.spent < until and (start := next(starts, None)) is not None:
            self.starts = with_start(self.starts, start)

    def _begin_better(self, search: ModuloSearch, until: float) -> None:
        """Go on with all that finds shorter periods without a query of all blocks at once.

        Args:
            search: That of one micro-batch per repetend.
            until: Work after which to stop.
        """
        self._take_hand_made_and_greedy(until)
        if len(self.placement.blocks) >= _LINE:
            self._go_device_by_device(search, until)
        if self._rate_of_starts <= self.period_bound:
            return
        self._anneal(search, until)
        if len(self.placement.blocks) >= _MANY_BLOCKS and self._rate_of_starts > self.period_bound:
            self._simulate(until)
            self._shift_patterns(until)

    def _simulate(self, until: float) -> None:
        """Go on with the repetends of simulated schedules, until there are no more."""
        if self._simulated is None:
            sizes = sorted({n for n in (*self.asked, *_SIZES_OF_SIMULATED) if n <= self._most_of_starts})
            self._simulated = simulated_repetends(
                self.placement, sizes, self.period_bound, self.asking.effort
            )
        self._draw(self._simulated, self.asking.effort.share(until, _SHARE_OF_SIMULATED))

    @property
    def _most_of_starts(self) -> int:
        """Micro-batches that the repetend of a start may have: where it may be several, one per device."""
        return max(self.asked[-1], self.placement.num_devices if len(self.asked) > 1 else 1)

    @property
    def _rate_of_starts(self) -> Fraction | int:
        """Ticks per micro-batch of the best start of a number of micro-batches that may be taken."""
        rates = [
            Fraction(start.repetend.period, size)
            for size, start in self.starts.items()
            if len(self.asked) > 1 or self.asked[0] % size == 0
        ]
        return min(rates, default=serial_period(self.placement))

    def _go_device_by_device(self, search: ModuloSearch, until: float) -> None:
        """Take the repetends whose orders are found from device to device, each at once: it may take long."""
        # numba is slow to load
        from schedsearch.modulo.many_blocks.device_beam import DeviceBeams

        many = len(self.placement.blocks) >= _MANY_BLOCKS
        end, known = self.asking.effort.share(until, _SHARE_OF_DEVICE_BY_DEVICE[many]), self._rate_of_starts
        sizes = range(1, self._most_of_starts + 1) if len(self.asked) > 1 else self.asked
        self._beams = self._beams or DeviceBeams(self.placement, sizes, self.asking.seed)
        for repetend in self._beams.shorter(self.period_bound, known, self.asking.effort, end):
            self._take_at_once(Start(repetend, "orders found from device to device"), search)

    def _anneal(self, search: ModuloSearch, until: float) -> None:
        """Take the repetends to which annealing leads from the best so far, each at once."""
        # numba is slow to load
        from schedsearch.modulo.annealing import annealed

        assert search.known.repetend is not None
        known = {1: search.known.repetend}
        known |= {size: start.repetend for size, start in self.starts.items()}
        self._annealed_first = self._annealed_first or known
        end = self.asking.effort.share(until, _SHARE_OF_ANNEALING)
        found = annealed(
            known,
            self.asked,
            self.period_bound,
            self.asking.effort,
            end,
            self._seed,
            self._annealed_first,
            self.rounds - 1,
        )
        for repetend in found:
            self._take_at_once(Start(repetend, "annealing"), search)

    def _take_at_once(self, start: Start, search: ModuloSearch) -> None:
        """Take a better start, tell of it, and keep it should the search be interrupted.

        Args:
            start: Of any number of micro-batches.
            search: That of one micro-batch per repetend.
        """
        size = start.repetend.micro_batches
        self.starts[size] = start
        if size == search.known.micro_batches:
            search.known = search.known.beginning_with(start.repetend)
            search.report(Objective.PERIOD, start.made_by)
        elif len(self.asked) > 1:
            self._take(size)

    def _shift_patterns(self, until: float) -> None:
        """Take the repetends of one micro-batch in which a few devices' pattern serves all."""
        # OR-Tools is slow to load
        from schedsearch.modulo.many_blocks.shifted_patterns import ShiftedPatterns

        known = self._rate_of_starts
        many = len(self.placement.blocks) >= MANY_INSTANCES
        end = self.asking.effort.share(until, _SHARE_OF_PATTERNS[many])
        self._patterns = self._patterns or ShiftedPatterns(self.placement, self.asking.seed)
        for devices, repetend in self._patterns.shorter(self.period_bound, known, self.asking.effort, end):
            self.starts[1] = Start(repetend, f"pattern of {devices} devices")

    def first(self) -> None:
        """Find some repetend, and make nothing of it less."""
        known = Known.without_search(self.placement, 1, least=self.period_bound)
        search = self._search(known, math.inf, 1.0)
        with self._recorded(search):
            answer = search.begin(self._start(1))
            if search.known.repetend is None:
                self._explain(answer)

    def end(self, exactly: int | None) -> None:
        """Take what is known without a search, where the time was too short even for that.

        Args:
            exactly: Micro-batches per repetend; None for any.

        Raises:
            OutOfTimeError: Not even one block after another is a schedule.
        """
        if self.best is None and self.failure[0] is Status.UNKNOWN:
            self.first()
        if self.best is None or self.before:
            return
        if exactly is None:
            for size, start in self.starts.items():
                if start.repetend.period_per_micro_batch < self.rate:
                    self._take(size)
            return
        self._repeat(exactly, self.asking.effort.spent)

    def up_to(self, most: int, until: float) -> None:
        """Search the least period for 1, 2, ... micro-batches per repetend, until the bound is met.

        Of more than the most, what was made by hand or simulated counts where it is the best.
        """
        self._begin_round(tuple(range(1, most + 1)), until)
        if most > 1 and self._takes_what_is_proved(most):
            return
        queries_end = self._end_of_queries(until)
        one = self._one(queries_end, 1.0 if most == 1 else _SHARE_OF_ONE)
        limit = one.known.without_limits([Objective.PERIOD]).limit
        for size in range(2, most + 1):
            if self.best is None or self.is_proved or self.asking.effort.spent >= queries_end:
                break
            search = self._search(self._better(size, limit), queries_end, 1 / (most - size + 1))
            self._minimise_period(search)
        self._go_on_without_queries(one, until)
        self._shorten(until)

    def exactly(self, size: int, until: float) -> None:
        """Search the least period for a number of micro-batches per repetend; begin with the best of one."""
        if size == 1:
            self.up_to(1, until)
            return
        self._begin_round((size,), until)
        queries_end = self._end_of_queries(until)
        try:
            one = self._one(queries_end, _SHARE_OF_ONE)
        finally:
            self._repeat(size, queries_end)
        if self.best is not None:
            self._minimise_period(self.best)
        try:
            self._go_on_without_queries(one, until)
        finally:
            self._repeat(size, until)
        self._shorten(until)

    def _go_on_without_queries(self, one: ModuloSearch, until: float) -> None:
        """Go on with the rest, where the round began with queries."""
        if self._queries_first and self.best is not None and not self.is_proved and not self.before:
            with self._recorded(one):
                if one.known.repetend is None:
                    one.begin(self._start(1))
                self._begin_better(one, until)

    @property
    def _queries_first(self) -> bool:
        """Whether a round begins with queries: of few blocks the solver may soon know."""
        return self.rounds > 1 and len(self.placement.blocks) < _MANY_BLOCKS

    def _begin_round(self, asked: tuple[int, ...], until: float) -> None:
        """Begin a round for some numbers of micro-batches with the best repetend of each so far.

        Where there are many blocks, greedy and hand-made repetends come first; else a solver is as quick.
        """
        self.asked = asked
        self.rounds += 1
        for search in self.searches.values():
            if search.known.repetend is not None:
                start = Start(search.known.repetend, "the round before")
                self.starts = with_start(self.starts, start)

        if len(self.placement.blocks) >= _MANY_BLOCKS and not self.before:
            self._take_hand_made_and_greedy(until)

    @property
    def _seed(self) -> int:
        """The seed of a round's random choices."""
        return self.asking.seed + _SEEDS_OF_ROUND * (self.rounds - 1)

    def _repeat(self, size: int, until: float) -> None:
        """Take the best of what can be repeated to a number of micro-batches, which alone counts.

        Args:
            size: The number.
            until: Work after which to stop the search for better ones.
        """
        known = Known.without_search(self.placement, size, least=self.period_bound)
        if 1 in self.searches:
            limit = self.searches[1].known.without_limits([Objective.PERIOD]).limit
            known = replace(known, limit=limit)
        repetends = [start.repetend for start in self.starts.values()]
        searches = [*self.searches.values(), *([] if self.best is None else [self.best])]
        repetends += [each.known.repetend for each in searches if each.known.repetend is not None]
        for repetend in repetends:
            if size % repetend.micro_batches == 0:
                known = known.beginning_with(repetend.repeated(size // repetend.micro_batches))
        if known.repetend is not None:
            self.best = self.searches[size] = self._search(known, until, 1.0)

    @property
    def rate(self) -> Fraction | float:
        """Ticks per micro-batch of the best repetend; infinite before there is one."""
        return math.inf if self.best is None else self.best.known.period_per_micro_batch

    @property
    def is_proved(self) -> bool:
        """Whether no number of micro-batches per repetend has a lesser period than the best."""
        return self.rate <= self.period_bound

    @property
    def is_done(self) -> bool:
        """Whether none of the numbers of micro-batches asked for has a lesser period than the best.

        Nor may an objective before the period be open.
        """
        if any(self.searches[1].known.is_open(objective) for objective in self.before if 1 in self.searches):
            return False
        return self.rate <= self.bound

    def quality(self, search: ModuloSearch) -> tuple[Fraction | int, ...]:
        """Return what makes one search's repetend better than another's: less, from the first figure on."""
        known = search.known
        return *(known.value(objective) for objective in self.before), known.period_per_micro_batch

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of micro-batches per repetend that count: those asked for, and that of a better start."""
        best = () if self.best is None else (self.best.known.micro_batches,)
        return tuple(sorted({*self.asked, *best}))

    @property
    def tried(self) -> tuple[Tried, ...]:
        """What is known of each number that was tried."""
        return tuple(
            Tried(
                known.micro_batches,
                known.repetend.period if known.repetend is not None else None,
                known.bound[Objective.PERIOD],
                max(known.refuted, default=None),
                search.seconds,
            )
            for size, search in sorted(self.searches.items())
            if size in self.sizes
            for known in [search.known]
        )

    @property
    def bound(self) -> Fraction:
        """Ticks per micro-batch that no repetend beats, of any number of micro-batches asked for."""
        if not set(self.asked) <= set(self.searches):
            return self.period_bound
        return max(self.period_bound, min(Fraction(each.bound, each.micro_batches) for each in self.tried))

    @property
    def limits(self) -> dict[Objective, int]:
        """What the objectives before the period reached."""
        reached = self.best.known.limit if self.best is not None else {}
        return {objective: value for objective, value in reached.items() if objective in self.before}

    def _end_of_queries(self, until: float) -> float:
        """Return at how much work to end asking for whole repetends.

        Of many blocks, parts of them follow, and of few, in later rounds, what needs no solver.
        """
        share = 1.0
        if not self.before:
            many = len(self.placement.blocks) >= _MANY_BLOCKS
            share = 1 - _SHARE_OF_NEIGHBOURHOODS if many else 1 - self._queries_first * _SHARE_OF_ANNEALING
        return self.asking.effort.share(until, share)

    def _shorten(self, until: float) -> None:
        """Shorten the best repetend by ordering parts of it anew, with the work left."""
        if self.best is None or self.is_proved or self.before or self.asking.effort.spent >= until:
            return
        # OR-Tools is slow to load
        from schedsearch.modulo.many_blocks.shorten_period import shorten_period

        search = self.best
        assert search.known.repetend is not None
        bound = Fraction(search.known.bound[Objective.PERIOD], search.known.micro_batches)
        for shorter in shorten_period(search.known.repetend, bound, self.asking.effort, until, self._seed):
            search.known = replace(search.known.without_limits([Objective.PERIOD]), repetend=shorter)
            search.known = search.known.with_limit(Objective.PERIOD)
            search.report(Objective.PERIOD, "neighbourhood")

    def _takes_what_is_proved(self, most: int) -> bool:
        """Take a large hand-made repetend if it meets the bound; return whether there is one.

        One of fewer micro-batches would be nicer, but where there are many blocks it takes long to find.
        """
        for size, start in self.starts.items():
            if size > most and start.repetend.period_per_micro_batch <= self.period_bound:
                self._take(size)
                return self.best is not None
        return False

    def _with_best_start(self, one: Known) -> Known:
        """Take the best start; return what is known of one micro-batch, which is to beat it."""
        one = one.beginning_with(self._start(1))
        if len(self.asked) == 1:
            return one
        rates = {size: Fraction(start.repetend.period, size) for size, start in sorted(self.starts.items())}
        size = min(rates, key=rates.__getitem__, default=1)
        if size > 1 and rates[size] < one.period_per_micro_batch:
            self._take(size)
            return replace(one, repetend=None, cutoff=math.ceil(rates[size]))
        return one

    def _start(self, size: int) -> Repetend | None:
        return self.starts[size].repetend if size in self.starts else None

    def _name_of_start(self, size: int, otherwise: str) -> str:
        return self.starts[size].made_by if size in self.starts else otherwise

    def _take(self, size: int) -> None:
        """Count the start of a number of micro-batches as tried, as it is."""
        known = Known.without_search(self.placement, size, least=self.period_bound)
        known = known.beginning_with(self._start(size))
        if known.repetend is not None:
            search = self._search(known, self.asking.effort.spent, 1.0)
            with self._recorded(search):
                search.report(Objective.PERIOD, self._name_of_start(size, ""))

    def _better(self, size: int, limit: Mapping[Objective, int]) -> Known:
        """Return what is known of repetends of a number of micro-batches that are better than the best."""
        assert self.best is not None
        if self.best.known.micro_batches == size:
            return self.best.known
        cutoff = math.ceil(self.best.known.period_per_micro_batch * size)
        known = Known.without_search(self.placement, size, cutoff, self.period_bound)
        return replace(known, limit=limit).beginning_with(self._start(size))

    def _search(self, known: Known, until: float, share: float) -> ModuloSearch:
        """Return a search that may take a share of the work left, with what rounds before it proved."""
        search = ModuloSearch(known, self.asking, self.asking.effort.share(until, share))
        if (earlier := self.searches.get(known.micro_batches)) is not None:
            search.known = known.with_proofs_of(earlier.known)
            search.seconds, search.given = earlier.seconds, earlier.given
        return search

    def _one(self, until: float, share: float) -> ModuloSearch:
        """Search the repetend of one micro-batch: some, those of earlier objectives, that of least period."""
        known = Known.without_search(self.placement, 1, least=self.period_bound)
        if 1 in self.searches:
            known = self.searches[1].known
        search = self._search(known, until, share)
        with self._recorded(search):
            answer = Answer.YES if search.known.repetend is not None else search.begin(self._start(1))
            if search.known.repetend is None:
                self._with_best_start(search.known)
                if self.best is None:
                    self._explain(answer)
                return search
            search.report(Objective.PERIOD, self._name_of_start(1, "one block after another"))
            if not self.before and not search.look_at_bound():
                if not self._queries_first:
                    self._begin_better(search, until)
                search.until = self.asking.effort.share(until, share)
                search.known = self._with_best_start(search.known)
                if search.known.repetend is not None:
                    search.report(Objective.PERIOD, self._name_of_start(1, "one block after another"))
            search.minimise_in_turn((*self.before, Objective.PERIOD))
        if not self.is_proved:
            self._raise_bound(until)
        return search

    def _minimise_period(self, search: ModuloSearch) -> None:
        with self._recorded(search):
            search.minimise(Objective.PERIOD)

    @contextlib.contextmanager
    def _recorded(self, search: ModuloSearch) -> Iterator[None]:
        """Count a search as tried, with its time, and keep its repetend where that is no worse."""
        began = time.monotonic()
        self.searches[search.known.micro_batches] = search
        try:
            yield
        finally:
            search.seconds += time.monotonic() - began
            if search.known.repetend is not None and (
                self.best is None or self.quality(search) <= self.quality(self.best)
            ):
                self.best = search

    def _explain(self, answer: Answer) -> None:
        """Say why there is no schedule."""
        if answer is Answer.NO:
            self.failure = Status.INFEASIBLE, ""
            reason = why_infeasible(self.placement, self.asking)
            self.failure = Status.INFEASIBLE, reason
        else:
            self.failure = Status.UNKNOWN, _NOT_FOUND

    def _raise_bound(self, until: float) -> None:
        """Raise the bound to what the state-space search proves, if there are few enough states."""
        assert self.best is not None
        earlier, effort = self.least_period, self.asking.effort
        if earlier is not None and len(earlier.devices) == self.placement.num_devices:
            return  # that of all devices together
        work = (until - effort.spent) * _SHARE_OF_STATES
        most = min(MOST_STATES, int(work / _WORK_OF_STATE))
        if most <= self._states_looked_at:
            return
        found = least_period(
            self.placement,
            known=self.best.known.period_per_micro_batch,
            time_limit_s=effort.require_s(),
            most_states=most,
        )
        self._states_looked_at = most
        effort.spend(most * _WORK_OF_STATE)
        if found is None or (earlier is not None and found.ticks < earlier.ticks):
            return
        self.least_period = found
        if found.ticks > self.period_bound:
            self.period_bound = found.ticks
            for search in self.searches.values():
                search.known = search.known.with_period_bound(self.period_bound)
