"""Ways to search a schedule, by the name that the command line uses, with one question and one answer.

Ours, `schedsearch.procedures.search`, and the two of `schedsearch.tessel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schedsearch.core.answer import Answer, SearchError, SearchReport
from schedsearch.core.problem import Problem, seconds_of
from schedsearch.procedures.search import solve
from schedsearch.schedule import require_plain


def find(request: Problem, on_progress: SearchReport | None = None) -> Answer:
    """Search a schedule by the method that the request names.

    Args:
        request: What to search.
        on_progress: Called with each step of the search.

    Returns:
        With a validated schedule, if there is one.

    Raises:
        SearchError: There is no such method, or it cannot do what is asked.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    if request.method not in METHODS:
        raise SearchError(f"search.method: {request.method!r} is not a method; use {' or '.join(METHODS)}")
    return METHODS[request.method](request, on_progress or (lambda _: None))


def _tessels(request: Problem, on_progress: SearchReport) -> Answer:
    """Search by one of Tessel's two methods, which know less of what may be asked.

    Raises:
        SearchError: The request asks for more.
        PlacementError: The placement has modes or streams.
    """
    from schedsearch import tessel  # takes a second to load, and is rarely needed

    require_plain(request.placement, f"search.method={request.method}", "use search.method=modulo")
    num = request.micro_batches_per_repetend
    for name, is_asked, why in (
        ("begin_with", request.begin_with is not None, "begins with nothing; leave it out"),
        ("work_limit", request.work_limit is not None, "does not count its work; give search.time_limit_s"),
        ("micro_batches_per_repetend", num not in (None, 1), f"knows only 1, not {num}; leave it out"),
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


METHODS: Mapping[str, Callable[[Problem, SearchReport], Answer]] = {
    "modulo": solve,
    "tessel": _tessels,
    "time_optimal": _tessels,
}
"""The searches by the name that the command line uses."""
