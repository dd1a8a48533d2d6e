"""Which program an iteration runs: decided by device 0, and told to all at the end of the one before.

Device 0 alone asks where programs come from, proves what it is given and sends it to all others. So no device
ever runs another program than the rest, whatever files and processes do meanwhile. Every device takes its own
part of what was sent; nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from placements.copies.replicas import copies_in
from runtime.codegen.script import Script
from runtime.execution.device_context import DeviceContext
from runtime.interpreter.interpreter import interpret
from runtime.orders.offered import OfferError, ProgramSource, check_switchable, fitting
from runtime.program.calls import OfStages
from runtime.program.instructions import Instruction, Programs


class _Decision(NamedTuple):
    """What all devices are told of the next iteration.

    Attributes:
        instructions: New program of each device; empty where none is new.
        is_default: Whether the run's own order runs.
        note: What to tell the user; may be empty.
    """

    instructions: tuple[tuple[Instruction, ...], ...] = ()
    is_default: bool = False
    note: str = ""


class ProgramSwitch:
    """The program of each iteration, the same on all devices.

    Attributes:
        is_used: Whether programs may come; without a source nothing is sent.

    Args:
        context: What the device runs with.
        source: Asked by device 0; what the others give is not looked at.
    """

    def __init__(self, context: DeviceContext, source: ProgramSource | None) -> None:
        """Begin with the run's own order; every device must call it.

        Raises:
            ScriptError: The run cannot go over to others.
        """
        self.is_used: bool = context.transport.collect(source is not None)[0]
        self._source, self._context = source, context
        self._own = self._other = context.script
        self._proved: Programs | None = None
        if self.is_used:
            check_switchable(self._own, context.plans.is_used)

    def decide(self, iteration: int) -> tuple[Script, str]:
        """Agree on the program of an iteration; every device must call it at the end of the one before.

        Returns:
            The device's script, and what is to be told in a line: why a program does not run, or that one
            runs; empty where nothing has changed.
        """
        if not self.is_used:
            return self._own, ""
        is_first = self._context.process.device == 0
        asked = self._asked(iteration, self._source) if is_first and self._source else None
        decision: _Decision = self._context.transport.collect(asked)[0]
        if decision.instructions:
            own = decision.instructions[self._context.process.device]
            copies = {} if self._own.copies is None else copies_in(self._own.copies)
            stages = {name: copy.stage for name, copy in copies.items()}
            self._other = replace(self._own, iteration=partial(_carried_out, own, stages), path=None)
        return self._own if decision.is_default else self._other, decision.note

    def _asked(self, iteration: int, source: ProgramSource) -> _Decision:
        """Return what device 0 decides."""
        try:
            programs = source(iteration)
            if programs is None:
                return _Decision(is_default=True)
            if programs is self._proved:
                return _Decision()
            self._proved = None
            self._proved = fitting(programs, self._own)
        except OfferError as error:
            return self._refused(iteration, f"the program {error}")
        except (ValueError, OSError) as error:
            return self._refused(iteration, " ".join(str(error).split()))
        return _Decision(programs.instructions, note=f"iteration {iteration}: another program runs")

    def _refused(self, iteration: int, reason: str) -> _Decision:
        return _Decision(is_default=True, note=f"iteration {iteration}: {reason}; the run's own order runs")


def _carried_out(
    instructions: tuple[Instruction, ...], stages: Mapping[str, str], device: Any, num_micro_batches: int
) -> None:
    interpret(instructions, OfStages(device, stages) if stages else device)
