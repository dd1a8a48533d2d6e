"""What torch's tables leave out of schedules with streams and modes, and the table that has it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from modes_and_streams import communicated, communicating, offloaded, offloading, recomputed, recomputing

from placements.shapes import v_shape
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import NoTorchFormError, in_loss_order, stage_of, torch_order
from runtime.torch_pipelining.streams import COLUMNS, left_out, pairs_side_by_side, stream_table
from schedsearch.baselines import gpipe
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import validate


def two_streams() -> Schedule:
    """Two stages on one device, the second of which runs on another stream: F1 of 1 beside B0 of 0."""
    whole = v_shape(2)
    blocks = [
        replace(block, devices=(0,), memory=0, stream="other" if block.name[1] == "1" else "compute")
        for block in whole.blocks
    ]
    placement = replace(whole, num_devices=1, blocks=tuple(blocks), memory=None)
    compute = [("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)]
    other = [("F1", 0), ("B1", 0), ("F1", 1), ("B1", 1)]
    return validate(as_soon_as_possible(placement, 2, [compute, other]))


@pytest.mark.parametrize("schedule", [recomputed(), communicated(), offloaded(1.5)])
def test_the_table_has_every_block_where_it_is(schedule: Schedule) -> None:
    rows = list(csv.DictReader(io.StringIO(stream_table(schedule))))
    assert {(row["block"], int(row["micro_batch"])): float(row["start_ms"]) for row in rows} == {
        each: float(start) for each, start in schedule.start_of.items()
    }
    ends = {(row["block"], int(row["micro_batch"])): float(row["end_ms"]) for row in rows}
    assert ends == {each: float(end) for each, end in schedule.end_of.items()}
    streams: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        streams.setdefault((row["device"], row["stream"]), []).append(float(row["start_ms"]))
    assert all(starts == sorted(starts) for starts in streams.values())
    assert tuple(rows[0]) == COLUMNS


def test_the_table_has_modes_where_something_is_decided() -> None:
    rows = list(csv.DictReader(io.StringIO(stream_table(offloaded()))))
    assert {(row["block"], row["stream"]): row["mode"] for row in rows} == {
        ("F0", "compute"): "",
        ("B0", "compute"): "",
        ("I0", "copy_in"): "offload",
        ("O0", "copy_out"): "offload",
    }


def test_a_forward_beside_a_backward_of_a_rank_is_one_cell() -> None:
    schedule = two_streams()
    order = torch_order(schedule)
    assert "(1F1;0B0)OVERLAP_F_B" in str(order)
    check_order(order)
    pairs = pairs_side_by_side(schedule)
    assert left_out(schedule, order) == (
        f"in torch's table, without streams and modes, {pairs - 1} of {pairs} pairs of blocks that run side "
        "by side do not"
    )


def test_modes_are_left_out_and_go_with_their_micro_batches() -> None:
    """The second micro-batch comes first, so that it is torch's first, and keeps its mode."""
    orders = [[("F0", 1), ("F0", 0), ("B0", 1), ("B0", 0)], [("F1", 1), ("B1", 1), ("F1", 0), ("B1", 0)]]
    schedule = as_soon_as_possible(recomputing(), 2, orders, ((0, 0), (1, 0)))
    renamed = validate(in_loss_order(schedule))
    assert renamed.chosen == ((1, 0), (0, 0)) and renamed.makespan == schedule.makespan
    assert left_out(schedule, torch_order(schedule)).endswith("modes, no block has its mode")


def test_a_plain_schedule_has_nothing_left_out() -> None:
    schedule = gpipe(v_shape(3), 4)
    assert left_out(schedule, torch_order(schedule)) == ""


def test_a_block_that_a_mode_leaves_out_has_no_form() -> None:
    with pytest.raises(NoTorchFormError, match="a mode leaves O0 out .* use search.export=streams"):
        stage_of(offloading())
    with pytest.raises(NoTorchFormError, match="torch differentiates all stages, and attention"):
        stage_of(communicating())
