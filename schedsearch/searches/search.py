"""The entry of all searches: one question and one answer, whatever the method and the micro-batches.

Methods have the names of the command line: ours, `schedsearch.procedures`, and two of `schedsearch.tessel`.
If micro-batches differ, `schedsearch.unequal` answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placements import Placement
from schedsearch.core.answer import Answer, SearchError, SearchReport
from schedsearch.core.problem import Problem, seconds_of
from schedsearch.procedures.orchestrator import solve
from schedsearch.schedule import require_plain
from schedsearch.unequal.unequal_search import solve_unequal

METHODS = ("modulo", "tessel", "time_optimal")
"""Methods of search, by the name that the command line uses."""


def search(
    placement: Placement | Problem,
    num_micro_batches: int | None = None,
    *,
    on_progress: SearchReport | None = None,
    **options: Any,
) -> Answer:
    """Search the repetend of least period under each device's memory, and unroll it.

    The period is searched from its bound up; every answer gets the least period of its order. One micro-batch
    per repetend comes first (Tessel searches no other); if it does not meet the bound, two and more are
    tried, and kept if they are better per micro-batch. Each later objective is minimised among repetends
    of that period, one after another. Then the whole schedule is shortened, in any of its parts; it
    begins with hand-made ones too, so that none is ever better. See `schedsearch.procedures`.

    Args:
        placement: As of `Problem`; or a problem, such as a batch of `schedsearch.unequal.micro_batches`.
        num_micro_batches: As of `Problem`, which has it if it is given one.
        on_progress: Called with the first schedule found, and after each query.
        options: The other fields of `Problem`, in place of those of one that is given.

    Raises:
        SearchError: An argument is out of its range, or `begin_with` is not for this placement.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    if isinstance(placement, Problem):
        return find(replace(placement, **options), on_progress)
    return find(Problem(placement, num_micro_batches, **options), on_progress)  # type: ignore[arg-type]


def find(request: Problem, on_progress: SearchReport | None = None) -> Answer:
    """Search a schedule by the request's method, and validate it.

    Args:
        request: The problem to search.
        on_progress: Called with each step of the search.

    Raises:
        SearchError: There is no such method, or it cannot do what is asked.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    if request.method not in METHODS:
        raise SearchError(f"search.method: {request.method!r} is not a method; use {' or '.join(METHODS)}")
    request.check()
    report = on_progress or (lambda _: None)
    if request.method == "modulo":
        return solve(request, report) if not request.chosen else solve_unequal(request, report)
    if request.chosen:
        raise SearchError(
            f"search.method: {request.method} knows no micro-batches that differ; use modulo, or leave "
            "search.micro_batches out"
        )
    return _tessels(request, report)


def _tessels(request: Problem, on_progress: SearchReport) -> Answer:
    """Search by one of Tessel's two methods, which support fewer options.

    Raises:
        SearchError: The request has an option that they do not support.
        PlacementError: The placement has modes or streams.
    """
    from schedsearch import tessel  # takes a second to load, and is rarely needed

    require_plain(request.placement, f"search.method={request.method}", "use search.method=modulo")
    num = request.micro_batches_per_repetend
    for name, is_asked, why in (
        ("begin_with", request.begin_with is not None, "begins with nothing; leave it out"),
        ("work_limit", request.work_limit is not None, "does not count its work; give search.time_limit_s"),
        ("micro_batches_per_repetend", num not in (None, 1), f"knows only 1, not {num}; leave it out"),
        ("workers", request.workers > 1, "searches in one process; leave it out"),
    ):
        if is_asked:
            raise SearchError(f"search.{name}: {request.method} {why} or use search.method=modulo")
    find_one = tessel.tessel if request.method == "tessel" else tessel.time_optimal
    return find_one(
        request.placement,
        request.num_micro_batches,
        time_limit_s=seconds_of(request.time_limit_s, None),
        seed=request.seed,
        on_progress=on_progress,
    )
