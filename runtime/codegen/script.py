"""Scripts, read: their calls and their job, for any number of micro-batches that their loops allow.

It is the only reader of scripts. It knows neither processes nor transfers, and does not load torch itself.
What is read here can be checked before anything is started.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placements import Placement
from placements.copies.replicas import as_stages, copies_in
from runtime.codegen.job import JOB_FILE, ScriptJob, read_job
from runtime.program.calls import ACTIONS, Calls, OfStages, ScriptError, Transfer
from runtime.program.instructions import Programs, Receive, Run, Send, left_out
from runtime.program.tensor_spec import TensorSpec, TensorSpecs
from schedsearch.semantics.versions import WeightMode

if TYPE_CHECKING:
    from runtime.models import ModelOptions


@dataclass(frozen=True, kw_only=True)
class Script(ScriptJob):
    """A parsed script, with its job.

    Attributes:
        iteration: Its calls, given a device and the number of micro-batches.
        specs: Tensors of its messages; None where only the model knows.
        path: Its file; None where it is none.
        copies: Placement of the script as it is written, where some of its blocks are copies and
            `placement` has their stages; see `of_stages`.
    """

    iteration: Callable[[Any, int], None]
    specs: TensorSpecs | None = None
    path: Path | None = None
    copies: Placement | None = None

    def at(self, num_micro_batches: int | None) -> Script:
        """Return the script for a number of micro-batches, or its own; ScriptError if its loops cannot."""
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
    def of_stages(self) -> Script:
        """The script as a process runs it, for a model without copies: they are named as their stages."""
        stages = {name: copy.stage for name, copy in copies_in(self.placement).items()}
        if not stages:
            return self

        def iteration(device: Any, num_micro_batches: int) -> None:
            self.iteration(OfStages(device, stages), num_micro_batches)

        specs = self.specs and {(stages[a], stages[b]): spec for (a, b), spec in self.specs.items()}
        placement = as_stages(self.placement)
        return replace(self, iteration=iteration, placement=placement, specs=specs, copies=self.placement)

    @cached_property
    def model(self) -> ModelOptions:
        """Model of its blocks."""
        from runtime.models import ModelOptions  # It loads torch, which a check of saved programs need not.

        return ModelOptions.from_dict(self.model_data)

    @cached_property
    def left_out(self) -> frozenset[tuple[str, int]]:
        """The (block, micro-batch) pairs that do not run."""
        return left_out(self.placement, [(choice,) for choice in self.batch])

    @property
    def is_flushed(self) -> bool:
        """Whether there is one update of the weights, after all micro-batches."""
        return bool(self.model_data.get("weight_versions", WeightMode.FLUSH) == WeightMode.FLUSH)

    @cached_property
    def calls(self) -> Calls:
        """The calls of one iteration, not carried out; ScriptError names file and line of a wrong one."""
        calls = Calls(self.placement)
        try:
            self.iteration(calls, self.num_micro_batches)
        except ScriptError as error:
            raise ScriptError(f"{self.path}: {error}" if self.path else str(error)) from None
        return calls


def script_of_job(iteration: Callable[[Any, int], None], job: ScriptJob, wanted: str, path: Path) -> Script:
    """Return the script of a device, its file's name, of a job whose hash it names.

    Raises:
        ScriptError: It is of another job, or of no device of this one.
    """
    names = _names(job)
    if path.name not in names:
        raise ScriptError(f"{path}: {job.placement.name} has {len(names)} devices only; delete the script")
    if job.hash != wanted:
        raise ScriptError(
            f"{path}: is of job {wanted!r}, but {JOB_FILE} beside it is {job.hash!r}; "
            "generate the scripts again"
        )
    specs = job.tensor_specs[names.index(path.name)] if job.tensor_specs else None
    return Script(**vars(job), iteration=iteration, specs=specs, path=path)


def read_script(path: Path, job: ScriptJob | None = None) -> Script:
    """Return a script: its file is executed as an import would, and its calls are not made yet.

    The job is that of the ``job.json`` beside it, if that is read already.

    Raises:
        ScriptError: The file fails, has no iteration or names no job, or the job beside it is another.
    """
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from None
    for name in ("iteration", "JOB"):
        if name not in names:
            raise ScriptError(f"{path}: has no {name}; generate the scripts again")
    job = job or read_job(path.with_name(JOB_FILE))
    return script_of_job(names["iteration"], job, names["JOB"], path)


def read_scripts(directory: str | Path) -> list[Script]:
    """Return the scripts ``device_<d>.py`` of a folder, by device, each of which can be called.

    Raises:
        ScriptError: One is missing, fails or is of another job, or a block has several clocks.
    """
    job = _job_of(directory)
    paths = sorted(Path(directory).glob("device_[0-9]*.py"))
    by_name = {path.name: _read_with_calls(path, job) for path in paths}
    for name in _names(job):
        if name not in by_name:
            raise ScriptError(
                f"{directory}: has no {name} for the {job.placement.num_devices} devices of "
                f"{job.placement.name}; generate the scripts again"
            )
    scripts = [by_name[name] for name in _names(job)]
    _check_shared_clocks(scripts)
    return scripts


def read_script_of(directory: str | Path, device: int, num_devices: int) -> Script:
    """Return the script of a device; ScriptError if it fails, or processes are not as many as devices."""
    job = _job_of(directory)
    _check_number(num_devices, job.placement)
    return _read_with_calls(Path(directory) / _names(job)[device], job)


def _read_with_calls(path: Path, job: ScriptJob) -> Script:
    script = read_script(path, job)
    try:
        _ = script.calls
    except ScriptError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from None
    return script


def _job_of(directory: str | Path) -> ScriptJob:
    if not (Path(directory) / "device_0.py").is_file():
        raise ScriptError(f"{directory}: has no device_0.py; give a folder of generated scripts")
    return read_job(Path(directory) / JOB_FILE)


def _names(job: ScriptJob) -> list[str]:
    return [f"device_{device}.py" for device in range(job.placement.num_devices)]


def _failed(path: Path, error: BaseException) -> ScriptError:
    """Return the error of a script that fails when it is executed, with the line where it does."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"line {frames[-1].lineno}: " if frames else ""
    if isinstance(error, AttributeError) and isinstance(error.obj, Calls):
        return ScriptError(f"{path}: {where}{error.name} is no action; write {', '.join(ACTIONS)}")
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    text = f" in {frames[-1].line!r}" if frames else ""
    return ScriptError(f"{path}: {where}fails ({reason}){text}; correct it, or generate the scripts again")


def _check_shared_clocks(scripts: Sequence[Script]) -> None:
    """Ensure that a block of several devices has one clock on all of them."""
    shared = {block.name for block in scripts[0].placement.blocks if len(block.devices) > 1}
    seen: dict[tuple[str, int], tuple[Script, Run]] = {}
    for script in scripts:
        for run in (run for run in script.calls.runs if run.block in shared):
            other, same = seen.setdefault((run.block, run.micro_batch), (script, run))
            if run.clock_mhz != same.clock_mhz:
                raise ScriptError(
                    f"{script.path}: {run.instance_text} has clock_mhz={run.clock_mhz}, but {same.clock_mhz} "
                    f"in {other.path}; give a block of several devices the same clock on all"
                )


def programs_of(scripts: Sequence[Script]) -> Programs:
    """Return the programs of all devices; `runtime.program.deadlock.check` tells if they are safe."""
    first = scripts[0]
    _check_number(len(scripts), first.placement)
    instructions = tuple(tuple(script.calls.instructions) for script in scripts)
    has_specs = any(script.specs is not None for script in scripts)
    specs = tuple(script.specs or {} for script in scripts) if has_specs else ()
    lines = tuple(tuple(script.calls.lines) for script in scripts)
    return Programs(first.placement, first.num_micro_batches, instructions, specs, first.batch, lines)


def check_script(script: Script, device: int, num_devices: int) -> None:
    """Ensure that there is a process for each device, and that the script runs each of its blocks once."""
    _check_number(num_devices, script.placement)
    times = Counter((run.block, run.micro_batch) for run in script.calls.runs)
    taken = {micro_batch for _, micro_batch in times}
    expected = {
        (block.name, n)
        for block in script.placement.on(device)
        for n in range(script.num_micro_batches)
        if not block.in_turns or n in taken
    }
    expected -= script.left_out
    for block, micro_batch in sorted(expected | times.keys()):
        wanted = int((block, micro_batch) in expected)
        if times[block, micro_batch] != wanted:
            raise ScriptError(
                f"device {device}: the script runs {block} of micro-batch {micro_batch} "
                f"{times[block, micro_batch]} times instead of {wanted}"
            )


def check_specs(script: Script, device: int, spec_of: Callable[[Transfer], TensorSpec]) -> None:
    """Ensure that a script with specs has the model's for each of its messages."""
    if script.specs is None:
        return
    for transfer in (*script.calls.transfers(Send), *script.calls.transfers(Receive)):
        ours, made = script.specs.get((transfer.producer, transfer.consumer)), spec_of(transfer)
        if ours != made:
            raise ScriptError(
                f"device {device}: the script expects {ours or 'nothing'} for {transfer}, of which the model "
                f"makes {made}; generate the scripts anew"
            )


def _check_number(num_devices: int, placement: Placement) -> None:
    if num_devices != placement.num_devices:
        raise ScriptError(
            f"{num_devices} processes were started for the {placement.num_devices} devices of "
            f"{placement.name}; start {placement.num_devices}"
        )
