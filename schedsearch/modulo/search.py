"""Repetend search: the least period, swept over micro-batches per repetend, then other objectives in turn."""

from __future__ import annotations

import contextlib
import inspect
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, SupportsIndex

from placements import Placement
from placements.placement_file import placement_to_dict
from schedsearch.core.answer import EndedBy, SearchError, SearchReport, SearchResult, Status
from schedsearch.core.budget import Account
from schedsearch.core.known import Known, Start
from schedsearch.core.objective import FINITE, VALUE, Objective
from schedsearch.core.problem import GIVEN, BeginWith
from schedsearch.modulo.finite_schedule import FiniteSchedule
from schedsearch.modulo.finite_with_modes import FiniteWithModes
from schedsearch.passes.begin_with import StartingPoint, plain_orders, starting_point_on
from schedsearch.passes.lowered import AtWorst, Lowered
from schedsearch.procedures.modes import Modes
from schedsearch.procedures.period import PeriodSearch
from schedsearch.procedures.procedure import Procedure
from schedsearch.procedures.registry import chosen
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import require_capacity
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.portfolio import SOLVERS

Finite = FiniteSchedule | FiniteWithModes
"""The search for the schedule of a number of micro-batches."""

OBJECTIVES = (Objective.PERIOD, Objective.MAKESPAN)
"""What is made least by default, in this order."""

TIME_LIMIT_S = 20.0
"""Seconds that a search has where neither time nor work is limited."""

_FIRST_ROUND = 2.5
"""Work of the first round, in units of about a second; half of each is for the period until it is proved."""

_SHARE_OF_REPETENDS = 0.3
"""Share of the work after the period that goes to repetends; the rest goes to the whole schedule."""

_FIRST_REPETENDS = 1.5
"""Work until which they come first in any case: where questions are easy, that is enough for all of them."""

_SHARE_OF_MADE = 0.1
"""Share of a time limit, at least a second, that may pass beyond it, for schedules by hand that a search has
not come to."""

_ROUNDS_IN_VAIN = 20
"""Rounds in a row without any work after which nothing is left to try: each may take twice as much."""

_LONGEST_S = 4e6
"""Longest time limit, some forty days: solvers count milliseconds in 32 bits."""

_GREATEST_SEED = 1_000_000
"""Solvers take 31 bits, and a schedule is improved with a thousand times the seed and what follows."""


@dataclass(frozen=True)
class SearchRequest:
    """A question to a search: all that its answer depends on, but for the speed of the machine.

    Attributes:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches to unroll to; at least 1.
        method: A key of `schedsearch.searches.methods.METHODS`. Tessel's repetends have one micro-batch, and
            its two methods make no use of the next three, nor of strategies and what to begin with.
        micro_batches_per_repetend: Exactly so many; None to try 1, 2, ... (Tessel: 1).
        max_micro_batches_per_repetend: Where to stop searching; above 1, the repetend of a hand-made schedule
            may be of more, up to the number of devices, where it is better.
        objectives: What to make least, in this order; see `schedsearch.core.objective.Objective`. The
            makespan or the device span can only be the last; one of them alone needs no period.
        solver: A key of `SOLVERS`.
        time_limit_s: Seconds for the whole search; the best schedule found until then is returned. Those that
            numba compiles, once after an installation, are not counted. None: `TIME_LIMIT_S`, or no limit
            where there is a limit of work.
        work_limit: Units of counted work after which to end, each of about a second on one core; None for
            no limit. A search that it ends has the same answer on any machine. Rounds end at 2.5,
            5, 10, 20, ... units: with such a limit, each objective has had its share.
        seed: Seed of the random choices, 0 to a million.
        begin_with: A schedule, or what another search found: the answer is then no worse than this one is
            with the options given here. See `schedsearch.modulo.starting_point.starting_point_on`.
        strategies: What the period is searched with: names of `schedsearch.procedures.registry`, or
            objects of one's own, in the order in which they run; None for all.
        without: Names of strategies to leave out.
    """

    placement: Placement
    num_micro_batches: int
    method: str = "modulo"
    micro_batches_per_repetend: int | None = None
    max_micro_batches_per_repetend: int = 3
    objectives: Sequence[str] = OBJECTIVES
    solver: str = "portfolio"
    time_limit_s: float | None = None
    work_limit: float | None = None
    seed: int = 0
    begin_with: BeginWith | None = None
    strategies: Sequence[str | Procedure] | None = None
    without: Collection[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain data, the placement in its file form.

        Raises:
            SearchError: It begins with what is no schedule.
        """
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["objectives"] = [str(name) for name in self.objectives]
        data["begin_with"] = None if self.begin_with is None else plain_orders(self.begin_with)
        return data | {"placement": placement_to_dict(self.placement)}


def search(
    placement: Placement, num_micro_batches: int, *, on_progress: SearchReport | None = None, **options: Any
) -> SearchResult:
    """Search the repetend of least period under each device's memory, and unroll it.

    The period is searched from its bound up, by bisection over decision queries; every answer gets the least
    period of its order, so that the upper end is always a period that some order of blocks really has. One
    micro-batch per repetend comes first, all that Tessel searches; where that does not meet the bound, two
    and more are tried, and kept where they are better per micro-batch. What follows the period among the
    objectives is made least among repetends of that period, and so on. For the makespan, repetends of
    various spans are sampled: how well warmup and cooldown pack depends on more than the span. Then the whole
    schedule is shortened, in any of its parts, see `schedsearch.procedures.neighbourhoods.improvement`; a hand-made schedule that
    fits the placement and its memory may be what that begins with, so that none is ever better. The search
    for the period begins with the steady states of such schedules too. Which strategies follow is told in
    `schedsearch.procedures`.

    Args:
        placement: As of `SearchRequest`.
        num_micro_batches: Likewise.
        on_progress: Called with the first schedule found, and after each query.
        options: The other fields of `SearchRequest`, but for the method.

    Raises:
        SearchError: An argument is out of its range, or `begin_with` is not for this placement.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    request = SearchRequest(placement, num_micro_batches, "modulo", **options)
    return search_modulo(request, on_progress or (lambda _: None))


_NAMED = ("placement", "num_micro_batches", "method")
search.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # for help and completion
    [
        *list(inspect.signature(search).parameters.values())[:-1],
        *(
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default)
            for each in fields(SearchRequest)
            if each.name not in _NAMED
        ),
    ],
    return_annotation="SearchResult",
)


def search_modulo(request: SearchRequest, on_progress: SearchReport) -> SearchResult:
    """Answer a request, whatever its method; see `search`."""
    placement, number = request.placement, request.num_micro_batches
    if not isinstance(placement, Placement):
        raise SearchError(
            f"placement: a {type(placement).__name__} is not a placement; give that of v_shape, of "
            "read_placement or the like"
        )
    wanted = read_objectives(request.objectives)
    before, after = _around_period(wanted)
    _check_arguments(request)
    require_capacity(placement)
    if placement.slowdown or not (placement.is_plain or placement.decisions):
        other = AtWorst(placement) if placement.slowdown else Lowered.of(placement, ((),))
        if other is not None:
            begin_with = None if request.begin_with is None else other.lower(request.begin_with)
            told = other.told(on_progress, number) if isinstance(other, AtWorst) else on_progress
            return other.lift(
                search_modulo(replace(request, placement=other.plain, begin_with=begin_with), told)
            )
    given = StartingPoint()
    if request.begin_with is not None:
        given = starting_point_on(placement, number, request.begin_with)
    sizes: Sequence[int] = range(1, request.max_micro_batches_per_repetend + 1)
    if request.micro_batches_per_repetend is not None:
        sizes = (request.micro_batches_per_repetend,)
    seed, work_limit = request.seed, request.work_limit
    state = Known(placement.per_micro_batch, tuple(sizes), period_bound(placement), before, seed=seed)
    used, uses = chosen(request.strategies, request.without)
    for each in used:
        if isinstance(each, Modes):
            each.search_orders = partial(_orders_alone, (*request.without, Modes.name))
    began = time.monotonic()
    limit_s = min(seconds_of(request.time_limit_s, work_limit), _LONGEST_S)
    effort = Effort(began + limit_s, limit=min(work_limit or math.inf, _LONGEST_S))
    oracle = Account(SOLVERS[request.solver](), seed, began, effort, on_progress)
    rounds = PeriodSearch(state, oracle, used, uses)
    last = wanted[-1] if wanted[-1] in FINITE else Objective.MAKESPAN
    finite = (FiniteSchedule if placement.is_plain else FiniteWithModes)(
        placement, number, last, given.schedule if last in wanted else None, oracle, uses
    )
    with effort.answered() as ending:
        if given.repetend is not None:
            rounds.take(GIVEN, [Start(given.repetend, GIVEN)])
        _in_rounds(rounds, finite, after, Objective.PERIOD in wanted)
    with contextlib.suppress(OutOfTimeError, KeyboardInterrupt):
        if rounds.state.best is None and rounds.state.failure.status is Status.UNKNOWN:
            rounds.begin()
    is_cut, best = ending.interrupted or ending.out_of_work or ending.out_of_time, rounds.state.best
    if is_cut and best is not None and last in wanted and isinstance(finite, FiniteSchedule):
        with contextlib.suppress(KeyboardInterrupt):  # a second one, which ends this too
            finite.take_hand_made(best, max(1.0, _SHARE_OF_MADE * limit_s) if ending.out_of_time else 0.0)
    result = replace(
        _result(rounds, finite, uses, ending.interrupted), solver=request.solver, work=effort.spent
    )
    if Objective.PERIOD not in wanted:
        result = _without_period(result, finite, ending.interrupted)
    proved = _is_proved(result, wanted, ending.out_of_time or ending.out_of_work)
    return replace(result, ended_by=EndedBy.of(ending, proved=proved))


def _orders_alone(
    without: Collection[str],
    state: Known,
    oracle: Account,
    until: float,
) -> Iterator[Start]:
    """Yield the best repetend of a plain placement that all strategies but some find in a round."""
    used, uses = chosen(None, without)
    silent = replace(oracle, on_progress=lambda _: None, work={}, found_by={}, proved={})
    rounds = PeriodSearch(state, silent, used, uses)
    try:
        rounds.run(until)
    finally:
        oracle.queries = silent.queries
    for repetend in rounds.state.repetends.values():
        yield Start(repetend, Modes.name)


def seconds_of(time_limit_s: float | None, work_limit: float | None) -> float:
    """Return the seconds that a search has; infinite where work alone limits it."""
    if time_limit_s is not None:
        return time_limit_s
    return TIME_LIMIT_S if work_limit is None else math.inf


def _is_proved(result: SearchResult, wanted: Sequence[Objective], was_limited: bool) -> bool:
    """Return whether all that was to be made least is proved; of a repetend's other figures more may tell."""
    if result.schedule is None:
        return result.status is Status.INFEASIBLE
    bounds = {Objective.MAKESPAN: result.makespan_bound, Objective.DEVICE_SPAN: result.device_span_bound}
    others = set(wanted) - {Objective.PERIOD, *bounds}
    return (
        result.status is Status.OPTIMAL
        and not (was_limited and others)
        and all(FINITE[each].value(result.schedule) <= bounds[each] for each in bounds if each in wanted)
    )


def _in_rounds(period: PeriodSearch, finite: Finite, after: Sequence[Objective], with_period: bool) -> None:
    """Search the period and what follows it in rounds, each as long as all before it: iterative deepening.

    How long is counted in work, not in seconds, and no limit is known here. So a search with more time or
    work goes the same course, and further.

    Args:
        period: The search for the period.
        finite: The search for what follows.
        after: The objectives that do.
        with_period: Whether the period is an objective; else any repetend will do.

    Raises:
        OutOfTimeError: The limit of time or of work is reached.
        KeyboardInterrupt: There was a Ctrl-C.
    """
    effort, in_vain = period.oracle.effort, 0
    if not with_period:
        period.begin()
    while period.state.failure.status is not Status.INFEASIBLE and in_vain < _ROUNDS_IN_VAIN:
        before, end = effort.spent, max(_FIRST_ROUND, 2 * effort.spent)
        if with_period and not period.state.is_done:
            period.run(end if finite.is_done(after) else effort.share(end, 0.5))
        state = period.state
        if (best := state.best) is not None:
            if state.is_done and period.state.placement.is_plain:
                for each in set(VALUE) - {Objective.PERIOD}:  # what is proved of them now is of that period
                    period.oracle.proved.pop(each, None)
            if finite.known is None or state.quality(best) < state.quality(finite.known):
                finite.begin_with(best, with_period and best.micro_batches in state.sizes)
            _after_period(finite, after, end)
        if (not with_period or state.is_done) and finite.is_done(after):
            return
        in_vain = in_vain + 1 if effort.spent == before else 0
        effort.spent = max(effort.spent, end)  # what is not spent in a round would not be in another like it
        effort.require_s()


def _after_period(finite: Finite, after: Sequence[Objective], end: float) -> None:
    """Make the objectives after the period less, until so much work is done."""
    if after and not finite.polished:
        until = end
        if finite.objective in after:
            until = max(finite.effort.share(end, _SHARE_OF_REPETENDS), min(end, _FIRST_REPETENDS))
        finite.polish(after, until)
    if finite.objective in after:
        finite.shorten(end)


def _check_arguments(request: SearchRequest) -> None:
    if request.solver not in SOLVERS:
        raise SearchError(f"search.solver: {request.solver!r} is not a solver; use {' or '.join(SOLVERS)}")
    for name in ("num_micro_batches", "micro_batches_per_repetend", "max_micro_batches_per_repetend"):
        number = getattr(request, name)
        if not isinstance(number, SupportsIndex | None):
            raise SearchError(f"search.{name}: {number!r} is not a whole number")
        if number is not None and int(number) < 1:
            raise SearchError(f"search.{name}: {number} is not at least 1")
    seed = request.seed
    if not isinstance(seed, SupportsIndex) or not 0 <= seed <= _GREATEST_SEED:
        raise SearchError(f"search.seed: {seed!r} is not a whole number from 0 to {_GREATEST_SEED}")
    for name, unit in (("time_limit_s", "seconds"), ("work_limit", "units of work")):
        limit = getattr(request, name)
        if limit is not None and not limit > 0:
            raise SearchError(f"search.{name}: {limit:.15g} is not a positive number of {unit}")


def read_objectives(names: Sequence[str]) -> tuple[Objective, ...]:
    """Return the objectives by their names.

    Raises:
        SearchError: One is unknown or there twice, the period is missing, or that of a whole schedule is not
            the last.
    """
    known = [objective.value for objective in Objective]
    if isinstance(names, str):
        raise SearchError(f"search.objectives: {names!r} is not a list; write [{names!r}]")
    for name in names:
        if name not in known:
            raise SearchError(f"search.objectives: {name!r} is not an objective; use {', '.join(known)}")
    wanted = tuple(Objective(name) for name in names)
    if len(set(wanted)) < len(wanted):
        raise SearchError("search.objectives: one is there twice; name each once")
    if Objective.PERIOD not in wanted and (len(wanted) != 1 or wanted[0] not in FINITE):
        raise SearchError(
            "search.objectives: the period is missing; add period, or give makespan or device_span alone"
        )
    for objective in FINITE:
        if objective in wanted[:-1]:
            raise SearchError(
                f"search.objectives: the {objective} is not the last; nothing can be made less after it"
            )
    return wanted


def _around_period(objectives: tuple[Objective, ...]) -> tuple[tuple[Objective, ...], tuple[Objective, ...]]:
    """Return the objectives before the period, and those after it; all are after it where there is none."""
    if Objective.PERIOD not in objectives:
        return (), objectives
    position = objectives.index(Objective.PERIOD)
    return objectives[:position], objectives[position + 1 :]


def _result(period: PeriodSearch, finite: Finite, uses: Collection[str], interrupted: bool) -> SearchResult:
    """Return the answer as it stands."""
    state, found = period.state, period.state.best
    if found is not None and finite.known is not None:
        found = min(finite.known, found, key=state.quality)
    repetend = found.repetend if found is not None else None
    status, reason = state.failure
    schedule, span_bound = None, critical_path(state.placement)
    if found is not None and repetend is not None:
        is_least = state.rate <= state.bound and not interrupted
        status, reason = Status.OPTIMAL if is_least else Status.FEASIBLE, ""
        repetend = replace(repetend, placement=state.placement)  # a query may have had less memory
        schedule, span_bound = finite.best(found), found.bound[Objective.SPAN]
    return SearchResult(
        status=status,
        repetend=repetend,
        schedule=schedule,
        period_bound=float(state.bound),
        span_bound=span_bound,
        makespan_bound=finite.bound
        if finite.objective is Objective.MAKESPAN
        else makespan_bound(finite.placement, finite.num_micro_batches),
        device_span_bound=finite.bound
        if finite.objective is Objective.DEVICE_SPAN
        else device_span_bound(finite.placement, finite.num_micro_batches),
        queries=period.oracle.queries,
        seconds=time.monotonic() - period.oracle.began,
        tried=state.tried,
        reason=reason,
        sizes=state.counted_sizes,
        limits=state.limits,
        min_period=state.min_period,
        universal_bound=float(state.period_bound),
        strategies=tuple(each for each in period.oracle.work.values() if each.name in uses),
    )


def _without_period(result: SearchResult, finite: Finite, interrupted: bool) -> SearchResult:
    """Return the answer where only a whole schedule was asked for: its status, and no repetend."""
    status = result.status
    if result.schedule is not None:
        is_least = FINITE[finite.objective].value(result.schedule) <= finite.bound and not interrupted
        status = Status.OPTIMAL if is_least else Status.FEASIBLE
    return replace(result, status=status, repetend=None, tried=(), min_period=None)
