"""Every method gives the same form of answer, valid, with bounds that none of them beats."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import placements as random_placements

from placements import Block, Kind, Placement
from placements.forms.texts import write_json
from placements.shapes import v_shape
from schedsearch.core.answer import SearchError, SearchProgress, Status
from schedsearch.core.problem import Problem
from schedsearch.proof.memory_need import CapacityError
from schedsearch.schedule_file import read_schedule, schedule_to_dict
from schedsearch.searches.search import METHODS, find
from schedsearch.validate import validate


def request(placement: Placement, number: int, method: str, **more: object) -> Problem:
    """Ask for a search; the methods of Tessel count no work, and end these by themselves."""
    limit = {"work_limit": 5.0} if method == "modulo" else {"time_limit_s": 60.0}
    return Problem(placement, number, method=method, **limit, **more)


def with_step(placement: Placement) -> Placement:
    """The placement with an optimizer step on each device, which needs memory while it runs."""
    last = [block.name for block in placement.blocks if block.kind is Kind.B]
    steps = tuple(
        Block(f"O{d}", Kind.O, (d,), 2, after=(last[-1 - d],), transient=1)
        for d in range(placement.num_devices)
    )
    return replace(placement, blocks=placement.blocks + steps)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("placement", [v_shape(2), with_step(v_shape(2))], ids=["plain", "optimizer"])
def test_each_answer_is_whole(method: str, placement: Placement, tmp_path: Path) -> None:
    events: list[SearchProgress] = []
    asked = request(placement.with_memory(2), 4, method)
    result = find(asked, events.append)
    assert result.schedule is not None
    if method == "time_optimal" and placement.optimizer_blocks:  # proved optimal without them only
        assert result.status in (Status.OPTIMAL, Status.FEASIBLE)
    else:
        assert result.status is Status.OPTIMAL
    assert validate(result.schedule).placement == asked.placement
    assert result.schedule.num_micro_batches == 4
    assert result.makespan_bound <= result.schedule.makespan
    assert (result.repetend is None) == (method == "time_optimal")
    if result.repetend is not None:
        assert (result.repetend.period, result.period_bound) == (4, 4.0)
    assert events
    assert events[-1].best is not None
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(result.schedule, result))
    assert read_schedule(path) == result.schedule


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_placements(max_devices=2, max_forward=2, max_time=3, training=True))
def test_no_method_beats_the_bound_of_another(placement: Placement) -> None:
    results = {method: find(request(placement, 3, method)) for method in METHODS}
    periods = [
        result.repetend.period_per_micro_batch for result in results.values() if result.repetend is not None
    ]
    makespans = [result.schedule.makespan for result in results.values() if result.schedule is not None]
    assert len(makespans) == 3
    for result in results.values():
        assert result.makespan_bound <= min(makespans)
    ours = results["modulo"]
    assert ours.period_bound <= min(periods)
    assert results["tessel"].period_bound <= min(periods)
    if results["time_optimal"].status is Status.OPTIMAL:
        assert results["time_optimal"].schedule.makespan == min(makespans)


@pytest.mark.parametrize("method", ["tessel", "time_optimal"])
def test_what_tessel_does_not_know_is_refused_by_name(method: str) -> None:
    placement = v_shape(2).with_memory(3)
    transient = replace(placement, blocks=(replace(placement.blocks[0], transient=1), *placement.blocks[1:]))
    with pytest.raises(SearchError, match=rf"^search.method: {method} .* block F0 .*search.method=modulo$"):
        find(request(transient, 4, method))
    with pytest.raises(
        SearchError, match=rf"^search.micro_batches_per_repetend: {method} knows only 1, not 2; .*modulo$"
    ):
        find(request(placement, 4, method, micro_batches_per_repetend=2))
    with pytest.raises(CapacityError, match=r"memory\[0\]: 0 is too small"):
        find(request(placement.with_memory(0), 4, method))


def test_an_unknown_method() -> None:
    with pytest.raises(SearchError, match="search.method: 'tesel' is not a method; use modulo or tessel or"):
        find(request(v_shape(2), 4, "tesel"))


def test_tessel_is_loaded_only_when_it_is_asked() -> None:
    code = "import sys, experiments.search.task; sys.exit('schedsearch.tessel' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
