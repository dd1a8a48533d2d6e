"""The proof of torch's tables: what torch ships passes, its defects and every broken table are found."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.schedules import get_schedule_class
from torch_tables import (
    StandIn,
    chain_schedules,
    gradients_of_one_process,
    gradients_of_torch,
    shipped,
)

from experiments.benchmarks.others.torch_schedules import SHIPPED
from placements.shapes import loop_shape, v_shape, wave_shape
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import torch_order
from runtime.torch_pipelining.lowering import UnsafeOrderError, with_transfers
from runtime.torch_pipelining.table import Action, Op, TorchOrder, parse_cell, parse_order
from runtime.torch_pipelining.waits import TransferWaiting
from schedsearch.baselines import HAND_MADE, one_f_one_b
from schedsearch.schedule import Schedule


def table(rows: dict[int, list[object]]) -> TorchOrder:
    """A table of torch's own actions."""
    return parse_order("".join(",".join("" if a is None else str(a) for a in rows[r]) + "\n" for r in rows))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_what_torch_ships_is_safe_even_if_everything_blocks(name: str, num_ranks: int) -> None:
    schedule = shipped(name, num_ranks, 2 * num_ranks)
    ours = check_order(table(schedule.pipeline_order))
    lowered = check_order(table(schedule.pipeline_order_with_comms))
    assert ours.waiting is lowered.waiting is TransferWaiting.BLOCKING
    assert replace(ours, has_transfers=True) == lowered
    assert lowered.num_micro_batches == 2 * num_ranks
    assert lowered.num_messages == sum(
        "SEND" in str(a) for row in schedule.pipeline_order_with_comms.values() for a in row
    )


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_sends_and_receives_are_put_where_torch_puts_them(name: str, num_ranks: int) -> None:
    """Into the computations alone; torch adds cells for sharded weights before, which take turns too."""
    schedule = shipped(name, num_ranks, 2 * num_ranks)
    rank_of = schedule.stage_index_to_group_rank
    rows = {rank: [a for a in row if a is not None] for rank, row in schedule.pipeline_order.items()}
    expected = torch_schedules._add_send_recv(rows, lambda stage: rank_of[stage], len(rank_of))
    assert with_transfers(table(schedule.pipeline_order)) == table(expected)


@pytest.mark.parametrize(
    ("name", "num_ranks", "mismatches"),
    [
        ("ZBVZeroBubble", 2, 2),
        ("ZBVZeroBubble", 4, 9),
        ("ZBVZeroBubble", 8, 35),
        ("DualPipeV", 4, 5),
        ("DualPipeV", 8, 27),
        ("InterleavedZeroBubble", 2, 4),
    ],
)
def test_deferred_receives_of_torch_mix_up_messages(name: str, num_ranks: int, mismatches: int) -> None:
    """torch 2.13 trains silently on the wrong data with these; `defer_pp_recv` sorts receives, not sends."""
    order = table(shipped(name, num_ranks, 2 * num_ranks, defer=True).pipeline_order_with_comms)
    with pytest.raises(UnsafeOrderError, match=rf"data would be mixed up \({mismatches} such messages\)"):
        check_order(order)


@pytest.mark.parametrize("name", ["Interleaved1F1B", "LoopedBFS"])
def test_other_deferred_receives_keep_the_order_but_need_a_queue_for_each_direction(name: str) -> None:
    order = table(shipped(name, 2, 4, defer=True).pipeline_order_with_comms)
    with pytest.raises(
        UnsafeOrderError,
        match=r"^messages wait for each other in a cycle: .*; it finishes only if .* as under gloo",
    ):
        check_order(order)


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
    "receives swapped": (
        swapped(AHEAD, "1RECV_F0", "1RECV_F1"),
        "message 1 from rank 0 to rank 1 is 0SEND_F0, but there 1RECV_F1 takes it: messages have no tags, so "
        "data would be mixed up (2 such messages); receive in the order of the sends",
    ),
    "receive lost": (replaced(ONE, "1RECV_F2"), "rank 1 lacks 1RECV_F2, but rank 0 has 0SEND_F2"),
    "send lost": (replaced(ONE, "2SEND_B1"), "rank 2 lacks 2SEND_B1, but rank 1 has 1RECV_B1"),
    "send twice": (replaced(ONE, "0SEND_F2", "0SEND_F2", "0SEND_F2"), "rank 0 has 0SEND_F2 twice"),
    "message lost": (replaced(replaced(ONE, "1RECV_F2"), "0SEND_F2"), "rank 0 lacks 0SEND_F2"),
    "send of the next micro-batch": (replaced(ONE, "0SEND_F2", "0SEND_F3"), "rank 0 has 0SEND_F3 twice"),
    "run of the next micro-batch": (replaced(ONE, "1F2", "1F3"), "rank 1 runs 1F3 twice"),
    "run past the last micro-batch": (
        replaced(ONE, "1F3", "1F4"),
        "rank 1 runs 1F4, but the stages run 4 micro-batches forward: number these from 0 on",
    ),
    "run lost": (replaced(ONE, "1B3"), "rank 1 never runs 1B3"),
    "send before its computation": (swapped(ONE, "0F2", "0SEND_F2"), "rank 0 has 0SEND_F2 before 0F2"),
    "computation before its receive": (swapped(ONE, "1F1", "1RECV_F1"), "rank 1 has 1F1 before 1RECV_F1"),
    "backward before forward": (swapped(ONE, "2F1", "2B1"), "rank 2 runs 2B1 before 2F1"),
    "weights before input": (swapped(WAVE, "1I0", "1W0"), "rank 1 runs 1W0 before 1I0"),
    "half lost": (replaced(WAVE, "1W2"), "rank 1 never runs 1W2"),
    "whole and half": (
        replaced(WAVE, "1I2", "1B2"),
        "rank 1 runs 1B2 whole and 1W2 as a half; tables of older torch wrote B for the input half: write I",
    ),
    "stage on two ranks": (
        parse_order("0F0,0B0\n1F0,1B0,0F1,0B1\n"),
        "rank 1 runs 0F1, but stage 0 is on rank 0; torch keeps each stage on one rank",
    ),
    "losses out of order": (
        parse_order("0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n"),
        "rank 1 runs 1F1 of the last stage before 1F0: torch would silently take one micro-batch's loss for "
        "another's; rename the micro-batches in all rows, so that 1F0, 1F1, ... come in this order",
    ),
    "computations wait in a cycle": (
        parse_order("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
        "ranks wait for each other in a cycle: rank 0 at 0B0 waits for stage 1's backward of micro-batch 0; "
        "rank 1 at 1F1 waits for stage 0's F of micro-batch 1",
    ),
    "computations wait in a cycle, with messages": (
        parse_order(
            "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"
        ),
        "messages wait for each other in a cycle: 1SEND_B0, 0SEND_F1; it hangs under any backend",
    ),
    "neighbours on one rank in the wrong order": (
        parse_order("1F0,0F0,1B0,0B0\n"),
        "rank 0 has 1F0 before 0F0, whose result it takes",
    ),
    "sent within a rank": (
        parse_order("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n"),
        "rank 0 has 0SEND_F0, which nothing needs there",
    ),
    "sent by another rank": (
        replaced(replaced(ONE, "0SEND_F2"), "2F2", "2F2", "0SEND_F2"),
        "rank 2 has 0SEND_F2, which nothing needs there",
    ),
    "a bubble beside messages": (
        replaced(ONE, "1F1", "", "1F1"),
        "rank 1 has an empty cell, which torch refuses beside sends and receives; delete it",
    ),
    "a rank without a stage": (
        parse_order("0F0,0B0\n\n"),
        "rank 1 (row 2) runs no stage; delete the row or give it one",
    ),
    "a stage left out": (parse_order("0F0,0B0\n2F0,2B0\n"), "stage 1 never runs, but stage 2 does"),
    "a micro-batch left out": (
        parse_order("0F0,0F2,0B0,0B2\n"),
        "rank 0 runs 0F2, but the stages run 2 micro-batches forward: number these from 0 on",
    ),
    "weights not fetched": (
        parse_order("0UNSHARD,0F0,0RESHARD,0B0\n"),
        "rank 0 runs 0B0 while its weights are not fetched",
    ),
    "weights fetched twice": (
        parse_order("0UNSHARD,0F0,0UNSHARD,0B0,0RESHARD\n"),
        "rank 0 has 0UNSHARD, but the stage's weights are already fetched",
    ),
    "weights dropped twice": (
        parse_order("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD\n"),
        "rank 0 has 0RESHARD, but the stage's weights are not fetched",
    ),
    "gradient ended too early": (
        parse_order("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n"),
        "rank 0 has 0B1 after 0REDUCE_GRAD",
    ),
    "gradient ended twice": (
        parse_order("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"),
        "rank 0 has 0REDUCE_GRAD after 0REDUCE_GRAD",
    ),
    "gradient of one stage not ended": (
        parse_order("0F0,1F0,1B0,0B0,0REDUCE_GRAD\n"),
        "rank 0 lacks 1REDUCE_GRAD, which other stages have",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_tables_are_refused_by_name(case: str) -> None:
    order, message = BROKEN[case]
    with pytest.raises(UnsafeOrderError) as error:
        check_order(order)
    first, *grid = str(error.value).splitlines()
    assert first == message
    if case not in ("a rank without a stage", "gradient of one stage not ended"):
        assert "[" in "".join(grid)


def test_errors_show_the_table_around_the_fault(golden: Callable[[str, str], None]) -> None:
    texts = []
    for case, (order, _) in BROKEN.items():
        with pytest.raises(UnsafeOrderError) as error:
            check_order(order)
        texts.append(f"# {case}\n{error.value}\n")
    golden("unsafe_torch_tables.txt", "\n".join(texts))


def test_unbroken_tables_pass() -> None:
    assert all(check_order(order).waiting is TransferWaiting.BLOCKING for order in (ONE, LOOP, WAVE))


@given(chain_schedules(), st.data())
@settings(deadline=None)
def test_no_cell_can_be_lost_doubled_or_of_another_micro_batch(
    schedule: Schedule, data: st.DataObject
) -> None:
    order = with_transfers(torch_order(schedule))
    rank = data.draw(st.integers(0, len(order.cells) - 1))
    index = data.draw(st.integers(0, len(order.cells[rank]) - 1))
    cell = order.cells[rank][index]
    assert isinstance(cell, Action) and cell.micro_batch is not None
    later = str(cell._replace(micro_batch=cell.micro_batch + 1))
    for instead in ([], [str(cell)] * 2, [later]):
        with pytest.raises(UnsafeOrderError):
            check_order(changed(order, rank, index, *instead))


@given(chain_schedules(), st.data())
@settings(deadline=None, max_examples=150)
def test_the_verdict_is_that_of_a_naive_run(schedule: Schedule, data: st.DataObject) -> None:
    """Some cells are moved; then a table passes just where a run step by step ends with the right data."""
    rows = [list(row) for row in with_transfers(torch_order(schedule)).cells]
    for _ in range(data.draw(st.integers(0, 3))):
        row = data.draw(st.sampled_from(rows))
        row.insert(data.draw(st.integers(0, len(row) - 1)), row.pop(data.draw(st.integers(0, len(row) - 1))))
    order = TorchOrder(tuple(map(tuple, rows)))
    try:
        found: TransferWaiting | None = check_order(order).waiting
    except UnsafeOrderError as error:
        if "last stage" in str(error) or re.search(r" runs \S+ before ", str(error)):
            return  # torch's losses, and halves: nothing that a run waits for
        found = TransferWaiting.CHANNEL_QUEUE if "it finishes" in str(error) else None
    assert found is next((waiting for waiting in TransferWaiting if finishes(order, waiting)), None)


def finishes(order: TorchOrder, waiting: TransferWaiting) -> bool:
    """Tell, slowly, whether all ranks end and each computation gets the data that it should."""
    ranks = range(len(order.cells))
    rank_of, last = order.rank_of, max(order.rank_of)
    left = [deque(action for _, action in order.on(rank)) for rank in ranks]
    queues: dict[tuple[int, Hashable], deque[tuple[str, int, int, object]]] = defaultdict(deque)
    there: list[dict[object, object]] = [{} for _ in ranks]
    made: list[set[object]] = [set() for _ in ranks]

    def peer(action: Action) -> int:
        forward = action.op in (Op.SEND_F, Op.RECV_B)
        return rank_of[action.stage + (1 if forward else -1)]

    def lane(rank: int, source: int, target: int) -> tuple[int, Hashable]:
        if waiting is TransferWaiting.PAIR_QUEUE:
            return rank, frozenset((source, target))
        return rank, (source, target) if waiting is TransferWaiting.CHANNEL_QUEUE else "all"

    def step(rank: int) -> bool:
        if not left[rank]:
            return False
        stage, op, n = action = left[rank][0]
        if op.is_send or op.is_receive:
            if waiting is TransferWaiting.BLOCKING and any(
                queue for (where, _), queue in queues.items() if where == rank
            ):
                return False
            if op.is_send:
                content: object = ("F" if op is Op.SEND_F else "B", stage, n)
                if content not in made[rank]:
                    return False
                queues[lane(rank, rank, peer(action))].append(("send", rank, peer(action), content))
            else:
                slot = ("F" if op is Op.RECV_F else "B", stage - 1 if op is Op.RECV_F else stage + 1, n)
                queues[lane(rank, peer(action), rank)].append(("receive", peer(action), rank, slot))
        else:
            if waiting is TransferWaiting.BLOCKING and any(
                queue for (where, _), queue in queues.items() if where == rank
            ):
                return False
            letter = "F" if op is Op.FORWARD else "B"
            if op is not Op.WEIGHT:
                edge = stage == 0 if letter == "F" else stage == last
                taken = (letter, stage - 1 if letter == "F" else stage + 1, n)
                if not edge and there[rank].get(taken) != taken and taken not in made[rank]:
                    return False
                made[rank].add((letter, stage, n))
        left[rank].popleft()
        return True

    def move() -> bool:
        for source in ranks:
            for target in ranks:
                out, into = queues[lane(source, source, target)], queues[lane(target, source, target)]
                if (
                    source != target
                    and out
                    and into
                    and out[0][:3] == ("send", source, target)
                    and into[0][:3] == ("receive", source, target)
                ):
                    content = out.popleft()[3]
                    there[target][into.popleft()[3]] = content
                    return True
        return False

    while any(step(rank) for rank in ranks) or move():
        pass
    delivered = all(slot == content for received in there for slot, content in received.items())
    return not any(left) and not any(queues.values()) and delivered


def test_torch_accepts_and_mistrains_what_is_refused() -> None:
    """The defects are torch's, not ours: it runs these tables without an error, with wrong gradients."""
    losses = parse_order("0F1,0F0,0B1,0B0\n1F1,1F0,1B1,1B0\n")
    for order, form in ((losses, "compute_only"), (swapped(AHEAD, "1RECV_F0", "1RECV_F1"), "compute_comms")):
        with pytest.raises(UnsafeOrderError):
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
    assert "no REDUCE_GRAD: gradients are not divided" in str(check_order(order))
    assert "REDUCE_GRAD" not in str(check_order(AHEAD))
    theirs, ours = gradients_of_torch(order, "compute_comms"), gradients_of_one_process(order)
    assert all(
        torch.allclose(a, 2 * b) for x, y in zip(theirs, ours, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_the_order_that_torch_shows_for_1f1b_is_broken() -> None:
    """Where it begins the steady state without a warmup, it counts from 1. It runs another one, by hand."""
    stage = StandIn(0, 2, 2)
    order = get_schedule_class("1F1B")(stage, 4, loss_fn=torch.nn.functional.mse_loss)._get_pipeline_order()
    rows = {rank: [a for a in row if a is None or a.is_compute_op] for rank, row in order.items()}
    with pytest.raises(
        UnsafeOrderError, match="^rank 1 runs 1F4, but the stages run 4 micro-batches forward"
    ):
        check_order(table(rows))
