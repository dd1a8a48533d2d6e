"""Tables of torch as text: what torch writes is read and written back, and what it misreads is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining.schedules import _Action
from torch_tables import shipped

from experiments.benchmarks.others.torch_schedules import SHIPPED
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


def test_dual_pipe_has_overlaps() -> None:
    """So that the test above reads some."""
    order = parse_order(
        "\n".join(
            ",".join(map(str, row)) for row in shipped("DualPipeV", 2, 8).pipeline_order_with_comms.values()
        )
    )
    assert any(isinstance(cell, Overlap) for row in order.cells for cell in row)


numbers = st.integers(0, 200)
computations = st.builds(Action, numbers, st.sampled_from([op for op in Op if op.is_compute]), numbers)
others = st.builds(
    Action, numbers, st.sampled_from([op for op in Op if op.is_send or op.is_receive]), numbers
)
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
        ('0F0,"0B0\n', "row 1: is not CSV"),
    ],
)
def test_a_file_without_a_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(TorchCsvError, match=f"^{message}"):
        parse_order(text)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(TorchCsvError, match=r"gone.csv: cannot be read \(No such file or directory\)"):
        read_torch_csv(tmp_path / "gone.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe0F0")
    with pytest.raises(TorchCsvError, match=r"bytes.csv: is not text"):
        read_torch_csv(tmp_path / "bytes.csv")


def test_bubbles_are_empty_cells() -> None:
    assert parse_order("0F0,,0B0\n") == TorchOrder(
        ((Action(0, Op.FORWARD, 0), None, Action(0, Op.BACKWARD, 0)),)
    )
