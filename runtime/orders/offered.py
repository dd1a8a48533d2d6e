"""Programs for iterations: a folder that anybody fills while a run goes on, and the switch to them.

The files have the form of ``programs.json``: ``iteration_12.json`` is for iteration 12 alone,
``from_12.json`` for it and all after it, until a file with a greater number. Device 0 alone looks for
programs, proves them and sends them to all others at the end of the iteration before. So no device ever runs
another program than the rest, whatever files and processes do meanwhile. Not known here: who makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from placements.copies.replicas import copies_in
from placements.forms.texts import write_json
from runtime.codegen.script import Script
from runtime.interpreter.interpreter import interpret
from runtime.program.calls import OfStages, ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Programs
from runtime.program.lower import overfull
from runtime.program.program_file import programs_to_dict, read_programs
from runtime.program.tensor_flow import UnrunnablePlacementError

if TYPE_CHECKING:
    from runtime.execution.device_context import DeviceContext

ProgramSource = Callable[[int], Programs | None]
"""Returns the programs for an iteration, or None for the run's own order; the programs need not be safe.

The same object again is not proved again. A ValueError is told in a line, and the run's own order runs.
"""

_FIRST = re.compile(r"from_([0-9]+)\.json")


class OfferError(ValueError):
    """Programs cannot run here; the message says why in one line."""


class ProgramFolder:
    """The programs in a folder, which may be empty, or not there yet."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._read: tuple[Path, int, Programs] | None = None

    def __call__(self, iteration: int) -> Programs | None:
        """Return the programs for an iteration; None where there are none.

        Raises:
            ProgramFileError: The file cannot be read.
        """
        path = self._folder / f"iteration_{iteration}.json"
        if not path.is_file():
            firsts = {
                int(match[1]): path
                for path in self._folder.glob("from_*.json")
                if (match := _FIRST.fullmatch(path.name)) and int(match[1]) <= iteration
            }
            if not firsts:
                return None
            path = firsts[max(firsts)]
        changed_ns = path.stat().st_mtime_ns
        if self._read is None or self._read[:2] != (path, changed_ns):
            self._read = path, changed_ns, read_programs(path)
        return self._read[2]


def offer(
    programs: Programs, folder: str | Path, *, iteration: int | None = None, first: int | None = None
) -> Path:
    """Write programs to a run's folder of programs, in one step; return the file.

    They are for one `iteration`, or for all from the `first` on.
    """
    assert (iteration is None) != (first is None)
    name = f"from_{first}.json" if iteration is None else f"iteration_{iteration}.json"
    Path(folder).mkdir(parents=True, exist_ok=True)
    return write_json(Path(folder) / name, programs_to_dict(programs))


def fitting(programs: Programs, script: Script) -> Programs:
    """Return programs if they can run in a script's place: proved, and for its placement and model.

    Raises:
        OfferError: They cannot.
    """
    placement, number = script.copies or script.placement, script.num_micro_batches
    copies = copies_in(placement)
    if programs.placement != placement:
        raise OfferError(f"is for another placement than the run's, {placement.name}")
    if (programs.num_micro_batches, programs.batch) != (number, script.batch):
        raise OfferError(f"is for {programs.num_micro_batches} micro-batches, not for the run's {number}")
    for specs in programs.specs:
        for edge, spec in specs.items():
            of_stages = (copies[edge[0]].stage, copies[edge[1]].stage) if copies else edge
            expected = (script.specs or {}).get(of_stages, spec)
            if expected != spec:
                raise OfferError(f"is for another model: {edge[0]} hands {edge[1]} {spec}, here {expected}")
    try:
        check(programs)
    except (UnsafeProgramsError, UnrunnablePlacementError) as error:
        raise OfferError(f"is not safe: {str(error).splitlines()[0]}") from None
    if more := set(programs.channels) - set(script.channels):
        source, target = min(more)
        raise OfferError(f"sends from device {source} to {target}, which the run's own order does not")
    has_lengths_of_its_own = len(script.model_data.get("sequence_lengths") or ()) > number
    if not has_lengths_of_its_own and (full := overfull(programs)):
        raise OfferError(f"holds {full[1]} of the memory of device {full[0]}, which has {full[2]}")
    return programs


def check_switchable(script: Script, has_plans: bool) -> None:
    """Ensure that a run can go over to other programs: that no clocks or weights are of its own order."""
    if script.calls.asks_for_clocks or has_plans:
        raise ScriptError(
            "programs: have no clocks, and the run has; make scripts without clocks (runtime.clocks=false), "
            "or leave the programs out"
        )
    if not script.is_flushed:
        raise ScriptError(
            "programs: which weights a micro-batch reads is known of the run's own order alone; use "
            "weight_versions=flush, or leave the programs out"
        )


class _Decision(NamedTuple):
    """The next iteration, as all devices are told of it.

    Attributes:
        instructions: New program of each device; empty where none is new.
        is_default: Whether the run's own order runs.
        note: Line for the user; may be empty.
    """

    instructions: tuple[tuple[Instruction, ...], ...] = ()
    is_default: bool = False
    note: str = ""


class ProgramSwitch:
    """The program of each iteration, the same on all devices; every device must make it, at the start.

    Attributes:
        is_used: Whether programs may come; without a source nothing is sent.

    Args:
        context: Context of the device.
        source: Asked by device 0; the others' sources are not looked at.

    Raises:
        ScriptError: The run cannot go over to other programs.
    """

    def __init__(self, context: DeviceContext, source: ProgramSource | None) -> None:
        self.is_used: bool = context.transport.collect(source is not None)[0]
        self._source, self._context = source, context
        self._own = self._other = context.script
        self._proved: Programs | None = None
        if self.is_used:
            check_switchable(self._own, context.plans.is_used)

    def decide(self, iteration: int) -> tuple[Script, str]:
        """Agree on the program of an iteration; every device must call it at the end of the one before.

        Returns:
            The device's script, and a line for the user: why a program does not run, or that another one
            runs; empty where nothing has changed.
        """
        if not self.is_used:
            return self._own, ""
        is_first = self._context.process.device == 0
        asked = self._asked(iteration, self._source) if is_first and self._source else None
        decision: _Decision = self._context.transport.collect(asked)[0]
        if decision.instructions:
            program = decision.instructions[self._context.process.device]
            copies = {} if self._own.copies is None else copies_in(self._own.copies)
            stages = {name: copy.stage for name, copy in copies.items()}

            def run(device: Any, num_micro_batches: int) -> None:
                interpret(program, OfStages(device, stages) if stages else device)

            self._other = replace(self._own, iteration=run, path=None)
        return self._own if decision.is_default else self._other, decision.note

    def _asked(self, iteration: int, source: ProgramSource) -> _Decision:
        """Return the decision of device 0."""
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
