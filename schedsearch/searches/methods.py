"""Ways to search a schedule, by the name that the command line uses, with one question and one answer.

Ours, `schedsearch.modulo.search`, and the two of `schedsearch.tessel`. A method knows nothing of caches and
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from placements import Placement
from placements.placement_file import placement_to_dict
from schedsearch.modulo.result import SearchError, SearchProgress, SearchResult
from schedsearch.modulo.search import OBJECTIVES, search, seconds_of
from schedsearch.modulo.starting_point import BeginWith, plain_orders
from schedsearch.schedule import require_plain

SearchReport = Callable[[SearchProgress], None]
"""A listener that is told how far a search is."""


@dataclass(frozen=True)
class SearchRequest:
    """A question to a search: all that its answer depends on, but for the speed of the machine.

    Attributes:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches of the schedule.
        method: A key of `METHODS`.
        micro_batches_per_repetend: See `schedsearch.modulo.search.search`, as for the rest. Tessel's
            repetends have one, and its two methods make no use of the next three, nor of strategies.
        begin_with: A schedule or a result that the answer is to be no worse than; `modulo` alone takes one.
    """

    placement: Placement
    num_micro_batches: int
    method: str = "modulo"
    micro_batches_per_repetend: int | None = None
    max_micro_batches_per_repetend: int = 3
    objectives: tuple[str, ...] = OBJECTIVES
    solver: str = "portfolio"
    time_limit_s: float | None = None
    work_limit: float | None = None
    seed: int = 0
    begin_with: BeginWith | None = None
    strategies: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain data, the placement in its file form.

        Raises:
            SearchError: It begins with what is no schedule.
        """
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["objectives"] = [str(name) for name in self.objectives]
        data["begin_with"] = None if self.begin_with is None else plain_orders(self.begin_with)
        return data | {"placement": placement_to_dict(self.placement)}


def find(request: SearchRequest, on_progress: SearchReport | None = None) -> SearchResult:
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


def _modulo(request: SearchRequest, on_progress: SearchReport) -> SearchResult:
    return search(
        request.placement,
        request.num_micro_batches,
        micro_batches_per_repetend=request.micro_batches_per_repetend,
        max_micro_batches_per_repetend=request.max_micro_batches_per_repetend,
        objectives=request.objectives,
        solver=request.solver,
        time_limit_s=request.time_limit_s,
        work_limit=request.work_limit,
        seed=request.seed,
        begin_with=request.begin_with,
        strategies=request.strategies,
        without=request.without,
        on_progress=on_progress,
    )


def _tessels(request: SearchRequest, on_progress: SearchReport) -> SearchResult:
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


METHODS: Mapping[str, Callable[[SearchRequest, SearchReport], SearchResult]] = {
    "modulo": _modulo,
    "tessel": _tessels,
    "time_optimal": _tessels,
}
"""The searches by the name that the command line uses."""
