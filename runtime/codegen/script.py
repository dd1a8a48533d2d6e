"""Scripts, read: their calls and their data, for any number of micro-batches that their loops allow.

It is the only reader of scripts. It knows neither processes nor transfers, and does not load torch itself.
What is read here can be checked before anything is started.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placements import Placement
from placements.plain_data import Field
from runtime.program.calls import Calls, ScriptError, Transfer
from runtime.program.instructions import Programs
from runtime.program.program_file import for_single_gpus
from runtime.program.tensor_spec import TensorSpec, TensorSpecs

if TYPE_CHECKING:
    from runtime.models import ModelOptions


@dataclass(frozen=True)
class Script:
    """A script, read.

    Attributes:
        iteration: Its calls, given a device and the number of micro-batches.
        model_data: What its blocks compute, as plain data.
        placement: What runs where.
        num_micro_batches: Of one iteration.
        channels: All (source, target) pairs that messages take, the same in every script.
        least_micro_batches: The fewest that its loops can run; None if it runs only its own number.
        micro_batches_per_round: By which numbers of micro-batches differ.
        specs: What its messages carry; None where only the model knows.
    """

    iteration: Callable[[Any, int], None]
    model_data: Mapping[str, Any]
    placement: Placement
    num_micro_batches: int
    channels: tuple[tuple[int, int], ...]
    least_micro_batches: int | None = None
    micro_batches_per_round: int = 1
    specs: TensorSpecs | None = None

    def at(self, num_micro_batches: int | None) -> Script:
        """Return the script for so many micro-batches; None leaves its own number.

        Raises:
            ScriptError: Its loops cannot run so many.
        """
        if num_micro_batches in (None, self.num_micro_batches):
            return self
        assert num_micro_batches is not None
        if self.least_micro_batches is None:
            raise ScriptError(
                f"num_micro_batches: {num_micro_batches} cannot be run, the scripts are for exactly "
                f"{self.num_micro_batches}; generate them anew"
            )
        least, step = self.least_micro_batches, self.micro_batches_per_round
        if num_micro_batches < least or (num_micro_batches - least) % step:
            and_so_on = ", ".join(str(least + i * step) for i in range(3))
            raise ScriptError(
                f"num_micro_batches: {num_micro_batches} cannot be run by the scripts' loops; "
                f"use {and_so_on} and so on"
            )
        return replace(self, num_micro_batches=num_micro_batches)

    @cached_property
    def model(self) -> ModelOptions:
        """What its blocks compute."""
        from runtime.models import ModelOptions  # It loads torch, which a check of saved programs need not.

        return ModelOptions.from_dict(self.model_data)

    @cached_property
    def calls(self) -> Calls:
        """The calls of one iteration, not carried out."""
        calls = Calls()
        self.iteration(calls, self.num_micro_batches)
        return calls


_HOST: ContextVar[Callable[[Script], None] | None] = ContextVar("host", default=None)
"""Takes a script that is only read."""


def hand_over(script: Script) -> bool:
    """Give a script to whoever reads it; tell whether anybody does, so that it is not to be run."""
    host = _HOST.get()
    if host is not None:
        host(script)
    return host is not None


def read_script(path: Path) -> Script:
    """Return a script without running it; its file is executed, but not its iteration.

    Raises:
        ScriptError: The file does not call `runtime.execution.entry.main` once.
    """
    found: list[Script] = []
    token = _HOST.set(found.append)
    try:
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        exec(code, {"__name__": "__main__", "__file__": str(path)})
    finally:
        _HOST.reset(token)
    if len(found) != 1:
        raise ScriptError(f"{path}: calls main {len(found)} times instead of once; generate it anew")
    return found[0]


def read_scripts(directory: str | Path) -> list[Script]:
    """Return the scripts ``device_<d>.py`` of a folder, by device, each of which can be called.

    Raises:
        ScriptError: There is none, one is missing or fails, or they are not of one placement and model.
    """
    directory = Path(directory)
    paths = {
        int(match[1]): path
        for path in directory.glob("device_*.py")
        if (match := re.fullmatch(r"device_(0|[1-9][0-9]*)\.py", path.name))
    }
    if not paths:
        raise ScriptError(f"{directory}: has no device_0.py; give a folder of generated scripts")
    found = {device: _read_to_call(path) for device, path in sorted(paths.items())}
    first = found[min(found)]
    num_devices = first.placement.num_devices
    for device in range(num_devices):
        if device not in found:
            raise ScriptError(
                f"{directory}: has no device_{device}.py for the {num_devices} devices of "
                f"{first.placement.name}; generate the scripts again"
            )
        if _shared(found[device]) != _shared(first):
            raise ScriptError(
                f"{paths[device]}: has another PLACEMENT, NUM_MICRO_BATCHES or MODEL than device_0.py; "
                "generate the scripts again"
            )
    if extra := sorted(found.keys() - range(num_devices)):
        raise ScriptError(
            f"{paths[extra[0]]}: {first.placement.name} has {num_devices} devices only; delete the script"
        )
    return list(found.values())


def _read_to_call(path: Path) -> Script:
    """Return a script of one GPU whose calls can be read."""
    try:
        script = read_script(path)
        for_single_gpus(script.placement)
        number = Field(script.num_micro_batches, "NUM_MICRO_BATCHES", ScriptError)
        number.whole("a whole number from 1 on", least=1)
        _ = script.calls  # A script whose calls fail cannot be read either.
        return script
    except NameError as error:
        raise ScriptError(f"{path}: has no {error.name}; generate the scripts again") from None
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ScriptError(f"{path}: fails ({reason}); generate the scripts again") from None


def _shared(script: Script) -> tuple[Placement, int, Mapping[str, Any]]:
    """Return what the scripts of all devices have in common."""
    return script.placement, script.num_micro_batches, script.model_data


def programs_of(scripts: Sequence[Script]) -> Programs:
    """Return what the scripts of all devices do; `runtime.program.deadlock.check` tells whether that is safe.

    Raises:
        ScriptError: There is not one script for each device.
    """
    first = scripts[0]
    _check_number(len(scripts), first.placement)
    instructions = tuple(tuple(script.calls.instructions) for script in scripts)
    has_specs = any(script.specs is not None for script in scripts)
    specs = tuple(script.specs or {} for script in scripts) if has_specs else ()
    return Programs(first.placement, first.num_micro_batches, instructions, specs)


def check_script(script: Script, device: int, num_devices: int) -> None:
    """Ensure that there is a process for each device, and that the script runs each of its blocks once.

    Raises:
        ScriptError: One of these does not hold.
    """
    _check_number(num_devices, script.placement)
    times = Counter((run.block, run.micro_batch) for run in script.calls.runs)
    blocks = script.placement.on(device)
    expected = {(block.name, n) for block in blocks for n in range(script.num_micro_batches)}
    for block, micro_batch in sorted(expected | times.keys()):
        wanted = int((block, micro_batch) in expected)
        if times[block, micro_batch] != wanted:
            raise ScriptError(
                f"device {device}: the script runs {block} of micro-batch {micro_batch} "
                f"{times[block, micro_batch]} times instead of {wanted}"
            )


def check_specs(script: Script, device: int, spec_of: Callable[[Transfer], TensorSpec]) -> None:
    """Ensure that a script knows of each of its messages what the model makes of it.

    Args:
        script: Of the device; one without specs leaves them to the model.
        device: Whose it is.
        spec_of: Returns what the model hands over.

    Raises:
        ScriptError: It lacks one, or has another.
    """
    if script.specs is None:
        return
    for transfer, _ in (*script.calls.sends, *script.calls.receives):
        ours, made = script.specs.get((transfer.producer, transfer.consumer)), spec_of(transfer)
        if ours != made:
            raise ScriptError(
                f"device {device}: FORMS has {ours or 'nothing'} for {transfer}, of which the model makes "
                f"{made}; generate the scripts anew"
            )


def _check_number(num_devices: int, placement: Placement) -> None:
    if num_devices != placement.num_devices:
        raise ScriptError(
            f"{num_devices} processes were started for the {placement.num_devices} devices of "
            f"{placement.name}; start {placement.num_devices}"
        )
