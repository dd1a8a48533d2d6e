"""Schedules side by side: each on its placement, with equal samples and memory, or a row with the reason."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from placements import Placement
from placements.stages.stage_chain import StageChain
from placements.stages.stage_file import stages_from_dict
from schedsearch.baselines import NEEDS
from schedsearch.comparison.compare import compare
from schedsearch.comparison.rows import DOES_NOT_FIT, NOT_APPLICABLE, Comparison
from schedsearch.core.answer import Answer, EndedBy, SearchError
from schedsearch.core.problem import Problem
from schedsearch.searches.search import find
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import validate

QUICK = {"work_limit": 2.5}


def chain(number: int = 4, **more: Any) -> StageChain:
    stage = {"forward_ms": 10.5, "backward_ms": 21, "activation_mib": 100, "weight_mib": 50}
    return stages_from_dict({"stages": [stage] * number, **more})


def by_name(comparison: Comparison) -> dict[str, Any]:
    return {row.schedule: row for row in comparison.rows}


def test_every_schedule_has_the_same_samples_and_its_own_placement() -> None:
    names = ["one_f_one_b", "interleaved_one_f_one_b", "zb_v", "dual_pipe", "chimera", "gpipe"]
    comparison = compare(chain(), names, 8)
    assert [row.schedule for row in comparison.rows] == names
    for row in comparison.rows:
        shape, split = NEEDS[row.schedule]
        schedule = validate(row.solution)
        assert row.placement == shape == schedule.placement.name
        pairs = 2 if shape == "x_shape" else 1
        assert schedule.num_micro_batches * pairs == 8
        work_ms = sum(schedule.placement.by_name[block].time for _, _, block in schedule.blocks)
        assert work_ms * schedule.placement.tick_ms == pytest.approx(8 * 4 * 31.5)
        assert row.bubble_rate == pytest.approx(1 - 8 * 31.5 / row.makespan_ms)
        assert row.makespan_bound_ms <= row.makespan_ms >= row.device_span_ms
        assert ("assumed to take 50%" in row.note) == split
    rows = by_name(comparison)
    # 1F1B of equal stages: (n + p - 1) micro-batches of 31.5 ms; in the steady state one more takes 31.5.
    assert (rows["one_f_one_b"].makespan_ms, rows["one_f_one_b"].period_ms) == (11 * 31.5, 31.5)
    assert rows["one_f_one_b"].proved == "makespan proved with whole backwards"
    assert rows["dual_pipe"].proved == "makespan proved"
    assert rows["one_f_one_b"].peak_memory_mib == 4 * 100 + 50
    assert rows["gpipe"].peak_memory_mib == 8 * 100 + 50
    assert rows["interleaved_one_f_one_b"].note == "each stage cut into 2 equal parts"
    assert "each device holds the weights of two stages" in rows["dual_pipe"].note


def test_energy_is_of_computing_and_waiting() -> None:
    """1F1B of 11 x 31.5 ms: each of 4 devices computes for 8 x 31.5 ms and waits for 3 x 31.5 ms."""
    power = {"running": 300, "blocking": 75}
    rows = by_name(compare(chain(power_w=power, memory_mib=500), ["one_f_one_b", "chimera", "gpipe"], 8))
    assert rows["one_f_one_b"].energy_j == pytest.approx(4 * (252 * 300 + 94.5 * 75) / 1000)
    waiting_ms = 4 * rows["chimera"].makespan_ms - 4 * 252
    assert rows["chimera"].energy_j == pytest.approx((4 * 252 * 300 + waiting_ms * 75) / 1000)
    assert (rows["gpipe"].proved, rows["gpipe"].energy_j) == (DOES_NOT_FIT, None)
    assert compare(chain(), ["one_f_one_b"], 8).rows[0].energy_j is None


def test_a_search_that_a_time_limit_cut_says_so() -> None:
    """The answer of a search that had no time left: a schedule that begins late, above the bound."""

    def cut(request: Problem, report: Any) -> Answer:
        answer = find(request, report)
        late = tuple(block._replace(start=block.start + 7) for block in answer.schedule.blocks)
        return replace(answer, schedule=replace(answer.schedule, blocks=late), ended_by=EndedBy.TIME_LIMIT)

    (row,) = compare(chain(2), ["searched@v_shape"], 4, answer=cut, **QUICK).rows
    assert row.note.endswith("; stopped by a time limit; another run may find a better one")


def test_one_shape_can_be_asked_for() -> None:
    rows = by_name(compare(chain(2), ["searched@x_shape", "searched@v_shape"], 4, **QUICK))
    assert {name: row.placement for name, row in rows.items()} == {
        "searched@x_shape": "x_shape",
        "searched@v_shape": "v_shape",
    }
    whole = {"forward_ms": 1, "backward_ms": 2}
    (row,) = compare(stages_from_dict({"stages": [whole] * 2}), ["searched@v_shape"], 4, **QUICK).rows
    assert row.makespan_ms == 13  # a device's 12 ms of work behind the first forward: only split
    assert {block.kind for block in row.solution.placement.blocks} == {"F", "I", "W"}


@pytest.mark.parametrize("more", [{"offload_ms": 4}, {}])
def test_what_the_search_finds_does_not_depend_on_what_it_is_beside(more: dict[str, float]) -> None:
    """With ZB-H1 in the list backwards were split, and a "proved" makespan of whole ones was beaten."""
    stage = {"forward_ms": 10, "backward_ms": 20, "activation_mib": 100}
    stages = stages_from_dict({"stages": [stage | more] * 2, "memory_mib": 250})
    searched = "searched@v_shape"
    tables = [
        by_name(compare(stages, names, 6, work_limit=0.2))
        for names in ([searched], [searched, "one_f_one_b"], ["zb_h1", searched, "gpipe"])
    ]
    alone, *others = (replace(rows[searched], search_seconds=None) for rows in tables)
    assert all(row == alone and row.solution == alone.solution for row in others)
    assert alone.makespan_ms <= tables[1]["one_f_one_b"].makespan_ms
    assert tables[1]["one_f_one_b"].proved == "makespan proved with whole backwards"
    assert alone.period_ms in (None, 30), "not that of a repetend that it does not follow"


@pytest.mark.parametrize(
    ("searched", "made"),
    [
        ("searched@v_shape", ["one_f_one_b", "zb_h1", "zb_h2", "gpipe"]),
        ("searched", ["zb_h1", "interleaved_one_f_one_b", "dual_pipe"]),
    ],
)
def test_no_schedule_made_by_hand_is_shorter_than_what_is_searched_even_without_time(
    searched: str, made: list[str]
) -> None:
    rows = by_name(compare(chain(memory_mib=950), [searched, *made], 8, time_limit_s=0.01))
    assert all(rows[name].solution is not None for name in made)
    assert rows[searched].makespan_ms <= min(rows[name].makespan_ms for name in made)


def test_a_message_counts_micro_batches_as_they_were_asked_for() -> None:
    """An X-shape runs pairs: DualPipe on four devices needs four pairs, which are eight micro-batches."""
    rows = by_name(compare(chain(memory_mib=199), ["dual_pipe", "interleaved_one_f_one_b"], 2))
    assert rows["dual_pipe"].note == (
        "schedule: DualPipe needs at least 8 micro-batches, not 2; raise search.num_micro_batches"
    )
    assert "at least 4 micro-batches, not 2" in rows["interleaved_one_f_one_b"].note
    (row,) = compare(chain(memory_mib=199), ["searched@x_shape"], 4).rows
    assert "even one pair of micro-batches needs" in row.note


def test_what_does_not_fit_or_apply_is_a_row_that_says_why() -> None:
    names = ["gpipe", "dual_pipe", "one_f_one_b_plus", "searched", "searched@x_shape"]
    rows = by_name(compare(chain(memory_mib=149), names, 5, **QUICK))
    assert rows["gpipe"].proved == DOES_NOT_FIT
    assert rows["gpipe"].note == "needs 550 MiB on device 0, which has 149 MiB"
    assert rows["dual_pipe"].proved == NOT_APPLICABLE
    assert rows["dual_pipe"].note.endswith("one in each direction; set search.num_micro_batches=6")
    assert rows["one_f_one_b_plus"].proved == NOT_APPLICABLE
    assert rows["searched"].proved == "infeasible"
    assert (
        "v_shape: even one micro-batch needs 150 MiB on device 0, which has 149 MiB" in rows["searched"].note
    )
    assert rows["searched@x_shape"].proved == "infeasible"
    for row in rows.values():
        assert row.solution is row.makespan_ms is row.bubble_rate is None
    (odd,) = compare(chain(3), ["chimera"], 4).rows
    assert (odd.proved, odd.makespan_ms) == (NOT_APPLICABLE, None)
    assert "an X-shape" in odd.note and "schedule=" not in odd.note


def test_a_limit_of_work_is_of_all_searches_together() -> None:
    shares, spent = [], []

    def counted(request: Problem, report: Any) -> Answer:
        result = replace(find(replace(request, work_limit=1.0), report), work=2.0, makespan_bound=1)
        shares.append(request.work_limit)
        spent.append(result.work)
        return result

    compare(chain(2), ["searched@v_shape", "gpipe", "searched@x_shape"], 4, answer=counted, work_limit=10.0)
    assert shares == [5.0, 8.0] and sum(spent) <= 10.0


def noted(folder: Path, request: Problem, report: Any) -> Answer:
    (folder / request.placement.name).write_text(f"{request.work_limit:g} for {request.workers}")
    return find(request, report)


def test_two_workers_search_two_shapes_each_with_the_whole_limit(tmp_path: Path) -> None:
    """A second run gives the same answer, and one worker's answer is no better."""
    names, shapes = ["one_f_one_b", "interleaved_one_f_one_b", "searched"], list[str]()

    def tell(row: str, on: Placement, event: object) -> None:
        shapes.append(on.name)

    options = {"answer": partial(noted, tmp_path), "on_progress": tell, "work_limit": 0.2}
    first, again = (compare(chain(), names, 6, workers=2, **options).rows[-1] for _ in range(2))
    assert first.solution == again.solution and sorted(shapes) == [
        "loop_shape",
        "loop_shape",
        "v_shape",
        "v_shape",
    ]
    assert [path.read_text() for path in tmp_path.iterdir()] == ["0.2 for 1"] * 2
    assert first.makespan_ms <= compare(chain(), names, 6, work_limit=0.2).rows[-1].makespan_ms
    compare(chain(), ["searched@v_shape"], 6, workers=2, **options)
    assert (tmp_path / "v_shape").read_text() == "0.2 for 2"


def test_ctrl_c_before_any_search_leaves_the_best_by_hand() -> None:
    with INTERRUPTS.answered():
        signal.raise_signal(signal.SIGINT)
        comparison = compare(chain(), ["gpipe", "one_f_one_b", "zb_v", "searched"], 8)
    times = {name: row.makespan_ms for name, row in by_name(comparison).items()}
    assert comparison.interrupted and times["searched"] == min(times.values())


def test_ctrl_c_ends_the_searches_and_keeps_the_rows() -> None:
    """The first search is interrupted once it has a schedule; no other begins: it has the best by hand."""
    asked = []

    def interrupted(request: Problem, report: Any) -> Answer:
        asked.append(request.placement.name)
        return replace(find(request, report), ended_by=EndedBy.INTERRUPT, makespan_bound=1)

    names = ["searched@v_shape", "gpipe", "searched@x_shape"]
    comparison = compare(chain(2), names, 4, answer=interrupted, **QUICK)
    rows = by_name(comparison)
    assert comparison.interrupted and asked == ["v_shape"]
    assert rows["searched@v_shape"].solution is not None and "interrupted" in rows["searched@v_shape"].note
    assert rows["gpipe"].solution is not None
    assert rows["searched@x_shape"].solution is not None and "interrupted" in rows["searched@x_shape"].note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["gpipe", "gpipe"], 4), "schedules: 'gpipe' is named twice; name each once"),
        (([], 4), "schedules: is empty; use some of searched, searched@v_shape,"),
        ((["gpipe"], 0), "search.num_micro_batches: 0 is not at least 1"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        compare(chain(), *arguments)


def test_slices_are_put_beside_whole_sequences() -> None:
    slices = {"num_slices": 4, "attention_share": 0.4, "kv_share": 0.1}
    comparison = compare(chain(memory_mib=400, sequence_slices=slices), ["one_f_one_b", "seq_one_f_one_b"], 4)
    rows = by_name(comparison)
    assert rows["one_f_one_b"].proved == DOES_NOT_FIT
    assert rows["seq_one_f_one_b"].placement == "v_shape in 4 slices"
    assert rows["seq_one_f_one_b"].peak_memory_mib < 50 + 2 * 100
    assert by_name(compare(chain(), ["seq_one_f_one_b"], 4))["seq_one_f_one_b"].note.startswith(
        "sequence_slices: has no"
    )
