"""Faults of programs as text: a row per device around the places, these in brackets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from runtime.program.instructions import Instruction, Programs, Receive, Run, Send, quoted

_Instructions = TypeVar("_Instructions", Receive, Run, Send)

ProgramPosition = tuple[int, int]
"""Where an instruction stands: (device, index in its program)."""

_LEGEND = (
    "(F1.0 runs F1 of micro-batch 0, F1.0>2 sends its tensor to device 2, 0>F0.0 receives from device 0)"
)


class UnsafeProgramsError(ValueError):
    """Programs would hang, or compute something else; the message shows the programs around the fault."""


def all_of(programs: Programs, kind: type[_Instructions]) -> Iterator[tuple[ProgramPosition, _Instructions]]:
    """Yield every instruction of a kind with its position, device by device."""
    for device, program in enumerate(programs.instructions):
        for index, instruction in enumerate(program):
            if isinstance(instruction, kind):
                yield (device, index), instruction


def at(programs: Programs, position: ProgramPosition) -> Instruction:
    """Return the instruction at a position."""
    return programs.instructions[position[0]][position[1]]


def fault(programs: Programs, message: str, positions: Sequence[ProgramPosition]) -> UnsafeProgramsError:
    """Return the error with the lines of the fault and the programs around it, its places in brackets."""
    picture = f"\n{grid(programs, positions)}" if positions else ""
    known = [(device, index) for device, index in positions if programs.lines and programs.lines[device]]
    places = dict.fromkeys(f"device_{device}.py line {programs.lines[device][i]}" for device, i in known)
    lines = f" ({', '.join(places)})" if places else ""
    return UnsafeProgramsError(f"{message}{lines}{picture}")


def grid(programs: Programs, positions: Sequence[ProgramPosition], around: int = 3) -> str:
    """Draw the programs of the positions' devices, a row each, with the first positions below each other.

    Args:
        programs: Need not be safe.
        positions: What to put in brackets.
        around: How many instructions to show before and after each.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import gpipe
    >>> print(grid(lower(gpipe(v_shape(2), 2)), [(0, 1), (1, 0)], around=1))
    0 | F0.0     [F0.0>1] F0.1     ...
    1 |          [0>F0.0] F1.0     ...
    (F1.0 runs F1 of micro-batch 0, F1.0>2 sends its tensor to device 2, 0>F0.0 receives from device 0)
    """
    if programs.cells:
        return excerpt(programs.cells, positions, around)
    labels = [[_label(instruction) for instruction in program] for program in programs.instructions]
    return f"{excerpt(labels, positions, around)}\n{_LEGEND}"


def excerpt(rows: Sequence[Sequence[str]], positions: Sequence[ProgramPosition], around: int = 3) -> str:
    """Draw the positions' rows of a table, with the first positions below each other; see `grid`.

    >>> print(excerpt([["0F0", "0F1", "0B0", "0B1"]], [(0, 0)], around=1))
    0 | [0F0] 0F1   ...
    """
    devices = sorted({device for device, _ in positions})
    shown: dict[int, tuple[list[str], int]] = {}
    for device in devices:
        labels, marked = rows[device], {i for d, i in positions if d == device}
        cells: list[str] = []
        lead, previous = 0, -1
        for i in (i for i in range(len(labels)) if any(abs(i - mark) <= around for mark in marked)):
            cells += ["..."] if i > previous + 1 else []
            lead = len(cells) if i == min(marked) else lead
            cells.append(f"[{labels[i]}]" if i in marked else labels[i])
            previous = i
        cells += ["..."] if previous < len(labels) - 1 else []
        shown[device] = (cells or ["[]"]), lead
    width = max(len(cell) for cells, _ in shown.values() for cell in cells)
    most, pad = max(lead for _, lead in shown.values()), len(str(devices[-1]))
    return "\n".join(
        f"{device:>{pad}} | " + " ".join(cell.ljust(width) for cell in [""] * (most - lead) + cells).rstrip()
        for device, (cells, lead) in shown.items()
    )


def _label(instruction: Instruction) -> str:
    if isinstance(instruction, Run):
        return f"{quoted(instruction.block)}.{instruction.micro_batch}"
    tensor = f"{quoted(instruction.producer)}.{instruction.micro_batch}"
    if isinstance(instruction, Send):
        return f"{tensor}>{instruction.target}"
    return f"{instruction.source}>{tensor}"
