"""The progress of a search, and its answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from schedsearch.core.objective import Objective
from schedsearch.device_span import device_spans
from schedsearch.repetend import Repetend
from schedsearch.results import FileResult
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import Ending
from schedsearch.state_space import MinPeriod


class SearchError(ValueError):
    """The arguments of a search are out of range, or do not go together."""


@dataclass(frozen=True)
class SearchProgress:
    """The progress of a search: best value, bound, queries and seconds so far.

    Attributes:
        phase: Objective being made smaller; see `Objective`.
        best: Least value found, in ticks or units of memory, of the period per micro-batch; None before the
            first.
        bound: Lower bound over all answers to the whole question, not to a part of it.
        queries: Questions put to the solver so far.
        elapsed_s: Seconds since the search began.
        found_by: Finder of the best value: the name of a hand-made schedule, a rule of the simulation, a
            query, neighbourhoods, ...; empty if not known.
    """

    phase: str
    best: float | None
    bound: float
    queries: int
    elapsed_s: float
    found_by: str = ""


SearchReport = Callable[[SearchProgress], None]
"""A listener, called with the progress of a search."""


class Status(StrEnum):
    """Status of a search's answer: proved least, found, proved impossible, or unknown.

    OPTIMAL: the period meets its bound; where none is asked for, the makespan or the device span does.
    FEASIBLE: a valid schedule, and a bound that it does not meet, or a search that was interrupted.
    INFEASIBLE: proved that there is none. UNKNOWN: gave up without one.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


class EndedBy(StrEnum):
    """Reason why a search ended; after TIME_LIMIT, another run may end with another schedule."""

    PROOF = "proof"
    NOTHING_LEFT = "nothing left to try"
    TIME_LIMIT = "time limit"
    WORK_LIMIT = "work limit"
    INTERRUPT = "interrupt"

    @classmethod
    def of(cls, ending: Ending, *, proved: bool) -> EndedBy:
        """Return why a search ended: an interrupt counts before a proof, a proof before a limit."""
        if ending.interrupted or proved:
            return cls.INTERRUPT if ending.interrupted else cls.PROOF
        if ending.out_of_time or ending.out_of_work:
            return cls.TIME_LIMIT if ending.out_of_time else cls.WORK_LIMIT
        return cls.NOTHING_LEFT


def proved_text(*subjects: str) -> str:
    """Return in words which objectives are proved, for people to read instead of a bare status.

    >>> proved_text("period", "makespan"), proved_text("plan"), proved_text()
    ('period and makespan proved', 'plan proved', 'not proved')
    """
    return f"{' and '.join(subjects)} proved" if subjects else "not proved"


@dataclass(frozen=True)
class Attempt:
    """Best period found, and the bound proved, for one number of micro-batches per repetend.

    Attributes:
        micro_batches: Per repetend.
        period: The least found, in ticks; None where none was found.
        bound: Ticks that no such period beats.
        refuted: The greatest period that a solver proved to be too short, so that `bound` is the next; None
            where `bound` needs no solver.
        seconds: Time spent on it.
    """

    micro_batches: int
    period: int | None
    bound: int
    refuted: int | None
    seconds: float


@dataclass(frozen=True)
class StrategyWork:
    """Work that a strategy took in a search, and how much better it made the objective.

    Attributes:
        name: Name of the strategy.
        objective: Objective that it improved: the period, or the whole schedule's objective.
        work: Units of counted work, each of about a second.
        improvements: Number of times that it found a smaller value.
        gain: Share by which all its improvements together made the value smaller, from 0 to 1.
    """

    name: str
    objective: Objective = Objective.PERIOD
    work: float = 0.0
    improvements: int = 0
    gain: float = 0.0


@dataclass(frozen=True)
class InFlightPeriod:
    """Least period of one-micro-batch repetends under a limit of micro-batches in flight (Tessel, Fig. 11).

    Attributes:
        in_flight: The limit: most micro-batches that a repetend spans (Tessel's N_R).
        repetend: The best repetend found; None for none.
        bound: Lower bound on the period of these repetends, in ticks.
        seconds: Wall-clock time; in a Tessel search, which goes through them in turn, since it began.
    """

    in_flight: int
    repetend: Repetend | None
    bound: int
    seconds: float


@dataclass(frozen=True)
class Answer(FileResult):
    """The answer of a search: a schedule, its bounds, and how the search went.

    Attributes:
        status: Status of the period: OPTIMAL when it meets `period_bound`; of the makespan or the device span
            where the period is no objective.
        repetend: The steady state; None when there is no schedule, or the period is no objective.
        schedule: Schedule of the asked number of micro-batches, validated; None when none. Where the makespan
            is an objective, it may begin and end otherwise than the unrolled repetend.
        period_bound: Ticks per micro-batch that no repetend beats, of any number of micro-batches asked for.
        span_bound: Ticks that the span of no repetend of this period beats.
        makespan_bound: Ticks that no schedule of as many micro-batches beats, periodic or not.
        queries: Questions put to the solver.
        seconds: Wall-clock time of the search.
        tried: Each number of micro-batches per repetend that was asked for, in ascending order.
        ended_by: Reason why the search ended.
        reason: Why there is no schedule; empty when there is one.
        sizes: Numbers of micro-batches per repetend that were asked for, whether or not they were tried.
        limits: Values of the objectives before the period, which every repetend had to keep.
        solver: Solver that refuted the periods below each bound; a key of `SOLVERS`.
        min_period: Minimum cycle ratio, for any number of micro-batches per repetend; None if other bounds
            were enough, or the states too many.
        universal_bound: Ticks per micro-batch that no repetend of any number of micro-batches beats.
        by_in_flight: Periods that Tessel's search knew with one micro-batch in flight, with up to two, and so
            on; empty after other searches.
        device_span_bound: Ticks that the longest device span of no schedule of as many micro-batches beats.
        strategies: Work and gain of each strategy, for the period and then for the whole schedule.
        work: Units of counted work; files do not have it.
    """

    status: Status
    repetend: Repetend | None
    schedule: Schedule | None
    period_bound: float
    span_bound: int
    makespan_bound: int
    queries: int
    seconds: float
    tried: tuple[Attempt, ...] = ()
    ended_by: EndedBy = EndedBy.PROOF
    reason: str = ""
    sizes: tuple[int, ...] = (1,)
    limits: Mapping[Objective, int] = field(default_factory=dict)
    solver: str = ""
    min_period: MinPeriod | None = None
    universal_bound: float = 0.0
    by_in_flight: tuple[InFlightPeriod, ...] = ()
    device_span_bound: int = 0
    strategies: tuple[StrategyWork, ...] = ()
    work: float = field(default=0.0, compare=False)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search."""
        return self.ended_by is EndedBy.INTERRUPT

    @property
    def is_cut(self) -> bool:
        """Whether the time limit ended the search, so that another run may end with another schedule."""
        return self.ended_by is EndedBy.TIME_LIMIT

    @property
    def proved(self) -> str:
        """The proof in words: ``period and makespan proved``, ``not proved``, ``infeasible``, ...

        The period is the least for the numbers of micro-batches per repetend that were asked for (`sizes`).
        The makespan and the device span are the least of any schedule. The device span is named where the
        makespan is not proved.
        """
        if self.schedule is None:
            return self.status.value.lower()
        period = ["period"] if self.repetend is not None and self.status is Status.OPTIMAL else []
        if self.schedule.makespan <= self.makespan_bound:
            return proved_text(*period, "makespan")
        if device_spans(self.schedule).max() <= self.device_span_bound:
            return proved_text(*period, "device span")
        return proved_text(*period)

    @property
    def gap(self) -> float:
        """Gap between the period and its bound, as a share of the bound; 0 for a proved period."""
        if self.repetend is None:
            return math.inf
        return max(0.0, self.repetend.period_per_micro_batch / self.period_bound - 1)
