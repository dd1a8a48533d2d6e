"""The least period, over one, two and more micro-batches per repetend."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

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
    better_of,
    greedy_repetends,
    hand_made_repetends,
    simulated_repetends,
)
from schedsearch.starts.serial import serial_period
from schedsearch.state_space import LeastPeriod, least_period

_SHARE_OF_ONE = 0.6
"""Share of the time that one micro-batch per repetend gets where more may follow."""

_SHARE_OF_GREEDY = 0.2
"""Share of the time after which no more greedy repetends are made: on 320 devices they take some seconds."""

_SHARE_OF_HAND_MADE = 0.8
"""Share of the time after which no more repetends of hand-made schedules are made: on 32 devices they take
some seconds, on a hundred a minute."""

_SHARE_OF_SIMULATED = 0.2
"""Share of the time that making repetends of simulated schedules gets."""

_SHARE_OF_ANNEALING = 0.5
"""Share of the time that orders are annealed for at most."""

_SHARE_OF_PATTERNS = {False: 0.15, True: 0.6}
"""Share of the time that patterns of a few devices, shifted to the others, get where a solver can be asked
about all blocks at once, and where there are too many."""

_LINE = 32
"""Blocks from which on orders are found from device to device where devices are a line; else a solver is as
quick."""

_SHARE_OF_DEVICE_BY_DEVICE = {False: 0.3, True: 0.85}
"""Share of the time that it gets at most where a solver can be asked about all blocks, and where there are
too many: what follows then rarely finds anything better."""

_SHARE_OF_NEIGHBOURHOODS = 0.2
"""Share of the time that neighbourhoods of the best repetend get where there are many blocks."""

_SIZES_OF_SIMULATED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Micro-batches per repetend into which simulated schedules are folded, up to the number of devices."""

_MANY_BLOCKS = 48
"""Blocks from which on hand-made repetends come before the solver.

One of many micro-batches that meets the bound is then enough.
"""

_SHARE_OF_STATES = 0.2
"""Share of the time left that the state-space search for the least period gets."""


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
    """

    def __init__(
        self,
        placement: Placement,
        before: Sequence[Objective],
        asking: Asking,
        time_limit: float,
        given: Repetend | None = None,
    ) -> None:
        """Begin with the bounds that need no search.

        Args:
            placement: What runs where.
            before: Objectives before the period.
            asking: Whom to ask.
            time_limit: When the whole search ends, in seconds of `time.monotonic`.
            given: A repetend that the caller begins with, of any number of micro-batches.
        """
        self.placement = placement.per_micro_batch
        self.before = before
        self.asking = asking
        self.time_limit = time_limit
        self.period_bound = period_bound(placement)
        self.least_period: LeastPeriod | None = None
        self.asked: tuple[int, ...] = (1,)
        self.starts: dict[int, Start] = {}
        if given is not None:
            self.starts[given.micro_batches] = Start(given, "what the search began with")
        self.searches: dict[int, ModuloSearch] = {}
        self.best: ModuloSearch | None = None
        self.failure = Status.UNKNOWN, ""

    def begin(self, deadline: float) -> None:
        """Take greedy and hand-made repetends if there are many blocks; else a solver is as quick."""
        if len(self.placement.blocks) >= _MANY_BLOCKS and not self.before:
            self._take_greedy_and_hand_made(deadline)

    def _take_greedy_and_hand_made(self, deadline: float) -> None:
        end = _share(deadline, _SHARE_OF_GREEDY)
        greedy = greedy_repetends(self.placement, self.period_bound, end)
        share_s = (deadline - time.monotonic()) * _SHARE_OF_HAND_MADE
        hand_made = hand_made_repetends(self.placement, self.period_bound, share_s)
        self.starts = better_of(self.starts, better_of(hand_made, greedy))

    def _begin_better(self, search: ModuloSearch, deadline: float) -> None:
        """Take the repetends of greedy and hand-made schedules, if not done yet, and what is made of them.

        Args:
            search: That of one micro-batch per repetend.
            deadline: When to stop, in seconds of `time.monotonic`.
        """
        if len(self.placement.blocks) < _MANY_BLOCKS:
            self._take_greedy_and_hand_made(deadline)
        if len(self.placement.blocks) >= _LINE:
            self._go_device_by_device(search, deadline)
        if self._rate_of_starts <= self.period_bound:
            return
        self._anneal(search, deadline)
        if len(self.placement.blocks) >= _MANY_BLOCKS and self._rate_of_starts > self.period_bound:
            self._simulate(deadline)
            self._shift_patterns(deadline)

    def _simulate(self, deadline: float) -> None:
        """Take the repetends of simulated schedules."""
        share_s = (deadline - time.monotonic()) * _SHARE_OF_SIMULATED
        sizes = sorted({n for n in (*self.asked, *_SIZES_OF_SIMULATED) if n <= self._most_of_starts})
        found = simulated_repetends(self.placement, sizes, self.period_bound, share_s, deadline)
        self.starts = better_of(self.starts, found)

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

    def _go_device_by_device(self, search: ModuloSearch, deadline: float) -> None:
        """Take the repetends whose orders are found from device to device, each at once: it may take long."""
        # numba is slow to load
        from schedsearch.modulo.many_blocks.device_beam import device_beam

        many = len(self.placement.blocks) >= _MANY_BLOCKS
        end, known = _share(deadline, _SHARE_OF_DEVICE_BY_DEVICE[many]), self._rate_of_starts
        sizes = range(1, self._most_of_starts + 1) if len(self.asked) > 1 else self.asked
        found = device_beam(self.placement, sizes, self.period_bound, known, end, self.asking.seed)
        for repetend in found:
            self._take_at_once(Start(repetend, "orders found from device to device"), search)

    def _anneal(self, search: ModuloSearch, deadline: float) -> None:
        """Take the repetends to which annealing leads from the best so far, each at once."""
        # numba is slow to load
        from schedsearch.modulo.annealing import annealed

        assert search.known.repetend is not None
        known = {1: search.known.repetend}
        known |= {size: start.repetend for size, start in self.starts.items()}
        end = _share(deadline, _SHARE_OF_ANNEALING)
        for repetend in annealed(known, self.asked, self.period_bound, end, self.asking.seed):
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

    def _shift_patterns(self, deadline: float) -> None:
        """Take the repetends of one micro-batch in which a few devices' pattern serves all."""
        # OR-Tools is slow to load
        from schedsearch.modulo.many_blocks.shifted_patterns import shifted_patterns

        known = self._rate_of_starts
        many = len(self.placement.blocks) >= MANY_INSTANCES
        end = _share(deadline, _SHARE_OF_PATTERNS[many])
        found = shifted_patterns(self.placement, self.period_bound, known, end, self.asking.seed)
        for devices, repetend in found:
            self.starts[1] = Start(repetend, f"pattern of {devices} devices")

    def first(self, deadline: float) -> None:
        """Find some repetend, and make nothing of it less."""
        search = self._search(Known.without_search(self.placement, 1, least=self.period_bound), deadline, 1.0)
        with self._recorded(search):
            answer = search.begin(self._start(1))
            if search.known.repetend is None:
                self._explain(answer)

    def up_to(self, most: int, deadline: float) -> None:
        """Search the least period for 1, 2, ... micro-batches per repetend, until the bound is met.

        Of more than the most, what was made by hand or simulated counts where it is the best.
        """
        self.asked = tuple(range(1, most + 1))
        if most > 1 and self._takes_what_is_proved(most):
            return
        queries_end = self._end_of_queries(deadline)
        one = self._one(queries_end, 1.0 if most == 1 else _SHARE_OF_ONE)
        limit = one.known.without_limit(Objective.PERIOD).limit
        for size in range(2, most + 1):
            if self.best is None or self.is_proved or time.monotonic() >= queries_end:
                break
            search = self._search(self._better(size, limit), queries_end, 1 / (most - size + 1))
            self._minimise_period(search)
        self._shorten(deadline)

    def exactly(self, size: int, deadline: float) -> None:
        """Search the least period for a number of micro-batches per repetend; begin with the best of one."""
        if size == 1:
            self.up_to(1, deadline)
            return
        self.asked = (size,)
        queries_end = self._end_of_queries(deadline)
        try:
            self._one(queries_end, _SHARE_OF_ONE)
        finally:
            self.searches.clear()
            known = Known.without_search(self.placement, size, least=self.period_bound)
            if self.best is not None:
                one = self.best.known.without_limit(Objective.PERIOD)
                assert one.repetend is not None
                known = replace(known, repetend=one.repetend.repeated(size), limit=one.limit)
            for several, start in self.starts.items():
                if size % several == 0:
                    known = known.beginning_with(start.repetend.repeated(size // several))
            if known.repetend is not None:
                self.best = self._search(known, queries_end, 1.0)
        if self.best is not None:
            self._minimise_period(self.best)
        self._shorten(deadline)

    @property
    def is_proved(self) -> bool:
        """Whether no number of micro-batches per repetend has a lesser period than the best."""
        return self.best is not None and self.best.known.period_per_micro_batch <= self.period_bound

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
        reached = self.searches[1].known.limit if 1 in self.searches else {}
        return {objective: value for objective, value in reached.items() if objective in self.before}

    def _end_of_queries(self, deadline: float) -> float:
        """Return when to end asking for whole repetends; of many blocks, neighbourhoods follow."""
        many = len(self.placement.blocks) >= _MANY_BLOCKS and not self.before
        now = time.monotonic()
        return deadline - (deadline - now) * _SHARE_OF_NEIGHBOURHOODS if many else deadline

    def _shorten(self, deadline: float) -> None:
        """Shorten the best repetend by ordering parts of it anew, in the time left."""
        if self.best is None or self.is_proved or self.before or time.monotonic() >= deadline:
            return
        # OR-Tools is slow to load
        from schedsearch.modulo.many_blocks.shorten_period import shorten_period

        search = self.best
        assert search.known.repetend is not None
        bound = Fraction(search.known.bound[Objective.PERIOD], search.known.micro_batches)
        for shorter in shorten_period(search.known.repetend, bound, deadline, self.asking.seed):
            search.known = replace(search.known.without_limit(Objective.PERIOD), repetend=shorter)
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
            search = ModuloSearch(known, self.asking, time.monotonic())
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

    def _search(self, known: Known, deadline: float, share: float) -> ModuloSearch:
        """Return a search that may take a share of the time left."""
        return ModuloSearch(known, self.asking, _share(deadline, share))

    def _one(self, deadline: float, share: float) -> ModuloSearch:
        """Search the repetend of one micro-batch: some, those of earlier objectives, that of least period."""
        known = Known.without_search(self.placement, 1, least=self.period_bound)
        search = self._search(known, deadline, share)
        with self._recorded(search):
            answer = search.begin(self._start(1))
            if search.known.repetend is None:
                self._with_best_start(search.known)
                if self.best is None:
                    self._explain(answer)
                return search
            search.report(Objective.PERIOD, self._name_of_start(1, "one block after another"))
            if not self.before and not search.look_at_bound():
                self._begin_better(search, deadline)
                search.deadline = _share(deadline, share)
                search.known = self._with_best_start(search.known)
                if search.known.repetend is not None:
                    search.report(Objective.PERIOD, self._name_of_start(1, "one block after another"))
            for objective in (*self.before, Objective.PERIOD):
                search.minimise(objective)
        if not self.is_proved:
            self._raise_bound(deadline)
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
            search.seconds = time.monotonic() - began
            found, best = search.known, self.best
            if found.repetend is not None and (
                best is None or found.period_per_micro_batch <= best.known.period_per_micro_batch
            ):
                self.best = search

    def _explain(self, answer: Answer) -> None:
        """Say why there is no schedule."""
        if answer is Answer.NO:
            self.failure = Status.INFEASIBLE, ""
            reason = why_infeasible(self.placement, self.asking, self.time_limit)
            self.failure = Status.INFEASIBLE, reason
        else:
            reason = "no schedule was found in the time given; raise search.time_limit_s"
            self.failure = Status.UNKNOWN, reason

    def _raise_bound(self, deadline: float) -> None:
        """Raise the bound to what the state-space search proves, if there are few enough states."""
        assert self.best is not None
        self.least_period = least_period(
            self.placement,
            known=self.best.known.period_per_micro_batch,
            time_limit_s=(deadline - time.monotonic()) * _SHARE_OF_STATES,
        )
        if self.least_period is not None and self.least_period.ticks > self.period_bound:
            self.period_bound = self.least_period.ticks
            for search in self.searches.values():
                search.known = search.known.with_period_bound(self.period_bound)


def _share(deadline: float, share: float) -> float:
    """Return when a share of the time left is over, in seconds of `time.monotonic`."""
    now = time.monotonic()
    return now + (deadline - now) * share
