"""A search that ends by counted work has one answer: on one core and on two, alone and on a busy machine."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from placements import Placement
from placements.shapes import loop_shape, nn_shape, v_shape, wave_shape
from schedsearch.core.answer import Answer, EndedBy, SearchError
from schedsearch.core.problem import Problem
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.searches.search import find, search

CASES: list[tuple[Placement, int]] = [
    (v_shape(6, 3, 7).with_memory(4), 9),
    (wave_shape(4, 3, 5, split_backward=True).with_memory(7), 8),
    (loop_shape(8, 2, 5).with_memory(11), 16),
    (nn_shape(6, 2, 5).with_memory(9), 8),
]


def answers() -> list[str]:
    """Return each case's answer and proof, as text that differs where two answers differ."""
    results = [search(placement, number, work_limit=0.25) for placement, number in CASES]
    return [_in_text(result) for result in results]


def _in_text(result: Answer) -> str:
    assert result.schedule is not None
    schedule = hashlib.sha256(str(schedule_to_dict(result.schedule)).encode()).hexdigest()[:12]
    bounds = result.period_bound, result.makespan_bound, result.device_span_bound
    return f"{schedule} {result.schedule.makespan} {bounds} {result.queries} {result.ended_by}"


ON_ONE_CORE = "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])\n"


def _on_a_busy_core() -> list[str]:
    """Return the answers of a process that has one core, which another process uses too."""
    here = Path(__file__)
    program = (
        f"{ON_ONE_CORE}import sys; sys.path.insert(0, {str(here.parent)!r})\n"
        f"from {here.stem} import answers; print(*answers(), sep='\\n')"
    )
    with subprocess.Popen([sys.executable, "-c", f"{ON_ONE_CORE}while True: pass"]) as other:
        try:
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        finally:
            other.kill()
    return done.stdout.splitlines()


def test_the_answer_is_that_of_any_machine() -> None:
    alone = answers()
    assert any(text.endswith(EndedBy.WORK_LIMIT) for text in alone), "the limit ends some of them"
    assert _on_a_busy_core() == alone


def test_a_time_limit_beside_it_ends_the_search_too() -> None:
    result = search(v_shape(12, 7, 13).with_memory(5), 30, work_limit=1e6, time_limit_s=1.0)
    assert result.schedule is not None and result.ended_by in (EndedBy.TIME_LIMIT, EndedBy.PROOF)


def test_limits_that_cannot_be() -> None:
    with pytest.raises(SearchError, match="^search.work_limit: 0 is not a positive number of units of work"):
        search(v_shape(2), 2, work_limit=0)
    with pytest.raises(SearchError, match="^search.work_limit: tessel does not count its work"):
        find(Problem(v_shape(2), 2, method="tessel", work_limit=1.0))
