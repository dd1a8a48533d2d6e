"""Tables of unequal micro-batches: the batch made from a placement, and wrong tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_line_errors import raises_line

from placements import Placement
from placements.shapes import v_shape
from schedsearch.metrics import peak_memory
from schedsearch.schedule import as_soon_as_possible
from schedsearch.unequal.micro_batches import (
    MicroBatchError,
    MicroBatchRow,
    count_micro_batches,
    read_micro_batches,
    unequal_batch,
)
from schedsearch.unequal.starts import executed, one_by_one
from schedsearch.validate import validate

V2 = v_shape(2, 1, 2).with_memory(3)


def rows(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "micro_batches.csv"
    path.write_text(text)
    return path


def test_each_micro_batch_has_its_own_times_and_others_are_as_in_the_placement(tmp_path: Path) -> None:
    path = rows("micro_batch,block,time_ms\n2,F0,4\n2,B1,7\n0,F0,3\n", tmp_path)
    batch = read_micro_batches(path, V2)
    assert batch.num_micro_batches == count_micro_batches(path) == 3
    times = [{b.name: b.time for b in batch.placement.as_run(modes).blocks} for modes in batch.chosen]
    assert times == [
        {"F0": 3, "F1": 1, "B1": 2, "B0": 2},
        {"F0": 1, "F1": 1, "B1": 2, "B0": 2},
        {"F0": 4, "F1": 1, "B1": 7, "B0": 2},
    ]
    schedule = executed(batch, one_by_one(batch), range(3))
    assert schedule.makespan == 8 + 6 + 14


def test_memory_may_differ_and_counts(tmp_path: Path) -> None:
    text = "micro_batch,block,time_ms,memory_mib\n1,F0,1,2\n1,B0,2,-2\n0,F1,1,\n"
    batch = read_micro_batches(rows(text, tmp_path), V2)
    orders = [[("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)], [("F1", 0), ("F1", 1), ("B1", 0), ("B1", 1)]]
    schedule = validate(as_soon_as_possible(batch.placement, 2, orders, batch.chosen))
    assert peak_memory(schedule).tolist() == [3, 2]


def test_equal_micro_batches_are_a_placement_with_these_times() -> None:
    table = [MicroBatchRow(n, name, 5.0) for n in range(4) for name in ("F0", "F1")]
    batch = unequal_batch(V2, table)
    assert batch.chosen == () and batch.placement.is_plain and batch.num_micro_batches == 4
    assert [batch.placement.by_name[name].time for name in ("F0", "F1", "B0")] == [5, 5, 2]


def test_ticks_become_shorter_where_times_are_no_whole_numbers_of_them() -> None:
    batch = unequal_batch(V2, [MicroBatchRow(0, "F0", 1.25), MicroBatchRow(1, "F0", 3.0)])
    assert batch.placement.tick_ms == 0.01
    assert [batch.placement.as_run(modes).by_name["F0"].time for modes in batch.chosen] == [125, 300]
    assert batch.placement.by_name["B0"].time == 200


def test_a_block_of_no_time_does_not_run() -> None:
    table = [MicroBatchRow(1, name, 0.0) for name in ("F1", "B1")]
    batch = unequal_batch(V2, table)
    assert list(batch.placement.as_run(batch.chosen[1]).by_name) == ["F0", "B0"]
    schedule = executed(batch, one_by_one(batch), range(2))
    assert schedule is not None and schedule.makespan == 6 + 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("micro_batch,block,time_ms\n0,F0,1\n0,F0,2\n", "line 3: micro_batch 0 block F0 is in line 2 too"),
        ("micro_batch,block,time_ms,memory_mib\n1,F0,1,2\n", "micro-batch 1: the memory of its blocks sums"),
    ],
)
def test_wrong_tables_are_refused_in_a_line(text: str, message: str, tmp_path: Path) -> None:
    path = rows(text, tmp_path)
    with raises_line(MicroBatchError, f"{path}: {message}"):
        read_micro_batches(path, V2, 4)


def test_the_unit_of_memory_must_be_known() -> None:
    table = [MicroBatchRow(0, "F0", 1.0, 2.0), MicroBatchRow(1, "F0", 2.0)]
    with pytest.raises(MicroBatchError, match="not in MiB"):
        unequal_batch(V2, table, unit_mib=None)


def test_placements_with_modes_are_refused() -> None:
    batch = unequal_batch(V2, [MicroBatchRow(1, "F0", 3.0)])
    again: Placement = batch.placement
    with pytest.raises(ValueError, match="a table of micro-batches"):
        unequal_batch(again, [MicroBatchRow(0, "F0", 3.0)])


RULES = "block,power,time_ms,memory_mib\n" + "".join(
    f"F{i},0,0.5,\nF{i},1,3,1.5\nI{i},1,2,0\nI{i},2,0.5,-0.4\nW{i},1,2,-1.5\nW{i},2,0,0.4\n" for i in (0, 1)
)


def test_rules_of_the_length_are_times_and_memory_in_whole_units(tmp_path: Path) -> None:
    path = rows("micro_batch,tokens\n1,3000\n0,500\n2,1000\n", tmp_path)
    (tmp_path / "rules.csv").write_text(RULES + "B0,1,9,\n")
    split = v_shape(2, 1, 2, split_backward=True).with_memory(20)
    batch = read_micro_batches(path, split, None, 1.0, tmp_path / "rules.csv")
    assert count_micro_batches(path) == 3
    runs = [batch.placement.as_run(modes).by_name for modes in batch.chosen]
    ms = batch.placement.ms
    assert [ms(run["F1"].time) for run in runs] == pytest.approx([2.0, 9.5, 3.5])
    assert [ms(run["I0"].time) for run in runs] == pytest.approx([1.125, 10.5, 2.5])
    # 0.75 and -0.1 and -0.65, 4.5 and -3.6 and -0.9, 1.5 and -0.4 and -1.1, of which nothing is left over
    memory = [[run[name].memory for name in ("F0", "I0", "W0")] for run in runs]
    assert memory == [[1, 0, -1], [4, -4, 0], [2, 0, -2]]


@pytest.mark.parametrize(
    ("lengths", "rules", "number", "message"),
    [
        ("1,5", RULES, None, "micro_batches.csv: has no row for micro-batch 0; number 1 from 0 on"),
        ("0,5", RULES, 2, "micro_batches.csv: has 1 lengths, and search.num_micro_batches is 2; leave that"),
        ("0,5", RULES.replace("W1", "W2"), None, "rules.csv: has no rule for block W1 of v_shape; add one"),
        ("0,5000", RULES.replace("W1,1,2,-1.5", "W1,1,2,"), None, "rules.csv: micro-batch 0: the memory of"),
    ],
)
def test_wrong_lengths_and_rules_are_refused(
    lengths: str, rules: str, number: int | None, message: str, tmp_path: Path
) -> None:
    path = rows(f"micro_batch,tokens\n{lengths}\n", tmp_path)
    given = tmp_path / "rules.csv"
    given.write_text(rules)
    with raises_line(MicroBatchError, f"{tmp_path}/{message}"):
        read_micro_batches(path, v_shape(2, 1, 2, split_backward=True), number, 1.0, given)


def test_rules_are_for_lengths(tmp_path: Path) -> None:
    path = rows("micro_batch,block,time_ms\n0,F0,1\n", tmp_path)
    (tmp_path / "rules.csv").write_text(RULES)
    with pytest.raises(MicroBatchError, match="has times, and search.length_rules is for lengths"):
        read_micro_batches(path, V2, None, 1.0, tmp_path / "rules.csv")
