"""Receives of torch's tables: where torch puts them or later, always safe, and delays by pending ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from torch_tables import chain_schedules, shipped, table, with_transfers

from experiments.benchmarks.others.torch_schedules import SHIPPED
from placements.forms.texts import write_json
from placements.shapes import loop_shape
from runtime.program.error_grid import UnsafeProgramsError
from runtime.torch_csv import main
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import from_torch, times_of, torch_order
from runtime.torch_pipelining.receives import EAGER, LATE, with_receives
from runtime.torch_pipelining.table import Action, Op, TorchOrder, parse_order, read_torch_csv
from runtime.torch_pipelining.waits import Queue, play_table
from schedsearch.baselines import HAND_MADE
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_eager_receives_are_those_of_torch_and_late_ones_hold_up_less(name: str, num_ranks: int) -> None:
    theirs = shipped(name, num_ranks, 2 * num_ranks)
    eager = with_receives(table(theirs.pipeline_order))
    assert eager == table(theirs.pipeline_order_with_comms)
    check_order(late := with_receives(eager, LATE))
    assert play_table(late, Queue.COMPUTATIONS)[0] <= play_table(eager, Queue.COMPUTATIONS)[0]


@given(chain_schedules(), st.integers(0, 4))
def test_any_table_is_safe_with_receives_at_any_distance(schedule: Schedule, ahead: int) -> None:
    order = torch_order(schedule)
    made = with_receives(order, ahead)
    check_order(made)
    assert with_receives(made, EAGER) == with_receives(order)
    assert from_torch(made) == from_torch(order)


@settings(max_examples=30)
@given(chain_schedules(), st.sampled_from([EAGER, LATE]), st.data())
def test_times_are_those_of_a_run_tick_by_tick(schedule: Schedule, ahead: float, data: st.DataObject) -> None:
    order = with_receives(torch_order(schedule), ahead)
    times = {action: data.draw(st.integers(1, 3)) for _, action in order.actions() if action.op.is_compute}
    times |= {action: data.draw(st.integers(0, 2)) for _, action in order.actions() if action.op.is_send}
    for queue in Queue:
        assert play_table(order, queue, times)[0] == tick_by_tick(order, queue, times)


def tick_by_tick(order: TorchOrder, queue: Queue, times: dict[Action, int]) -> int:
    """Return the end of an iteration, slowly: at each tick, whatever can begin begins."""

    def waits(action: Action, earlier: Action) -> bool:
        """Whether an action has its turn after an earlier one of its rank."""
        both, computes = (action, earlier), action.op.is_compute
        fetches = computes and earlier == Action(action.stage, Op.UNSHARD)
        if earlier.op.is_compute or earlier.op is Op.REDUCE_GRAD or fetches:
            return True
        if any(a.op is Op.RESHARD for a in both) or (computes and queue is not Queue.COMPUTATIONS):
            return False
        messages = [a for a in both if not (a.op.is_compute or a.op.is_of_stage)]
        peers = {order.rank_of[a.other_end.stage] if a in messages else None for a in both}
        return queue is not Queue.PAIR or len(peers) == 1

    rows = [[action for _, action in order.on(rank)] for rank in range(len(order.cells))]
    place = {action: (rank, i) for rank, row in enumerate(rows) for i, action in enumerate(row)}
    left: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for rank, row in enumerate(rows):
        for i, action in enumerate(row):
            left[rank, i] = {(rank, j) for j in range(i) if waits(action, row[j])}
            left[rank, i] |= {place[taken] for taken in [action.taken] if taken in place}
    end: dict[tuple[int, int], int] = {}
    tick = 0
    while left:
        done = {cell for cell, at in end.items() if at <= tick}
        ready = [cell for cell, needed in left.items() if needed <= done]
        for cell in ready:
            del left[cell]
            end[cell] = tick + times.get(rows[cell[0]][cell[1]], 0)
        tick += not any(end[cell] == tick for cell in ready)
    return max(end.values())


@pytest.mark.parametrize("name", ["Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"])
def test_the_guide_says_what_is_held_up(name: str) -> None:
    order = table(shipped(name, 8, 16).pipeline_order)
    eager, late = (play_table(with_receives(order, when), Queue.COMPUTATIONS)[0] for when in (EAGER, LATE))
    row = f"| {name} | {play_table(with_receives(order), Queue.PAIR)[0]:.0f} | {eager:.0f} | {late:.0f} |"
    assert row in (ROOT / "docs/concepts/torch_hangs.md").read_text()


def test_the_command_writes_receives_and_their_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = HAND_MADE["interleaved_one_f_one_b"](loop_shape(2), 4)
    saved, made = write_json(tmp_path / "s.json", schedule_to_dict(schedule)), tmp_path / "made.csv"
    for when in ("late", "0"):
        assert main([str(saved), str(made), "--receives", when]) == 0
        assert read_torch_csv(made) == with_receives(torch_order(schedule), LATE)
        time, _ = play_table(read_torch_csv(made), Queue.PAIR, times_of(schedule))
        assert time == schedule.placement.ms(schedule.makespan)
        assert capsys.readouterr().out.startswith(f"{made}: {time:.6g} ms, ")
    assert main([str(made), str(tmp_path / "again.csv"), "--receives", "eager"]) == 0
    assert read_torch_csv(tmp_path / "again.csv") == with_receives(torch_order(schedule))
    assert main([str(made), str(tmp_path / "back.json"), "--receives", "late"]) == 2
    assert "back.json: a schedule has no receives; name a CSV, or leave out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([str(saved), str(made), "--receives", "soon"])
    assert "'soon' is not eager, late or a number of actions" in capsys.readouterr().err


def test_overlapping_computations_that_need_their_own_results_are_refused() -> None:
    """Torch's lowering fails on them too."""
    order = parse_order("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n")
    with pytest.raises(UnsafeProgramsError, match=r"cycle: rank 0 at \(0F1;0B0\)OVERLAP_F_B, rank 1 at 1F1$"):
        check_order(order)
    with pytest.raises(AssertionError, match="Malformed compute schedule"):
        with_transfers(order)
