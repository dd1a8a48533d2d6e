"""Schedules as torch's tables and back, schedules without a table, and the loss of streams and modes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from modes_and_streams import communicated, offloaded, offloading, recomputed, recomputing
from one_line_errors import raises_line
from torch_tables import chain_schedules, gradients_of_one_process, gradients_of_torch, shipped, table

from placements import Block, Kind, Placement
from placements.forms.texts import write_json
from placements.shapes import k_shape, m_shape, v_shape, wave_shape, x_shape
from runtime.program.error_grid import UnsafeProgramsError
from runtime.torch_csv import main
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import NoTorchFormError, from_torch, in_loss_order, stage_of, torch_order
from runtime.torch_pipelining.receives import LATE, with_receives
from runtime.torch_pipelining.streams import COLUMNS, left_out, pairs_side_by_side, stream_table
from runtime.torch_pipelining.table import Op, parse_order, read_torch_csv
from schedsearch.baselines import HAND_MADE, gpipe, one_f_one_b
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.schedule_file import read_schedule, schedule_to_dict
from schedsearch.searches.search import search
from schedsearch.validate import validate


def computations(schedule: Schedule) -> list[list[tuple[str, int, int]]]:
    """Return each device's computations in order, as (kind, stage, micro-batch)."""
    stages, by_name = stage_of(schedule.placement), schedule.placement.by_name
    return [
        [(by_name[name].kind.value, stages[name], n) for name, n in schedule.order(device)]
        for device in range(schedule.placement.num_devices)
    ]


@given(chain_schedules())
@settings(deadline=None)
def test_any_schedule_of_a_chain_comes_back_in_the_same_order(schedule: Schedule) -> None:
    order = torch_order(schedule)
    assert check_order(parse_order(str(order))).num_micro_batches == schedule.num_micro_batches
    assert computations(from_torch(order)) == computations(in_loss_order(schedule))
    assert torch_order(from_torch(order)) == order


@given(chain_schedules())
@settings(deadline=None)
def test_micro_batches_are_renamed_and_nothing_else(schedule: Schedule) -> None:
    renamed = validate(in_loss_order(schedule))
    last = f"F{max(stage_of(schedule.placement).values())}"
    new = {
        old.micro_batch: renamed_last.micro_batch
        for old, renamed_last in zip(
            (b for b in schedule.blocks if b.block == last),
            (b for b in renamed.blocks if b.block == last),
            strict=True,
        )
    }
    assert {(b.start, new[b.micro_batch], b.block) for b in schedule.blocks} == set(renamed.blocks)
    assert [b.micro_batch for b in renamed.blocks if b.block == last] == list(
        range(schedule.num_micro_batches)
    )


@pytest.mark.parametrize("name", ["InterleavedZeroBubble", "DualPipeV"])
def test_what_torch_ships_becomes_a_schedule(name: str) -> None:
    order = table(shipped(name, 4, 8).pipeline_order)
    schedule = from_torch(order)
    split = {action.stage for _, action in order.actions() if action.op is Op.INPUT}
    expected = [
        [
            (letter, action.stage, action.micro_batch)
            for _, action in order.on(rank)
            for letter in ("IW" if action.op is Op.BACKWARD and action.stage in split else action.op)
        ]
        for rank in range(4)
    ]
    assert computations(schedule) == expected


REFUSED = {
    "block on several devices": (m_shape(2), "E runs on several devices and a stage of torch on one rank"),
    "two chains": (x_shape(2), "its stages are no chain: G1 takes the output of no other block"),
    "inference": (v_shape(2, inference=True), "F0 has no backward block"),
    "idle device": (
        Placement("idle", 2, (Block("F0", Kind.F, (0,), 1), Block("B0", Kind.B, (0,), 1, 0, ("F0",)))),
        "device 1 runs no block, and each rank of torch runs a stage",
    ),
    "left out": (offloading(), "a mode leaves O0 out and torch runs every stage; use search.export=streams"),
    "no way for a gradient": (
        Placement("cut", 1, (Block("F0", Kind.F, (0,), 1), Block("B1", Kind.B, (0,), 1))),
        "has no form in torch: B1: no forward block",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_placements_are_refused_with_the_reason_in_one_line(case: str) -> None:
    placement, reason = REFUSED[case]
    with raises_line(NoTorchFormError, f"{placement.name} has no form in torch", has=reason):
        stage_of(placement)


def test_optimizer_blocks_are_left_to_torchs_user() -> None:
    plain = v_shape(2)
    step = Block("O0", Kind.O, (0,), 2, 0, ("B0",))
    placement = Placement("with_step", 2, (*plain.blocks, step))
    order = [list(one_f_one_b(plain, 3).order(device)) for device in range(2)]
    assert torch_order(as_soon_as_possible(placement, 3, order)) == torch_order(one_f_one_b(plain, 3))


def permuted(schedule: Schedule) -> Schedule:
    """The schedule with its micro-batches in the opposite order, which torch would train wrongly."""
    last = schedule.num_micro_batches - 1
    orders: list[list[Instance]] = [
        [(name, last - n) for name, n in schedule.order(device)]
        for device in range(schedule.placement.num_devices)
    ]
    return as_soon_as_possible(schedule.placement, schedule.num_micro_batches, orders)


def arbitrary() -> Schedule:
    """Stages on devices in no order, two neighbours on one device, each second backward in halves."""
    blocks = []
    for i, device in enumerate((1, 0, 2, 2, 1, 0)):
        blocks.append(Block(f"F{i}", Kind.F, (device,), 1, 0, (f"F{i - 1}",) if i else ()))
    gradient: tuple[str, ...] = ()
    for i, device in reversed(list(enumerate((1, 0, 2, 2, 1, 0)))):
        kind = Kind.I if i % 2 else Kind.B
        blocks.append(Block(f"{kind}{i}", kind, (device,), 1, 0, (f"F{i}", *gradient)))
        gradient = (f"{kind}{i}",)
        if kind is Kind.I:
            blocks.append(Block(f"W{i}", Kind.W, (device,), 1, 0, (f"I{i}",)))
    return permuted(gpipe(Placement("arbitrary", 3, tuple(blocks)), 4))


def searched(placement: Placement, num_micro_batches: int) -> Schedule:
    schedule = search(placement, num_micro_batches, work_limit=2.5).schedule
    assert schedule is not None
    return schedule


RUN = {
    "1F1B backwards": lambda: permuted(one_f_one_b(v_shape(3), 4)),
    "V of two chunks, split": lambda: HAND_MADE["zb_v"](wave_shape(2, split_backward=True), 5),
    "searched": lambda: searched(wave_shape(2, split_backward=True).with_memory(4), 4),
    "any ranks": arbitrary,
}


@pytest.mark.parametrize("case", RUN)
@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
def test_torch_trains_as_one_process_does(case: str, form: str) -> None:
    """Its `_PipelineScheduleRuntime`, a process per rank, against the model in one piece, bit for bit."""
    order = torch_order(RUN[case]())
    given = order if form == "compute_only" else with_receives(order, LATE)
    theirs, ours = gradients_of_torch(given, form), gradients_of_one_process(order)
    for stage, (here, there) in enumerate(zip(theirs, ours, strict=True)):
        assert len(here) == len(there) == 2
        assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True)), stage
        assert all(float(a.abs().max()) > 0 for a in here)


def test_a_table_that_is_no_schedule_is_refused() -> None:
    with pytest.raises(UnsafeProgramsError, match="wait for each other"):
        from_torch(parse_order("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"))


def test_the_command_turns_either_file_into_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = one_f_one_b(v_shape(2), 3)
    saved = write_json(tmp_path / "schedule.json", schedule_to_dict(schedule))
    assert main([str(saved), str(tmp_path / "made.csv")]) == 0
    assert read_torch_csv(tmp_path / "made.csv") == torch_order(schedule)
    assert main([str(tmp_path / "made.csv"), str(tmp_path / "back.json")]) == 0
    back = read_schedule(tmp_path / "back.json")
    assert (back.placement.name, computations(back)) == ("made", computations(schedule))
    assert json.loads((tmp_path / "back.json").read_text())["proved"] == "not proved"
    assert capsys.readouterr() == ("", "")


def test_the_command_names_file_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = write_json(tmp_path / "wide.json", schedule_to_dict(gpipe(k_shape(2), 2)))
    broken = tmp_path / "broken.csv"
    broken.write_text("0F0\n")
    for source, message in (
        (wide, f"{wide}: k_shape has no form in torch, because J runs on several devices"),
        (broken, f"{broken}: device 0 never runs B0 of micro-batch 0"),
        (tmp_path / "gone.csv", f"{tmp_path}/gone.csv: cannot be read"),
        (tmp_path / "gone.json", f"{tmp_path}/gone.json: cannot be read"),
    ):
        assert main([str(source), str(tmp_path / "made")]) == 2
        error = capsys.readouterr().err
        assert error.startswith(message)
        assert error.count("\n") == 1
    good = write_json(tmp_path / "good.json", schedule_to_dict(one_f_one_b(v_shape(2), 2)))
    assert main([str(good), str(good / "under.csv")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main([str(good), str(tmp_path / "." / "good.json")]) == 2
    assert "is the file that is read; choose another path" in capsys.readouterr().err


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
        instance: float(start) for instance, start in schedule.start_of.items()
    }
    ends = {(row["block"], int(row["micro_batch"])): float(row["end_ms"]) for row in rows}
    assert ends == {instance: float(end) for instance, end in schedule.end_of.items()}
    streams: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        streams.setdefault((row["device"], row["stream"]), []).append(float(row["start_ms"]))
    assert all(starts == sorted(starts) for starts in streams.values())
    assert tuple(rows[0]) == COLUMNS
    assert "\n1,compute,J,0,,1.0,2.0\n" in stream_table(gpipe(k_shape(2), 1)), "once it was of device 0 twice"


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
    assert left_out(gpipe(v_shape(3), 4), torch_order(gpipe(v_shape(3), 4))) == ""
