"""Torch's tables: read as torch reads them; shipped tables pass, and every broken table is found."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining.schedules import _Action, get_schedule_class
from torch_tables import (
    StandIn,
    chain_schedules,
    gradients_of_one_process,
    gradients_of_torch,
    shipped,
    table,
    with_transfers,
)

from experiments.benchmarks.others.torch_schedules import SHIPPED
from placements.shapes import loop_shape, v_shape, wave_shape
from runtime.program.error_grid import UnsafeProgramsError
from runtime.torch_pipelining.check import check_order, proof_of
from runtime.torch_pipelining.csv import torch_order
from runtime.torch_pipelining.receives import LATE, with_receives
from runtime.torch_pipelining.table import (
    Action,
    Op,
    Overlap,
    TorchCell,
    TorchCsvError,
    TorchOrder,
    parse_cell,
    parse_order,
    read_torch_csv,
)
from schedsearch.baselines import HAND_MADE, one_f_one_b
from schedsearch.schedule import Schedule


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_what_torch_ships_is_safe_even_if_everything_blocks(name: str, num_ranks: int) -> None:
    schedule = shipped(name, num_ranks, 2 * num_ranks)
    ours = check_order(table(schedule.pipeline_order))
    lowered = check_order(table(schedule.pipeline_order_with_comms))
    assert (ours.placement, ours.channels) == (lowered.placement, lowered.channels)
    assert [len(program) for program in ours.instructions] == list(map(len, lowered.instructions))
    assert lowered.num_micro_batches == 2 * num_ranks


@pytest.mark.parametrize("name", [name for name, stages in SHIPPED.items() if stages > 1])
def test_deferred_receives_of_torch_mix_up_messages_or_wait_in_a_cycle(name: str) -> None:
    """torch 2.13 trains silently on the wrong data with these; `defer_pp_recv` sorts receives, not sends."""
    order = table(shipped(name, 2, 4, defer=True).pipeline_order_with_comms)
    fault = r"^device \d sends .* which there receives |^devices wait for each other in a cycle: "
    with pytest.raises(UnsafeProgramsError, match=fault):
        check_order(order)
    check_order(with_receives(order, LATE))


ONE = with_transfers(torch_order(one_f_one_b(v_shape(3), 4)))
LOOP = with_transfers(torch_order(HAND_MADE["interleaved_one_f_one_b"](loop_shape(2), 4)))
WAVE = with_transfers(torch_order(HAND_MADE["zb_v"](wave_shape(2, split_backward=True), 4)))

AHEAD = parse_order(
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
    "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
)
"""A rank receives before it needs to."""


def at(order: TorchOrder, text: str) -> tuple[int, int]:
    return next(position for position, action in order.actions() if str(action) == text)


def changed(order: TorchOrder, rank: int, index: int, *instead: str) -> TorchOrder:
    rows = [list(row) for row in order.cells]
    rows[rank][index : index + 1] = [parse_cell(text) for text in instead]
    return TorchOrder(tuple(map(tuple, rows)))


def swapped(order: TorchOrder, first: str, second: str) -> TorchOrder:
    there, here = at(order, first), at(order, second)
    return changed(changed(order, *there, second), *here, first)


def replaced(order: TorchOrder, text: str, *instead: str) -> TorchOrder:
    return changed(order, *at(order, text), *instead)


BROKEN = {
    "receives swapped": swapped(AHEAD, "1RECV_F0", "1RECV_F1"),
    "receive lost": replaced(ONE, "1RECV_F2"),
    "send lost": replaced(ONE, "2SEND_B1"),
    "send twice": replaced(ONE, "0SEND_F2", "0SEND_F2", "0SEND_F2"),
    "message lost": replaced(replaced(ONE, "1RECV_F2"), "0SEND_F2"),
    "send of the next micro-batch": replaced(ONE, "0SEND_F2", "0SEND_F3"),
    "run of the next micro-batch": replaced(ONE, "1F2", "1F3"),
    "run past the last micro-batch": replaced(ONE, "1F3", "1F4"),
    "run lost": replaced(ONE, "1B3"),
    "send before its computation": swapped(ONE, "0F2", "0SEND_F2"),
    "computation before its receive": swapped(ONE, "1F1", "1RECV_F1"),
    "backward before forward": swapped(ONE, "2F1", "2B1"),
    "weights before input": swapped(WAVE, "1I0", "1W0"),
    "half lost": replaced(WAVE, "1W2"),
    "whole and half": replaced(WAVE, "1I2", "1B2"),
    "stage on two ranks": parse_order("0F0,0B0\n1F0,1B0,0F1,0B1\n"),
    "losses out of order": parse_order("0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n"),
    "computations wait in a cycle": parse_order("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
    "computations wait in a cycle, with messages": parse_order(
        "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"
    ),
    "neighbours on one rank in the wrong order": parse_order("1F0,0F0,1B0,0B0\n"),
    "sent within a rank": parse_order("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n"),
    "sent by another rank": replaced(replaced(ONE, "0SEND_F2"), "2F2", "2F2", "0SEND_F2"),
    "a bubble beside messages": replaced(ONE, "1F1", "", "1F1"),
    "a rank without a stage": parse_order("0F0,0B0\n\n"),
    "a stage left out": parse_order("0F0,0B0\n2F0,2B0\n"),
    "a micro-batch left out": parse_order("0F0,0F2,0B0,0B2\n"),
    "weights not fetched": parse_order("0UNSHARD,0F0,0RESHARD,0B0\n"),
    "weights fetched twice": parse_order("0UNSHARD,0F0,0UNSHARD,0B0,0RESHARD\n"),
    "weights dropped twice": parse_order("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n"),
    "gradient ended too early": parse_order("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n"),
    "gradient ended twice": parse_order("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"),
    "gradient of one stage not ended": parse_order("0F0,1F0,1B0,0B0,0REDUCE_GRAD\n"),
}
"""Each is refused with the text of ``tests/golden/unsafe_torch_tables.txt``."""


def test_errors_show_the_table_around_the_fault(golden: Callable[[str, str], None]) -> None:
    texts = []
    for case, order in BROKEN.items():
        with pytest.raises(UnsafeProgramsError) as error:
            check_order(order)
        texts.append(f"# {case}\n{error.value}\n")
    golden("unsafe_torch_tables.txt", "\n".join(texts))


@given(chain_schedules(), st.data())
def test_the_verdict_is_that_of_a_naive_run(schedule: Schedule, data: st.DataObject) -> None:
    """Some cells are moved; then a table passes just where a run step by step ends with the right data."""
    rows = [list(row) for row in with_transfers(torch_order(schedule)).cells]
    for _ in range(data.draw(st.integers(0, 3))):
        row = data.draw(st.sampled_from(rows))
        row.insert(data.draw(st.integers(0, len(row) - 1)), row.pop(data.draw(st.integers(0, len(row) - 1))))
    order = TorchOrder(tuple(map(tuple, rows)))
    try:
        check_order(order)
        is_safe = True
    except UnsafeProgramsError as error:
        if re.search(r"last stage|'run [WBI]\d+ .* before it runs|orders of the devices", str(error)):
            return  # torch's losses, and computations of one rank: nothing that a run waits for
        is_safe = False
    assert is_safe is finishes(order)


def finishes(order: TorchOrder) -> bool:
    """Tell, slowly, whether all ranks end if transfers block, and each computation gets its own data."""
    ranks = range(len(order.cells))
    rank_of, last = order.rank_of, max(order.rank_of)
    left = [deque(action for _, action in order.on(rank)) for rank in ranks]
    waiting: dict[int, tuple[str, int, int, object]] = {}
    there: list[dict[object, object]] = [{} for _ in ranks]
    made: list[set[object]] = [set() for _ in ranks]

    def step(rank: int) -> bool:
        if not left[rank] or rank in waiting:
            return False
        stage, op, n = action = left[rank][0]
        if op.is_compute:
            letter, edge = ("F", 0) if op is Op.FORWARD else ("B", last)
            if op is not Op.WEIGHT:
                taken = (letter, stage - 1 if letter == "F" else stage + 1, n)
                if stage != edge and there[rank].get(taken) != taken and taken not in made[rank]:
                    return False
                made[rank].add((letter, stage, n))
        else:
            peer = stage + (1 if op in (Op.SEND_F, Op.RECV_B) else -1)
            letter = "F" if op in (Op.SEND_F, Op.RECV_F) else "B"
            if op.is_send and (letter, stage, n) not in made[rank]:
                return False
            content = (letter, stage if op.is_send else peer, n)
            ends = (rank, rank_of[peer]) if op.is_send else (rank_of[peer], rank)
            waiting[rank] = ("send" if action.op.is_send else "receive", *ends, content)
        left[rank].popleft()
        return True

    def move() -> bool:
        for rank, (what, source, target, content) in waiting.items():
            other = waiting.get(target, ("",) * 4)
            if what == "send" and other[:3] == ("receive", source, target):
                there[target][other[3]] = content
                del waiting[rank], waiting[target]
                return True
        return False

    while any(step(rank) for rank in ranks) or move():
        pass
    delivered = all(slot == content for received in there for slot, content in received.items())
    return not any(left) and not waiting and delivered


def test_torch_accepts_and_mistrains_what_is_refused() -> None:
    """The defects are torch's, not ours: it runs these tables without an error, with wrong gradients."""
    losses = parse_order("0F1,0F0,0B1,0B0\n1F1,1F0,1B1,1B0\n")
    for order, form in ((losses, "compute_only"), (swapped(AHEAD, "1RECV_F0", "1RECV_F1"), "compute_comms")):
        with pytest.raises(UnsafeProgramsError):
            check_order(order)
        assert largest_error(order, form) > 1e-3
    check_order(AHEAD)
    assert largest_error(AHEAD, "compute_comms") == 0


def largest_error(order: TorchOrder, form: str) -> float:
    """Of torch's gradients, against one process."""
    stages = zip(gradients_of_torch(order, form), gradients_of_one_process(order), strict=True)
    return max(float((a - b).abs().max()) for x, y in stages for a, b in zip(x, y, strict=True))


def test_gradients_that_are_never_ended_are_said_to_be_too_large() -> None:
    rows = (tuple(cell for cell in row if not str(cell).endswith("REDUCE_GRAD")) for row in AHEAD.cells)
    order = TorchOrder(tuple(rows))
    assert "no REDUCE_GRAD: gradients are not divided" in proof_of(order)
    assert "REDUCE_GRAD" not in proof_of(AHEAD)
    theirs, ours = gradients_of_torch(order, "compute_comms"), gradients_of_one_process(order)
    assert all(
        torch.allclose(a, 2 * b) for x, y in zip(theirs, ours, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_the_order_that_torch_shows_for_1f1b_is_broken() -> None:
    """Where it begins the steady state without a warmup, it counts from 1. It runs another one, by hand."""
    stage = StandIn(0, 2, 2)
    order = get_schedule_class("1F1B")(stage, 4, loss_fn=torch.nn.functional.mse_loss)._get_pipeline_order()
    rows = {rank: [a for a in row if a is None or a.is_compute_op] for rank, row in order.items()}
    with pytest.raises(UnsafeProgramsError, match="^device 1 runs F1 of micro-batch 4, which is none of its"):
        check_order(table(rows))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("form", ["compute_only", "compute_comms"])
def test_what_torch_dumps_comes_back_as_it_was(name: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    schedule = shipped(name, 4, 8)
    schedule._dump_csv(str(path), format=form)
    order = read_torch_csv(path)
    assert str(order) == path.read_text().replace("\r\n", "\n")
    assert order.has_transfers is (form == "compute_comms")
    assert order.rank_of == schedule.stage_index_to_group_rank


numbers = st.integers(0, 200)
computations = st.builds(Action, numbers, st.sampled_from([op for op in Op if op.is_compute]), numbers)
transfers = (Op.SEND_F, Op.SEND_B, Op.RECV_F, Op.RECV_B)
others = st.builds(Action, numbers, st.sampled_from(transfers), numbers)
of_stage = st.builds(Action, numbers, st.sampled_from([op for op in Op if op.is_of_stage]), st.none())
overlaps = st.lists(computations, min_size=1, max_size=3).map(lambda actions: Overlap(tuple(actions)))


@given(computations | others | of_stage | overlaps)
def test_every_cell_is_read_as_torch_reads_it(cell: TorchCell) -> None:
    assert parse_cell(str(cell)) == cell
    assert str(_Action.from_str(str(cell))) == str(cell)


MISREAD = {
    "0F0@1410": "'0F0@1410' is read by torch as '0F0', without '@1410'; take that out",
    "1FREQ0": "'1FREQ0' is read by torch as '1F', without 'REQ0'; take that out",
    "0F3 # late": "'0F3 # late' is read by torch as '0F3', without ' # late'; take that out",
    "F0": "'F0' is no action; write such as 0F3",
    "0X1": "'0X1' is no action",
    "rank": "'rank' is no action",
    "2F": "'2F' names no micro-batch; write such as 2F0",
    "0UNSHARD1": "'0UNSHARD1' is of a stage as a whole; write 0UNSHARD",
    "(0F1;1B0)": "'(0F1;1B0)' is no overlap; write such as (0F1;3B0)OVERLAP_F_B",
    "(0F1;1SEND_B0)OVERLAP_F_B": "'(0F1;1SEND_B0)OVERLAP_F_B' overlaps more than computations",
    "()OVERLAP_F_B": "'()OVERLAP_F_B' overlaps more than computations",
}


@pytest.mark.parametrize("text", MISREAD)
def test_a_wrong_cell_is_refused_with_its_place_and_the_remedy(text: str, tmp_path: Path) -> None:
    path = tmp_path / "order.csv"
    path.write_text(f"0F0,0B0\n1F0,{text},1B0\n")
    with pytest.raises(TorchCsvError, match=re.escape(f"{path}: row 2 (rank 1), cell 2: {MISREAD[text]}")):
        read_torch_csv(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no computation in any cell"),
        ("0UNSHARD,0RESHARD\n", "has no computation in any cell"),
        ('0F0,"0B0\n', "line 1: is not CSV"),
    ],
)
def test_a_file_without_a_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(TorchCsvError, match=f"^{message}"):
        parse_order(text)
