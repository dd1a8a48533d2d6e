"""The proof before launch: lowered programs pass, and every kind of broken program is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import any_schedules

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, m_shape, v_shape
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Programs, Run, Send, parse_instruction
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule


def changed(programs: Programs, device: int, program: Sequence[Instruction]) -> Programs:
    """Return the programs with another one for a device."""
    instructions = list(programs.instructions)
    instructions[device] = tuple(program)
    return replace(programs, instructions=tuple(instructions))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inference", [False, True])
def test_gpipe_on_every_shape_is_safe(shape: str, inference: bool) -> None:
    check(lower(gpipe(SHAPES[shape](4, inference=inference), 5)))


@given(any_schedules(4))
@settings(deadline=None)
def test_any_schedule_lowers_to_safe_programs(schedule: Schedule) -> None:
    programs = check(lower(schedule))
    for device in range(schedule.placement.num_devices):
        runs = [i for i in programs.instructions[device] if isinstance(i, Run)]
        assert [(run.block, run.micro_batch) for run in runs] == list(schedule.order(device))


@given(any_schedules(4), st.data())
@settings(deadline=None, max_examples=60)
def test_no_instruction_can_be_lost_doubled_or_of_another_micro_batch(
    schedule: Schedule, data: st.DataObject
) -> None:
    programs = lower(schedule)
    device = data.draw(st.sampled_from([d for d, program in enumerate(programs.instructions) if program]))
    program = programs.instructions[device]
    i = data.draw(st.integers(0, len(program) - 1))
    for instead in ([], [program[i]] * 2, [replace(program[i], micro_batch=program[i].micro_batch + 1)]):
        with pytest.raises(UnsafeProgramsError):
            check(changed(programs, device, [*program[:i], *instead, *program[i + 1 :]]))


@given(any_schedules(4), st.data())
@settings(deadline=None)
def test_what_is_accepted_finishes_in_a_naive_run(schedule: Schedule, data: st.DataObject) -> None:
    programs = lower(schedule)
    device = data.draw(st.sampled_from([d for d, program in enumerate(programs.instructions) if program]))
    program = list(programs.instructions[device])
    i = data.draw(st.integers(0, len(program) - 1))
    program.insert(data.draw(st.integers(0, len(program) - 1)), program.pop(i))
    moved = changed(programs, device, program)
    try:
        check(moved)
    except UnsafeProgramsError:
        return
    assert finishes(moved)


def finishes(programs: Programs) -> bool:
    """Tell, slowly, whether all programs end if every operation waits for all its devices."""
    left = [[operation(programs, d, i) for i in program] for d, program in enumerate(programs.instructions)]
    while any(left):
        heads = [program[0] for program in left if program]
        possible = [(key, devices) for key, devices in heads if heads.count((key, devices)) == len(devices)]
        if not possible:
            return False
        for device in possible[0][1]:
            left[device].pop(0)
    return True


def operation(programs: Programs, device: int, instruction: Instruction) -> tuple[str, tuple[int, ...]]:
    """Return an instruction's operation, the same at each of its devices, and these devices."""
    if isinstance(instruction, Run):
        return str(instruction), programs.placement.by_name[instruction.block].devices
    ends = (device, instruction.target) if isinstance(instruction, Send) else (instruction.source, device)
    return f"{instruction.producer} {instruction.consumer} {instruction.micro_batch}", ends


V2 = lower(one_f_one_b(v_shape(2), 4))
M2 = lower(gpipe(m_shape(2), 2))


def swapped(programs: Programs, device: int, first: str, second: str) -> Programs:
    program = list(programs.instructions[device])
    i, j = program.index(parse_instruction(first)), program.index(parse_instruction(second))
    program[i], program[j] = program[j], program[i]
    return changed(programs, device, program)


def replaced(programs: Programs, device: int, line: str, *instead: str) -> Programs:
    program = list(programs.instructions[device])
    i = program.index(parse_instruction(line))
    program[i : i + 1] = map(parse_instruction, instead)
    return changed(programs, device, program)


BROKEN = {
    "receives swapped": swapped(V2, 1, "receive F0 -> F1 #0 from 0", "receive F0 -> F1 #1 from 0"),
    "posted receives swapped": swapped(M2, 1, "receive B0 -> EB #0 from 0", "receive B0 -> EB #1 from 0"),
    "send lost": replaced(V2, 0, "send F0 -> F1 #2 to 1"),
    "receive lost": replaced(V2, 1, "receive F0 -> F1 #2 from 0"),
    "send twice": replaced(V2, 0, "send F0 -> F1 #2 to 1", "send F0 -> F1 #2 to 1", "send F0 -> F1 #2 to 1"),
    "sent to nobody": replaced(V2, 0, "run B0 #0", "run B0 #0", "send B0 -> F0 #0 to 1"),
    "received for nothing": replaced(V2, 1, "run B1 #0", "run B1 #0", "receive B0 -> B1 #0 from 0"),
    "run of the next micro-batch": replaced(V2, 1, "run F1 #1", "run F1 #2"),
    "run past the last micro-batch": replaced(V2, 1, "run F1 #3", "run F1 #4"),
    "send of the next micro-batch": replaced(V2, 0, "send F0 -> F1 #1 to 1", "send F0 -> F1 #2 to 1"),
    "run lost": replaced(V2, 1, "run B1 #3"),
    "run before its input": swapped(V2, 0, "receive B1 -> B0 #1 from 1", "run B0 #1"),
    "backward before forward": swapped(V2, 1, "run F1 #3", "run B1 #3"),
    "send before run": swapped(V2, 0, "run F0 #2", "send F0 -> F1 #2 to 1"),
    "collectives swapped": swapped(M2, 1, "run E #0", "run E #1"),
    "messages cross": replaced(
        replaced(V2, 1, "receive F0 -> F1 #1 from 0"),
        1,
        "send B1 -> B0 #0 to 0",
        "send B1 -> B0 #0 to 0",
        "receive F0 -> F1 #1 from 0",
    ),
}
"""Each is refused with the text of ``tests/golden/unsafe_programs.txt``."""


def test_collectives_of_different_groups_can_wait_in_a_circle() -> None:
    """Each pair of devices agrees on all it shares, yet no device can begin."""
    ring = Placement(
        "ring", 3, tuple(Block(f"F{i}", Kind.F, tuple(sorted((i, (i + 1) % 3))), 1) for i in range(3))
    )
    orders = ((Run("F0", 0), Run("F2", 0)), (Run("F1", 0), Run("F0", 0)), (Run("F2", 0), Run("F1", 0)))
    with pytest.raises(
        UnsafeProgramsError, match=r"^devices wait for each other in a cycle: device 0 at 'run F0 #0'"
    ):
        check(Programs(ring, 1, orders))


def test_errors_show_the_programs_around_the_fault(golden: Callable[[str, str], None]) -> None:
    texts = []
    for case, programs in BROKEN.items():
        with pytest.raises(UnsafeProgramsError) as error:
            check(programs)
        texts.append(f"# {case}\n{error.value}\n")
    golden("unsafe_programs.txt", "\n".join(texts))
