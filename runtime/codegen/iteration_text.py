"""A looped program as the text of a script's `iteration`: warmup, loops, cooldown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from runtime.codegen.literal import text_literal
from runtime.program.any_number import is_late
from runtime.program.instructions import Instruction, Receive, Run
from runtime.program.loops import Loop, LoopedProgram

_TOTAL = "num_micro_batches"


class ClockText(Enum):
    """How a run's clock is written."""

    NONE = ""
    LISTED = ", CLOCK_MHZ[{block}][{micro_batch}]"
    PERIODIC = ", CLOCK_MHZ.at({block}, {micro_batch}, num_micro_batches)"


def iteration_text(
    looped: LoopedProgram, num_micro_batches: int, clocks: ClockText, is_parametric: bool
) -> str:
    """Return the text of the function.

    Args:
        looped: The program.
        num_micro_batches: Of the program.
        clocks: How to write the clock of a run.
        is_parametric: Whether to count from the number of micro-batches that the function is given, where
            that makes a difference; otherwise all numbers are constants.
    """

    def number(instruction: Instruction) -> str:
        if is_parametric and is_late(looped, instruction):
            return _from_end(num_micro_batches - instruction.micro_batch)
        return str(instruction.micro_batch)

    lines = [
        f"def iteration(device: Device, {_TOTAL}: int) -> None:",
        '    """Run one iteration of this device\'s blocks."""',
    ]
    for place, section in enumerate(looped.sections):
        if isinstance(section, Loop):
            lines += _loop(section, num_micro_batches, clocks, is_parametric)
        else:
            lines += _straight(_title(looped, place), section, clocks, number)
    return "\n".join(lines)


def _title(looped: LoopedProgram, place: int) -> str:
    """Return what to call a section outside of the loops."""
    if not looped.loops:
        return "Nothing repeats."
    return {0: "Warmup.", len(looped.sections) - 1: "Cooldown."}.get(place, "Between the loops.")


def _from_end(number: int) -> str:
    return f"{_TOTAL} - {number}" if number else _TOTAL


def _straight(
    title: str,
    instructions: Sequence[Instruction],
    clocks: ClockText,
    number: Callable[[Instruction], str],
) -> list[str]:
    calls = (_call(instruction, number(instruction), clocks) for instruction in instructions)
    return [f"    # {title}", *(f"    {call}" for call in calls)]


def _loop(loop: Loop, num_micro_batches: int, clocks: ClockText, is_parametric: bool) -> list[str]:
    """Return the loop over n, the lowest micro-batch of each round."""
    first, shift = loop.first_micro_batch, loop.shift
    after_last = first + loop.rounds * shift
    last = _from_end(num_micro_batches - after_last) if is_parametric else str(after_last)
    bounds = f"{first}, {last}, {shift}" if shift > 1 else f"{first}, {last}" if first else last
    size = "one micro-batch" if shift == 1 else f"{shift} micro-batches"
    lines = [f"    # Repetend: {size} per round.", f"    for n in range({bounds}):"]
    for instruction in loop.body:
        offset = instruction.micro_batch - first
        lines.append(f"        {_call(instruction, f'n + {offset}' if offset else 'n', clocks)}")
    return lines


def _call(instruction: Instruction, micro_batch: str, clocks: ClockText) -> str:
    """Return an instruction as a call of a device's method.

    Args:
        instruction: What to call.
        micro_batch: The expression to take instead of the instruction's micro-batch.
        clocks: How to write the clock of a run.
    """
    if isinstance(instruction, Run):
        block = text_literal(instruction.block)
        # Not str.format: a block's name may hold braces.
        clock = clocks.value.replace("{micro_batch}", micro_batch).replace("{block}", block)
        return f"device.run({block}, {micro_batch}{clock})"
    ends = f"{text_literal(instruction.producer)}, {text_literal(instruction.consumer)}, {micro_batch}"
    if isinstance(instruction, Receive):
        return f"device.receive({ends}, source={instruction.source})"
    return f"device.send({ends}, target={instruction.target})"
