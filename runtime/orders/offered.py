"""Programs for iterations: a folder that anybody fills while a run goes on, and what is looked at in each.

The files have the form of ``programs.json``: ``iteration_12.json`` is for iteration 12 alone,
``from_12.json`` for it and all after it, until a file with a greater number. Not known here: who makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from placements.copies.replicas import copies_in
from placements.forms.texts import write_json
from runtime.codegen.script import Script
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Programs
from runtime.program.lower import overfull
from runtime.program.program_file import programs_to_dict, read_programs
from runtime.program.tensor_flow import UnrunnablePlacementError

ProgramSource = Callable[[int], Programs | None]
"""Returns the programs for an iteration, or None for the run's own order; the programs need not be safe.

The same object again is not proved again. A ValueError is told in a line, and the run's own order runs.
"""

_FIRST = re.compile(r"from_([0-9]+)\.json")


class OfferError(ValueError):
    """Programs cannot run here; the message says why in one line."""


class ProgramFolder:
    """The programs in a folder.

    Args:
        folder: May be empty, or not there yet.
    """

    def __init__(self, folder: str | Path) -> None:
        """Read nothing yet."""
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
                int(match[1]): each
                for each in self._folder.glob("from_*.json")
                if (match := _FIRST.fullmatch(each.name)) and int(match[1]) <= iteration
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
    """Write programs to a folder that a run looks at, in one step; return the file.

    Args:
        programs: Programs of the run's placement.
        folder: Folder of the run's `programs` option.
        iteration: The one iteration that they are for.
        first: Or the first of all those that they are for.
    """
    assert (iteration is None) != (first is None)
    name = f"from_{first}.json" if iteration is None else f"iteration_{iteration}.json"
    Path(folder).mkdir(parents=True, exist_ok=True)
    return write_json(Path(folder) / name, programs_to_dict(programs))


def fitting(programs: Programs, script: Script) -> Programs:
    """Return programs that can run in the place of a script's: proved, and for the same placement and model.

    Args:
        programs: Any.
        script: Script of a device of the run.

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
            own = (script.specs or {}).get(of_stages, spec)
            if own != spec:
                raise OfferError(f"is for another model: {edge[0]} hands {edge[1]} {spec}, here {own}")
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
    """Ensure that a run can go over to other programs.

    Raises:
        ScriptError: It has clocks or weights that its own order alone knows.
    """
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
