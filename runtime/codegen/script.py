"""Scripts, read: their calls and their job, for any number of micro-batches that their loops allow.

It is the only reader of scripts. It knows neither processes nor transfers, and does not load torch itself.
What is read here can be checked before anything is started.
"""

from __future__ import annotations

import ast
import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placements import Placement
from placements.copies.stages import as_stages, copies_in
from placements.plain_data import Field
from runtime.codegen.job import JOB_FILE, ScriptJob, read_job
from runtime.codegen.time_limit import TooLongError, time_limit
from runtime.program.calls import ACTIONS, BlockCall, Calls, OfStages, ScriptError, Transfer
from runtime.program.instructions import Programs, left_out
from runtime.program.program_file import for_single_gpus
from runtime.program.tensor_spec import TensorSpec, TensorSpecs
from schedsearch.semantics.versions import WeightMode

if TYPE_CHECKING:
    from runtime.models import ModelOptions

READ_S = 60.0
"""How long reading a script may take, imports of torch included."""


@dataclass(frozen=True)
class Script:
    """A script, read.

    Attributes:
        iteration: Its calls, given a device and the number of micro-batches.
        model_data: What its blocks compute, as plain data.
        placement: What runs where.
        num_micro_batches: Micro-batches of one iteration.
        channels: All (source, target) pairs that messages take, the same in every script.
        least_micro_batches: The fewest that its loops can run; None if it runs only its own number.
        micro_batches_per_round: Step between the numbers of micro-batches that its loops can run.
        specs: What its messages carry; None where only the model knows.
        batch: As of `runtime.program.instructions.Programs`.
        path: Its file; None where it is none.
        copies: Placement of the script as it is written, where some of its blocks are copies and
            `placement` has their stages; see `of_stages`.
    """

    iteration: Callable[[Any, int], None]
    model_data: Mapping[str, Any]
    placement: Placement
    num_micro_batches: int
    channels: tuple[tuple[int, int], ...]
    least_micro_batches: int | None = None
    micro_batches_per_round: int = 1
    specs: TensorSpecs | None = None
    batch: tuple[int, ...] = ()
    path: Path | None = None
    copies: Placement | None = None

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
    def of_stages(self) -> Script:
        """The script as a process runs it: blocks that are copies are named as their stages.

        What is read, computed, updated and kept is then that of a model which knows no copies.
        """
        stages = {name: copy.stage for name, copy in copies_in(self.placement).items()}
        if not stages:
            return self

        def iteration(device: Any, num_micro_batches: int) -> None:
            self.iteration(OfStages(device, stages), num_micro_batches)

        specs = self.specs and {
            (stages[producer], stages[consumer]): spec for (producer, consumer), spec in self.specs.items()
        }
        return replace(
            self,
            iteration=iteration,
            placement=as_stages(self.placement),
            specs=specs,
            copies=self.placement,
        )

    @cached_property
    def model(self) -> ModelOptions:
        """What its blocks compute."""
        from runtime.models import ModelOptions  # It loads torch, which a check of saved programs need not.

        return ModelOptions.from_dict(self.model_data)

    @cached_property
    def left_out(self) -> frozenset[tuple[str, int]]:
        """The (block, micro-batch) pairs that do not run."""
        return left_out(self.placement, [(choice,) for choice in self.batch])

    @property
    def is_flushed(self) -> bool:
        """Whether there is one update of the weights, after all micro-batches."""
        return WeightMode(self.model_data.get("weight_versions", WeightMode.FLUSH)) is WeightMode.FLUSH

    @cached_property
    def calls(self) -> Calls:
        """The calls of one iteration, not carried out.

        Raises:
            ScriptError: A verb or a clock does not fit its block; the message names file and line.
        """
        calls = Calls(self.placement)
        try:
            self.iteration(calls, self.num_micro_batches)
            calls.check_clocks()
        except ScriptError as error:
            raise ScriptError(f"{self.path}: {error}" if self.path else str(error)) from None
        return calls


def script_of_job(iteration: Callable[[Any, int], None], job: ScriptJob, wanted: str, path: Path) -> Script:
    """Return the script of a device with what it shares with the others.

    Args:
        iteration: Its calls.
        job: Job of the ``job.json`` beside it.
        wanted: The hash of the job that it names.
        path: Its file, whose name says of which device it is.

    Raises:
        ScriptError: It is of another job, or of no device of this one.
    """
    device = _device_of(path)
    if device is None or device >= job.placement.num_devices:
        raise ScriptError(
            f"{path}: {job.placement.name} has {job.placement.num_devices} devices only; delete the script"
        )
    if job.hash != wanted:
        raise ScriptError(
            f"{path}: is of job {wanted!r}, but {JOB_FILE} beside it is {job.hash!r}; "
            "generate the scripts again"
        )
    return Script(
        iteration,
        job.model,
        job.placement,
        job.num_micro_batches,
        job.channels,
        job.least_micro_batches,
        job.micro_batches_per_round,
        job.specs[device] if job.specs else None,
        job.batch,
        path,
    )


def read_script(path: Path) -> Script:
    """Return a script without running it: its definitions are executed, nothing else.

    Raises:
        ScriptError: The file has no iteration or names no job, or the job beside it is another.
    """
    return _read(Path(path), read_job)


def _read(path: Path, job_in: Callable[[Path], ScriptJob]) -> Script:
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in tree.body:
        if not _only_defines(node):
            raise ScriptError(
                f"{path}: line {node.lineno}: would be carried out whenever the script is read; move it into "
                "iteration or train"
            )
    exec(compile(tree, str(path), "exec"), names)
    for name in ("iteration", "JOB"):
        if name not in names:
            raise ScriptError(f"{path}: has no {name}; generate the scripts again")
    return script_of_job(names["iteration"], job_in(path.with_name(JOB_FILE)), names["JOB"], path)


def _only_defines(node: ast.stmt) -> bool:
    """Tell whether a statement of a script's top does nothing but to give a name, or runs the script."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "__name__ == '__main__'"
    return isinstance(
        node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
    )


def _device_of(path: Path) -> int | None:
    match = re.fullmatch(r"device_(0|[1-9][0-9]*)\.py", path.name)
    return int(match[1]) if match else None


def read_scripts(directory: str | Path, timeout_s: float = READ_S) -> list[Script]:
    """Return the scripts ``device_<d>.py`` of a folder, by device, each of which can be called.

    Args:
        directory: Folder of the scripts.
        timeout_s: How long each may take.

    Raises:
        ScriptError: There is none, one is missing, fails or does not end, they are not of one placement and
            model, or a block of several devices has several clocks.
    """
    directory = Path(directory)
    paths = {
        device: path for path in directory.glob("device_*.py") if (device := _device_of(path)) is not None
    }
    if not paths:
        raise ScriptError(f"{directory}: has no device_0.py; give a folder of generated scripts")
    job_in = cache(read_job)
    found = {device: _read_to_call(path, job_in, timeout_s) for device, path in sorted(paths.items())}
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
                f"{paths[device]}: has another placement, number of micro-batches or model than device_0.py; "
                "generate the scripts again"
            )
    if extra := sorted(found.keys() - range(num_devices)):
        raise ScriptError(
            f"{paths[extra[0]]}: {first.placement.name} has {num_devices} devices only; delete the script"
        )
    scripts = list(found.values())
    _check_shared_clocks(scripts)
    return scripts


def read_script_of(directory: str | Path, device: int) -> Script:
    """Return the script of a device; if it has none that of device 0, which says how many devices there are.

    Raises:
        ScriptError: The folder has no scripts, or this one fails.
    """
    directory = Path(directory)
    own, first = (directory / f"device_{each}.py" for each in (device, 0))
    if not first.is_file():
        raise ScriptError(f"{directory}: has no device_0.py; give a folder of generated scripts")
    return _read_to_call(own if own.is_file() else first, read_job)


def _read_to_call(path: Path, job_in: Callable[[Path], ScriptJob], timeout_s: float = READ_S) -> Script:
    """Return a script of one GPU whose calls can be read."""
    try:
        with time_limit(timeout_s):
            script = _read(path, job_in)
            for_single_gpus(script.placement)
            number = Field(script.num_micro_batches, "NUM_MICRO_BATCHES", ScriptError)
            number.whole("a whole number from 1 on", min=1)
            _ = script.calls  # A script whose calls fail cannot be read either.
    except ScriptError:
        raise
    except TooLongError as error:
        raise ScriptError(
            f"{path}: {_line(path, error)}does not come to its end within {timeout_s:g} s while the script "
            "is read; correct it, or generate the scripts again"
        ) from None
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from None
    return script


def _failed(path: Path, error: BaseException) -> ScriptError:
    """Return the error of a script that fails when it is executed, with the line where it does."""
    where = _line(path, error)
    if isinstance(error, AttributeError) and isinstance(error.obj, Calls):
        return ScriptError(f"{path}: {where}{error.name} is no action; write {', '.join(ACTIONS)}")
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    text = f" in {frames[-1].line!r}" if (frames := _frames(path, error)) else ""
    return ScriptError(f"{path}: {where}fails ({reason}){text}; correct it, or generate the scripts again")


def _check_shared_clocks(scripts: Sequence[Script]) -> None:
    """Ensure that a block of several devices has one clock on all of them.

    Raises:
        ScriptError: It has not; the message names both scripts.
    """
    shared = {block.name for block in scripts[0].placement.blocks if len(block.devices) > 1}
    found: dict[tuple[str, int], tuple[Script, BlockCall]] = {}
    for script in scripts:
        for run in (run for run in script.calls.runs if run.block in shared):
            other, same = found.setdefault((run.block, run.micro_batch), (script, run))
            if run.clock_mhz != same.clock_mhz:
                raise ScriptError(
                    f"{script.path}: {run} has clock_mhz={run.clock_mhz}, but {same.clock_mhz} in "
                    f"{other.path}; give a block of several devices the same clock on all"
                )


def _line(path: Path, error: BaseException) -> str:
    """Return the last line of a script that an error came through; nothing if there is none."""
    frames = _frames(path, error)
    return f"line {frames[-1].lineno}: " if frames else ""


def _frames(path: Path, error: BaseException) -> list[traceback.FrameSummary]:
    """Return the lines of a script that an error came through."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]


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
    lines = tuple(tuple(script.calls.lines) for script in scripts)
    return Programs(first.placement, first.num_micro_batches, instructions, specs, first.batch, lines)


def check_script(script: Script, device: int, num_devices: int) -> None:
    """Ensure that there is a process for each device, and that the script runs each of its blocks once.

    Raises:
        ScriptError: One of these does not hold.
    """
    _check_number(num_devices, script.placement)
    times = Counter((run.block, run.micro_batch) for run in script.calls.runs)
    blocks = script.placement.on(device)
    taken = {n for _, n in times}
    expected = {
        (block.name, n)
        for block in blocks
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
    """Ensure that a script knows of each of its messages what the model makes of it.

    Args:
        script: Script of the device; one without specs leaves them to the model.
        device: Device whose script it is.
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
                f"device {device}: the script expects {ours or 'nothing'} for {transfer}, of which the model "
                f"makes {made}; generate the scripts anew"
            )


def _check_number(num_devices: int, placement: Placement) -> None:
    if num_devices != placement.num_devices:
        raise ScriptError(
            f"{num_devices} processes were started for the {placement.num_devices} devices of "
            f"{placement.name}; start {placement.num_devices}"
        )
