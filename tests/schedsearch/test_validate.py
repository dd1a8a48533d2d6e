from dataclasses import replace

import pytest

from placements import Block, Kind, Placement
from placements.modes import Choice, Decision
from placements.shapes import v_shape
from placements.streams import SharedStream
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.validate import InvalidScheduleError, validate


def moved(schedule: Schedule, block: str, micro_batch: int, start: int) -> Schedule:
    blocks = (
        ScheduledBlock(start, micro_batch, block) if (b.block, b.micro_batch) == (block, micro_batch) else b
        for b in schedule.blocks
    )
    return replace(schedule, blocks=tuple(blocks))


def test_accepts_what_is_valid() -> None:
    validate(one_f_one_b(v_shape().with_memory(4), 6))


def test_too_early_shows_the_grid() -> None:
    schedule = moved(gpipe(v_shape(2, backward_time=2), 1), "F1", 0, 0)
    with pytest.raises(InvalidScheduleError) as error:
        validate(schedule)
    lines = str(error.value).splitlines()
    assert lines[0] == "F1 of micro-batch 0 starts at 0, before F0 ends at 1"
    assert lines[2].startswith("1 | [F1]")


BY_HAND = gpipe(v_shape(2), 1)
WITH_TRANSFER = gpipe(replace(v_shape(2), transfer=(("F0", "F1", 2),)), 1)


def with_blocks(*blocks: tuple[int, int, str]) -> Schedule:
    return replace(BY_HAND, blocks=tuple(ScheduledBlock(*block) for block in blocks))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (moved(WITH_TRANSFER, "F1", 0, 2), "F1 .* starts at 2, before F0 ends at 1 and arrives at 3"),
        (
            moved(gpipe(v_shape(2), 2), "F0", 1, 0),
            "starts at 0 on device 0, where F0 of micro-batch 0 runs until 1",
        ),
        (gpipe(v_shape(2).with_memory(1), 3), "device 0 holds 2 of memory from 1 on"),
        (with_blocks(*BY_HAND.blocks[1:]), "F0 of micro-batch 0 never runs"),
        (with_blocks(*BY_HAND.blocks, BY_HAND.blocks[0]), "F0 of micro-batch 0 runs twice"),
        (with_blocks(*BY_HAND.blocks, (0, 9, "F0")), "F0 of micro-batch 9 is not of this"),
        (with_blocks(*BY_HAND.blocks, (0, 0, "F7")), "F7 of micro-batch 0 is not of this"),
        (moved(BY_HAND, "F0", 0, -1), "starts at -1, before 0"),
    ],
)
def test_a_broken_rule_is_named(schedule: Schedule, message: str) -> None:
    with pytest.raises(InvalidScheduleError, match=message):
        validate(schedule)


def test_every_device_of_a_block_is_looked_at() -> None:
    """J runs on both devices; only on the second it meets another block."""
    placement = Placement("wide", 2, (Block("F", Kind.F, (1,), 2), Block("J", Kind.F, (0, 1), 1)))
    with pytest.raises(InvalidScheduleError, match="on device 1, where"):
        validate(Schedule(placement, 1, (ScheduledBlock(0, 0, "F"), ScheduledBlock(1, 0, "J"))))
    tight = Placement(
        "tight",
        2,
        (Block("J", Kind.F, (0, 1), 1, 2), Block("K", Kind.B, (0, 1), 1, -2, ("J",))),
        memory=(2, 1),
    )
    with pytest.raises(InvalidScheduleError, match="device 1 holds 2"):
        validate(Schedule(tight, 1, (ScheduledBlock(0, 0, "J"), ScheduledBlock(1, 0, "K"))))


def uneven() -> Placement:
    """A takes memory on device 0 and none on device 1; B releases it there and allocates on device 1."""
    blocks = (
        Block("A", Kind.F, (0, 1), 1, (2, 0)),
        Block("B", Kind.F, (1, 0), 1, (1, -2), ("A",)),
        Block("C", Kind.B, (1,), 1, -1, ("B",)),
    )
    return Placement("uneven", 2, blocks)


def test_memory_is_counted_by_device() -> None:
    together = tuple(ScheduledBlock(i, n, name) for i, (name, n) in enumerate([("A", 0), ("A", 1)]))
    rest = [("B", 0), ("B", 1), ("C", 0), ("C", 1)]
    blocks = together + tuple(ScheduledBlock(2 + i, n, name) for i, (name, n) in enumerate(rest))
    schedule = Schedule(uneven(), 2, blocks)
    assert peak_memory(validate(schedule)).tolist() == [4, 2]
    validate(replace(schedule, placement=uneven().with_memory([4, 2])))
    with pytest.raises(InvalidScheduleError, match="device 0 holds 4 of memory from 1 on, when A of micro-"):
        validate(replace(schedule, placement=uneven().with_memory([3, 2])))
    with pytest.raises(InvalidScheduleError, match="device 1 holds 2 of memory from 3 on, when B of micro-"):
        validate(replace(schedule, placement=uneven().with_memory([4, 1])))


def test_a_stream_that_devices_share_runs_one_block_at_a_time() -> None:
    blocks = (
        Block("F0", Kind.F, (0,), 2),
        Block("S0", Kind.F, (0,), 3, after=("F0",), stream="copy_out"),
        Block("F1", Kind.F, (1,), 2),
        Block("S1", Kind.F, (1,), 3, after=("F1",), stream="copy_out"),
    )
    shared = (SharedStream("copy_out", (0, 1)),)
    placement = Placement("shared", 2, blocks, shared_streams=shared)
    starts = {"F0": 0, "F1": 0, "S0": 2, "S1": 4}
    at_once = tuple(ScheduledBlock(start, 0, name) for name, start in starts.items())
    assert validate(Schedule(replace(placement, shared_streams=()), 1, at_once)).makespan == 7
    with pytest.raises(InvalidScheduleError, match="on the stream copy_out of devices 0, 1, where S0"):
        validate(Schedule(placement, 1, at_once))
    in_turn = as_soon_as_possible(placement, 1, [[("F0", 0)], [("F1", 0)], [("S1", 0), ("S0", 0)]])
    assert validate(in_turn).makespan == 8


def test_the_longest_way_through_blocks_that_do_not_run_counts() -> None:
    left_out = tuple(Block(name, Kind.F, (1,), 1, after=("A",)) for name in "XY")
    none = Choice("none", tuple(replace(block, time=0) for block in left_out))
    placement = Placement(
        "ways",
        2,
        (Block("A", Kind.F, (0,), 1), *left_out, Block("D", Kind.F, (1,), 1, after=("X", "Y"))),
        transfer=(("A", "X", 5),),
        decisions=(Decision((Choice("run"), none)),),
    )
    in_time = Schedule(placement, 1, (ScheduledBlock(0, 0, "A"), ScheduledBlock(6, 0, "D")), ((1,),))
    assert validate(in_time).makespan == 7
    with pytest.raises(InvalidScheduleError, match="starts at 5, before A ends at 1 and arrives at 6"):
        validate(moved(in_time, "D", 0, 5))
