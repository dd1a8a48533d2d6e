"""Receives that hold up collectives: found, and moved as far as the table stays safe."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch_tables import chain_schedules, gradients_of_torch, shipped

from experiments.benchmarks.others.torch_schedules import SHIPPED
from placements.forms.texts import write_json
from placements.shapes import v_shape, wave_shape
from runtime import check
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import main, torch_order
from runtime.torch_pipelining.lowering import UnsafeOrderError, with_transfers
from runtime.torch_pipelining.receives import (
    check_collectives,
    iteration_time,
    with_late_receives,
)
from runtime.torch_pipelining.table import TorchOrder, parse_order, read_torch_csv
from schedsearch.baselines import one_f_one_b, v_half
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict


def order_of(name: str, num_ranks: int, num_micro_batches: int) -> TorchOrder:
    rows = shipped(name, num_ranks, num_micro_batches).pipeline_order
    return parse_order("".join(",".join("" if a is None else str(a) for a in rows[r]) + "\n" for r in rows))


def interleaved() -> TorchOrder:
    """The order of torchtitan issue 2209: two ranks with two stages each."""
    return order_of("Interleaved1F1B", 2, 4)


def test_the_order_of_torchtitan_2209_is_refused_and_mended() -> None:
    """Rank 0 receives for stage 2 before it computes 0F1, whose all-to-all then waits for rank 1."""
    order = interleaved()
    check_order(order)
    with pytest.raises(
        UnsafeOrderError,
        match=r"takes 40 ticks and not 27 .* such as 2RECV_F0 on rank 0 a collective of 0F1, which does not",
    ):
        check_collectives(order)
    late = with_late_receives(order)
    check_collectives(late)
    assert check_order(late).reduces_gradients
    assert iteration_time(late, holds_up=True) == 27
    assert str(late).startswith("0UNSHARD,2UNSHARD,0F0,0SEND_F0,0F1,2RECV_F0,0SEND_F1,2F0,")


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_what_torch_ships_takes_no_longer_with_late_receives_than_if_nothing_were_held_up(
    name: str, num_ranks: int
) -> None:
    order = order_of(name, num_ranks, 2 * num_ranks)
    late, lowered = with_late_receives(order), with_transfers(order)
    check_collectives(late)
    proof = check_order(late)
    assert (proof.rank_of, proof.num_messages) == (
        check_order(order).rank_of,
        check_order(order).num_messages,
    )
    free = iteration_time(lowered, holds_up=False)
    assert iteration_time(late, holds_up=True) == iteration_time(late, holds_up=False) == free
    assert (iteration_time(lowered, holds_up=True) > free) == (name != "GPipe")


@settings(max_examples=40)
@given(chain_schedules())
def test_late_receives_keep_any_order_safe_and_make_it_no_longer(schedule: Schedule) -> None:
    order = torch_order(schedule)
    late, lowered = with_late_receives(order), with_transfers(order)
    check_order(late)
    times = [iteration_time(table, holds_up) for table in (late, lowered) for holds_up in (False, True)]
    assert times[0] == times[2] <= times[1] <= times[3] < math.inf
    assert with_late_receives(late) == late, "its own sends and receives are not kept"


def test_a_receive_that_waits_for_what_stands_behind_it_hangs() -> None:
    order = parse_order("2RECV_F0,0F0,0SEND_F0,2F0\n1RECV_F0,1F0,1SEND_F0\n")
    assert iteration_time(order, holds_up=False) == 3
    assert iteration_time(order, holds_up=True) == math.inf


def test_torch_trains_with_late_receives_as_with_its_own() -> None:
    for order in (interleaved(), torch_order(v_half(wave_shape(2, 2, split_backward=True), 4))):
        late = gradients_of_torch(with_late_receives(order), "compute_comms")
        own = gradients_of_torch(order, "compute_only")
        for there, here in zip(own, late, strict=True):
            assert all(torch.equal(*pair) for pair in zip(there, here, strict=True))


def test_the_commands_write_and_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = write_json(tmp_path / "schedule.json", schedule_to_dict(one_f_one_b(v_shape(4), 8)))
    plain, late = tmp_path / "plain.csv", tmp_path / "late.csv"
    assert main([str(saved), str(plain)]) == main([str(saved), str(late), "--receives", "late"]) == 0
    assert read_torch_csv(late) == with_late_receives(read_torch_csv(plain))
    assert check.main([str(plain)]) == 0
    assert check.main(["--collectives", str(plain)]) == 1
    said = capsys.readouterr().out
    assert "unsafe: an iteration takes 45 ticks and not 33" in said
    assert check.main(["--collectives", str(late)]) == 0
