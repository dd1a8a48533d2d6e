"""Headers of scripts: the device, how to start all scripts, and the schedule with the device's row."""

from __future__ import annotations

import ast

import pytest

from placements.shapes import v_shape
from runtime.codegen.codegen import PICTURE_WIDTH, header, launch_lines
from schedsearch.picture import fitted
from schedsearch.searches.search import search


@pytest.mark.parametrize(
    ("devices", "where", "line"),
    [
        (
            (4,),
            "or on N nodes with G devices each (N x G = 4), on node R from 0 on, node 0 being HOST, with",
            "--nnodes N --node-rank R --nproc-per-node G --master-addr HOST",
        ),
        (
            (4, 4),
            "or on 2 nodes with 4 devices each, on node R from 0 on, node 0 being HOST, with",
            "--nnodes 2 --node-rank R --nproc-per-node 4 --master-addr HOST",
        ),
        (
            (4, 2, 2),
            "or on 3 nodes with G = 4, 2, 2 devices, on node R from 0 on, node 0 being HOST, with",
            "--nnodes 3 --node-rank R --nproc-per-node G --master-addr HOST",
        ),
    ],
)
def test_the_lines_that_start_a_job(devices: tuple[int, ...], where: str, line: str) -> None:
    assert launch_lines(devices, "x") == [
        "Start all devices, from the folder above this one, on one node with",
        f"    torchrun --nproc-per-node {sum(devices)} -m runtime.launch x",
        where,
        f"    torchrun {line} -m runtime.launch x",
    ]


def test_one_device_has_one_line_and_a_folder_with_spaces_is_quoted() -> None:
    assert launch_lines((1,), "my scripts")[1:] == [
        "    torchrun --nproc-per-node 1 -m runtime.launch 'my scripts'"
    ]


def test_a_long_schedule_is_drawn_by_its_ends_and_its_repetend_within_110_columns() -> None:
    result = search(v_shape(20).with_memory(20), 60, objectives=["period"])
    assert result.schedule is not None and result.repetend is not None
    drawn = fitted(result.schedule, PICTURE_WIDTH, result.repetend, with_end=True)
    assert len(drawn.splitlines()) == 20 + 1 + 20 + 1, "all rows, for each script to choose from"
    lines = str(
        ast.literal_eval(header(result.schedule.placement, 10, None, "x", "f", drawn, {}))
    ).splitlines()
    assert max(map(len, lines)) <= 110
    rows = [line for line in lines if "|" in line]
    assert len(rows) == 2 * 11
    assert [line[:7] for line in rows if line.startswith("  > ")] == ["  > 10 "] * 2
    assert "F.0 " in rows[0] and " ... " in rows[0] and rows[0].endswith("B.59")
    assert any(line.startswith("    the repetend, once every ") for line in lines)
