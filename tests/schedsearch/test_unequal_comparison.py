"""Comparisons of micro-batches that differ: each schedule in several orders, none shorter than the search."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from one_line_errors import raises_line
from oracles import valid_schedules

from placements.stages.stage_file import stages_of
from schedsearch.comparison.compare import compare
from schedsearch.comparison.rows import DOES_NOT_FIT, NOT_APPLICABLE
from schedsearch.comparison.unequal import UnequalModel, read_chains
from schedsearch.unequal.micro_batches import MicroBatchError
from schedsearch.validate import validate

STAGES = stages_of(2, forward_ms=10, backward_ms=20, activation_mib=100, memory_mib=600)
NAMES = ["searched", "one_f_one_b", "interleaved_one_f_one_b", "zb_v", "dual_pipe"]


def table(tmp_path: Path, scales: list[float]) -> Path:
    """Return a file of micro-batches that take multiples of the stages' times and memory."""
    path = tmp_path / "table.csv"
    lines = [
        f"{n},F{i},{10 * scale},{100 * scale}\n{n},B{i},{20 * scale},{-100 * scale}\n"
        for n, scale in enumerate(scales)
        for i in (0, 1)
    ]
    path.write_text("micro_batch,block,time_ms,memory_mib\n" + "".join(lines))
    return path


def test_each_schedule_stands_in_three_orders_beside_the_search(tmp_path: Path) -> None:
    chains = read_chains(STAGES, table(tmp_path, [1, 3, 0.5, 2]))
    comparison = compare(STAGES, NAMES, 4, micro_batches=UnequalModel(chains), work_limit=1)
    rows = {row.schedule: row for row in comparison.rows}
    orders = ("as given", "short first", "long first")
    assert list(rows) == [
        "searched",
        *(f"{name}, {how}" for name in NAMES[1:4] for how in orders),
        "dual_pipe",
    ]
    assert rows["dual_pipe"].proved == NOT_APPLICABLE
    best = rows["searched"].makespan_ms
    assert best is not None
    for row in comparison.rows[1:-1]:
        assert row.solution is not None and row.makespan_ms is not None and row.makespan_bound_ms is not None
        assert validate(row.solution) and row.makespan_bound_ms <= row.makespan_ms and best <= row.makespan_ms
        assert row.peak_memory_mib is not None and row.peak_memory_mib <= 600
    # B1 of the second ends at 130 ms, its B0 at 190, and F0, F1, B1 and B0 of the last follow.
    assert rows["one_f_one_b, as given"].makespan_ms == 190 + 2 * 20 + 2 * 40


def test_what_needs_too_much_memory_does_not_fit(tmp_path: Path) -> None:
    chains = read_chains(STAGES, table(tmp_path, [1, 3, 0.5, 2]))
    comparison = compare(STAGES, ["gpipe", "one_f_one_b"], 4, micro_batches=UnequalModel(chains))
    rows = {row.schedule: row for row in comparison.rows}
    assert rows["gpipe, as given"].proved == DOES_NOT_FIT
    assert rows["gpipe, as given"].note.startswith("needs 650 MiB on device 0, which has 600 MiB")


@pytest.mark.parametrize("scales", [[1, 3], [2, 0.5]])
def test_the_search_is_the_least_of_all_orders(scales: list[float], tmp_path: Path) -> None:
    chains = read_chains(STAGES, table(tmp_path, scales))
    row = compare(
        STAGES, ["searched", "one_f_one_b"], 2, micro_batches=UnequalModel(chains), work_limit=2
    ).rows[0]
    placement, chosen = row.solution.placement, row.solution.chosen
    # Of both micro-batches a device runs F, I and W in this order, one among the other.
    mixes = [[int(i in ones) for i in range(6)] for ones in itertools.combinations(range(6), 3)]
    orders = (
        [[(f"{'FIW'[mix[:i].count(n)]}{d}", n) for i, n in enumerate(mix)] for d, mix in enumerate(both)]
        for both in itertools.product(mixes, repeat=2)
    )
    valid = valid_schedules(placement, 2, orders, chosen)
    assert row.solution.makespan == min(schedule.makespan for schedule in valid)


def test_halves_of_a_backward_are_of_the_file_or_as_in_the_stages(tmp_path: Path) -> None:
    halves = stages_of(2, forward_ms=10, input_gradient_ms=5, weight_gradient_ms=15, activation_mib=100)
    whole = read_chains(halves, table(tmp_path, [1, 2]))
    assert [float(chain.pieces[0].input_gradient_ms or 0) for chain in whole] == [5, 10]
    path = tmp_path / "halves.csv"
    path.write_text("micro_batch,block,time_ms\n0,I1,8\n1,W1,2\n")
    split = read_chains(halves, path)
    assert [float(chain.pieces[1].input_gradient_ms or 0) for chain in split] == [8, 5]
    assert [float(chain.pieces[1].backward_ms) for chain in split] == [23, 7]


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text("micro_batch,block,time_ms\n0,F7,8\n")
    with raises_line(MicroBatchError, match=r"wrong.csv: line 2, column block: F7 is not a block of v_shape"):
        read_chains(STAGES, path)
    path.write_text("micro_batch,block,time_ms\n0,F0,0\n0,B0,0\n1,F0,1\n")
    with pytest.raises(MicroBatchError, match=r"wrong.csv: block B0 of micro-batch 0 does not run; give it"):
        read_chains(STAGES, path)


def test_replicas_stand_in_each_assignment_beside_the_search(tmp_path: Path) -> None:
    chains = read_chains(STAGES, table(tmp_path, [1, 3, 0.5, 2, 1]))
    model = UnequalModel(chains, replicas=2, max_micro_batches=3)
    comparison = compare(STAGES, ["searched", "one_f_one_b"], 5, micro_batches=model, work_limit=1)
    rows = {row.schedule: row for row in comparison.rows}
    ways = ("round robin", "blocks", "sorted", "balanced", "balanced, equal numbers")
    assert list(rows) == ["searched", *(f"one_f_one_b, {how}" for how in ways)]
    best = rows["searched"]
    assert best.makespan_ms is not None and best.makespan_bound_ms is not None
    assert best.makespan_ms >= best.makespan_bound_ms
    for row in comparison.rows:
        assert row.solution is not None and validate(row.solution).num_micro_batches <= 3
        assert row.makespan_ms is not None and row.makespan_ms >= best.makespan_ms
    # Micro-batches 0, 1, 2 alone: B1 of the second ends at 130 ms, its B0 at 190, and the third's B0 at 200.
    assert rows["one_f_one_b, blocks"].makespan_ms == 200
