"""Instructions as text, and lowering a schedule to programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements import Block, Kind, Placement
from placements.shapes import k_shape, v_shape
from runtime.program.instructions import Instruction, ProgramTextError, Receive, Run, Send, parse_instruction
from runtime.program.lower import lower, messages
from runtime.program.tensor_flow import MODES
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import as_soon_as_possible

NAMES = st.text(min_size=1, max_size=8)
NUMBERS = st.integers(0, 1000)
PARTS = st.none() | st.tuples(NUMBERS, NUMBERS)
INSTRUCTIONS: st.SearchStrategy[Instruction] = st.one_of(
    st.builds(Run, NAMES, NUMBERS, st.sampled_from(MODES)),
    st.builds(Send, NAMES, NAMES, NUMBERS, NUMBERS, PARTS),
    st.builds(Receive, NAMES, NAMES, NUMBERS, NUMBERS, PARTS),
)


@given(INSTRUCTIONS)
def test_text_is_one_line_and_parses_back(instruction: Instruction) -> None:
    text = str(instruction)
    assert len(text.splitlines()) == 1
    assert parse_instruction(text) == instruction


@pytest.mark.parametrize("line", ["", "run F0 0", "send F0 -> F1 #0 from 1", "walk F0 #0", "run F0 #0 keep"])
def test_other_text_is_refused(line: str) -> None:
    with pytest.raises(ProgramTextError, match="is not an instruction; write 'run F1 #0'"):
        parse_instruction(line)


def test_programs_of_1f1b(golden: Callable[[str, str], None]) -> None:
    golden("programs_v_shape_1f1b.txt", f"{lower(one_f_one_b(v_shape(2), 4))}\n")


def test_programs_of_k_shape(golden: Callable[[str, str], None]) -> None:
    golden("programs_k_shape_gpipe.txt", f"{lower(gpipe(k_shape(4), 2))}\n")


def test_each_device_without_the_output_gets_one_copy_and_senders_take_turns() -> None:
    blocks = Block("F0", Kind.F, (0, 1), 1), Block("F1", Kind.F, (1, 2, 3, 4, 5), 1, after=("F0",))
    copies = [(message.source, message.target) for message in messages(Placement("wide", 6, blocks))]
    assert copies == [(1, 2), (0, 3), (1, 4), (0, 5)]


def test_ordering_without_data_makes_no_message() -> None:
    ordered = Placement(
        "ordered",
        2,
        (
            Block("F0", Kind.F, (0,), 1),
            Block("B0", Kind.B, (0,), 1, after=("F0", "F1")),
            Block("F1", Kind.F, (1,), 1),
            Block("B1", Kind.B, (1,), 1, after=("F1", "B0")),
        ),
    )
    assert messages(ordered) == ()


def test_a_message_stands_where_its_producer_ends() -> None:
    """A short block that starts after a long one, but ends before it, sends first."""
    crossing = Placement(
        "crossing",
        3,
        (
            Block("long", Kind.F, (0,), 5),
            Block("short", Kind.F, (1,), 1, after=()),
            Block("late", Kind.F, (1,), 1, after=("short",)),
            Block("end", Kind.F, (2,), 1, after=("long", "late")),
        ),
    )
    orders = [[("long", 0)], [("short", 0), ("late", 0)], [("end", 0)]]
    program = lower(as_soon_as_possible(crossing, 1, orders)).instructions[2]
    assert [str(instruction) for instruction in program] == [
        "receive late -> end #0 from 1",
        "receive long -> end #0 from 0",
        "run end #0",
    ]
