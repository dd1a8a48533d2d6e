"""The list of passes, and the way through them to a plainer problem and back."""

from __future__ import annotations

from collections.abc import Callable

from schedsearch.core.answer import SearchReport, SearchResult
from schedsearch.core.problem import Problem
from schedsearch.passes import slow_streams, streams
from schedsearch.passes.passed import Pass, Passed

PASSES: tuple[Pass, ...] = (slow_streams.lower, streams.lower)
"""In the order in which a problem goes through them; its answer comes back in the contrary one.

Modes are chosen while the search goes on, see `schedsearch.procedures.modes` and
`schedsearch.procedures.whole`; optimizer blocks are put behind each schedule as it is made.
"""


def lower(problem: Problem, on_progress: SearchReport) -> Passed:
    """Return the problem behind all passes."""
    passed = Passed(problem, on_progress, lambda found: found)
    for each in PASSES:
        further = each(passed.problem, passed.on_progress)
        if further is not None:
            passed = further._replace(lift=_both(further.lift, passed.lift))
    return passed


def _both(
    first: Callable[[SearchResult], SearchResult], then: Callable[[SearchResult], SearchResult]
) -> Callable[[SearchResult], SearchResult]:
    return lambda found: then(first(found))
