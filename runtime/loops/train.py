"""The loop of generated scripts: iterations, each with a gradient step, and the files that they leave behind.

A script is a list of calls on a `Device`; `run` carries it out for a number of iterations. A process that is
told to end (SIGTERM) takes note of that: after the iteration that then runs, all devices write a checkpoint
together and end with status `TERMINATED`; the clocks are given back on the way. A second SIGTERM ends the
process at once. Without a folder for checkpoints SIGTERM is left as it is.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from runtime.codegen.job import JOB_FILE, read_job
from runtime.codegen.script import Script, check_script, script_of_job
from runtime.execution.device_context import DeviceContext, connected, device_context
from runtime.execution.process import Process
from runtime.execution.results import DONE, Position, Progress, write_progress, write_result
from runtime.execution.run_options import RunOptions
from runtime.loops.iterations import BlockLoss, Iterations
from runtime.loops.loop_state import LoopState
from runtime.models import ParameterShard, save_state_dict_file
from runtime.orders.offered import ProgramFolder, ProgramSwitch
from runtime.plans.plan_client import PlanSource
from runtime.profiling.process_memory import peak_rss_mib
from runtime.transport.agreement import not_finite
from runtime.transport.protocol import Transport

Connect = Callable[[Script, Process], AbstractContextManager[Transport]]
"""Connects a device to the others, and takes that down again."""

TERMINATED = 128 + signal.SIGTERM
"""Exit status of a process that was told to end and has written a checkpoint: 143."""


class TerminatedError(SystemExit):
    """A run was told to end; all that it had done is in a checkpoint."""

    def __init__(self, num_done: int, folder: object) -> None:
        super().__init__(f"SIGTERM: ended after {num_done} iterations, which are in {folder}")
        self.code = TERMINATED


def run(
    iteration: Callable[[Any, int], None],
    *,
    job: str,
    script: str | Path,
    process: Process | None = None,
    plans: PlanSource | None = None,
) -> None:
    """Train as one process of a run.

    Args:
        iteration: The script's calls, given a `Device` and the number of micro-batches.
        job: The hash of the ``job.json`` that it was made with.
        script: Its file, beside that.
        process: Number of the device, and the options of the run; by default as the environment says.
        plans: See `run_device`.

    Raises:
        ScriptError: The job is another, the script was started in the wrong way, or does not run each of its
            blocks once.
        TransferError: A tensor did not arrive or could not be sent.
    """
    path = Path(script)
    read = script_of_job(iteration, read_job(path.with_name(JOB_FILE)), job, path)
    run_device(read, process or Process.of_torchrun(RunOptions.of_environment()), connected, plans)


def run_device(script: Script, process: Process, connect: Connect, plans: PlanSource | None = None) -> None:
    """Be one device of a run.

    Args:
        script: Script of this device.
        process: Number of the device, and the options of the run.
        connect: Reaches the other devices.
        plans: Source of newer clocks, which device 0 asks between iterations if the script has none; by
            default the server and job of the environment, if it names them.

    Raises:
        ScriptError: The script does not run each of its blocks once, takes a tensor that nobody made, or the
            run cannot be resumed.
        TransferError: A tensor did not arrive or could not be sent.
        CheckpointError: A checkpoint could not be written.
        PipelineError: A loss is not finite; checkpoints are as they were before that iteration.
        TerminatedError: The process was told to end, and all that was done is in a checkpoint.
    """
    script = script.at(process.options.num_micro_batches).of_stages
    check_script(script, process.device, process.num_devices)
    position = Position(process.options.results, process.device)
    position.move("connecting")
    with connect(script, process) as transport:
        torch.set_num_threads(1)  # Results depend on the number of threads.
        with device_context(script, process, transport, position, plans) as context:
            with _termination(process.options) as is_asked:
                try:
                    _Training(context, is_asked).run()
                except TerminatedError as ended:
                    _report(process, str(ended))
                    raise
            position.move(DONE)
    position.close()


@contextmanager
def _termination(options: RunOptions) -> Iterator[Callable[[], bool]]:
    """Take note of SIGTERM rather than end, where a process is one device and can write checkpoints."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(number, signal.SIG_DFL)

    if options.checkpoints is None or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


class _Training:
    """The iterations of a device from the newest checkpoint on, and the files that they leave behind.

    Args:
        context: The device and all that it runs with.
        is_asked: Tells whether this process was told to end.
    """

    def __init__(self, context: DeviceContext, is_asked: Callable[[], bool]) -> None:
        """Read the checkpoint if the run goes on from one."""
        self._context, self._process, self._is_asked = context, context.process, is_asked
        self._options = options = context.process.options
        self._iterations = Iterations(context)
        _report(self._process, (context.profiler or context.clocks.clock).description)
        self._state = LoopState(context)
        self._first = 0
        if options.resume is not None:
            resumed = self._state.load(options.resume, context.model.optimizer, options.iterations)
            self._first = resumed.iterations
            for note in resumed.notes:
                _report(self._process, note)
        source = None if options.programs is None else ProgramFolder(options.programs)
        self._switch = ProgramSwitch(context, source)
        self._notes = [self._follow_program(self._first)]
        self._times_ms: list[float] = []
        self._losses: list[list[BlockLoss]] = []
        self._orders: list[tuple[int, list[tuple[str, int]]]] = []
        self._plans: list[tuple[int, int, float]] = []

    def run(self) -> None:
        """Run all iterations; with a profiler the last one is that in which all have ended."""
        context, options = self._context, self._options
        for index in range(self._first, options.iterations):
            if plan := self._iterations.follow_plan():
                self._plans.append((index, plan.version, plan.time_ms))
                news = f"iteration {index}: from here on plan {plan.version}, of {plan.time_ms:.1f} ms"
                _report(self._process, news)
            time_ms, is_compared = self._iterations.timed(index), options.verifies(index)
            self._note(index, time_ms)
            self._iterations.update.prepare()
            if is_compared:
                self._write(f"gradients_{index}", context.model.gradients())
            self._iterations.update.step()
            if is_compared and options.verify == "first":
                self._write("parameters", context.model.state())
            if index + 1 < options.iterations:
                self._notes.append(self._follow_program(index + 1))
            ends = self._share(index, time_ms)
            self._save(index + 1, ends and index + 1 < options.iterations)
            if context.profiler is not None and context.profiler.all_done():
                break
        self._state.wait()
        is_writer = self._process.device == 0
        if options.verify == "all":
            self._write("parameters", context.model.state())
        if options.save_weights is not None:
            save_state_dict_file(context.model, options.save_weights, context.transport.collect, is_writer)
        if options.trace_file:
            from runtime.profiling.trace import write_trace  # loads the solvers of plans, which few runs need

            records = context.transport.collect(context.records)
            if is_writer:
                write_trace(options.trace_file, context.script.placement, records)
        if options.results:
            done = {"first_iteration": self._first, "time_ms": self._times_ms, "losses": self._losses}
            done |= {"orders": self._orders, "plans": self._plans}
            write_result(options.results, self._process.device, "summary", done | _summary(context))

    def _follow_program(self, index: int) -> str:
        """Go over to the program of an iteration; return the news."""
        note = self._iterations.follow_program(self._switch, index)
        if note:
            _report(self._process, note)
        return note

    def _note(self, index: int, time_ms: float) -> None:
        """Take note of an iteration that was run."""
        self._times_ms.append(time_ms)
        self._losses.append(self._iterations.losses())
        order = self._context.device.order
        if not self._orders or (self._options.verifies(index) and self._orders[-1][1] != order):
            self._orders.append((index, order))

    def _share(self, index: int, time_ms: float) -> bool:
        """Tell all devices of an iteration, and let device 0 report it; return whether any was told to end.

        Raises:
            PipelineError: On all devices, if a loss is not finite; the message names the device that has it.
        """
        context, options = self._context, self._options
        reports = context.transport.collect((time_ms, self._losses[-1], self._is_asked()))
        losses = {(block, n): float(loss) for _, rows, _ in reports for block, n, loss in rows}
        if self._process.device == 0:
            mean = sum(losses.values()) / context.script.num_micro_batches
            slowest_ms = max(device_ms for device_ms, _, _ in reports)
            progress = Progress(index, mean, slowest_ms, "\n".join(filter(None, self._notes)))
            if options.results:
                write_progress(options.results, progress)
            _report(self._process, str(progress))
        self._notes = []
        for (block, n), loss in losses.items():
            if not math.isfinite(loss):
                device = context.script.placement.by_name[block].devices[0]
                raise not_finite(device, f"iteration {index}", block, n, loss)
        return any(is_asked for _, _, is_asked in reports)

    def _save(self, num_done: int, ends: bool) -> None:
        """Begin a checkpoint if it is due, or a device was told to end.

        Raises:
            TerminatedError: A device was told to end, and the checkpoint is written.
        """
        options = self._options
        is_due = options.checkpoint_every and num_done % options.checkpoint_every == 0
        if options.checkpoints is None or not (is_due or ends):
            return
        self._state.save(
            options.checkpoints,
            num_done,
            self._context.model.optimizer,
            num_kept=options.keep_checkpoints,
            is_async=options.checkpoint_async,
        )
        if ends:
            self._state.wait()
            raise TerminatedError(num_done, options.checkpoints / f"iteration_{num_done}")

    def _write(self, name: str, tensors: Mapping[ParameterShard, Tensor]) -> None:
        if self._options.results:
            on_cpu = {shard: value.detach().cpu() for shard, value in tensors.items()}
            write_result(self._options.results, self._process.device, name, on_cpu)


def _summary(context: DeviceContext) -> dict[str, Any]:
    """Return the device's measurements, beside times and losses, and job and machine of the run."""
    script, device, options = context.script, context.transport.device, context.process.options
    profile = {} if context.profiler is None else {"profile": context.profiler.result()}
    records = {"records": context.records} if options.trace else {}
    return {
        "peak_posted_bytes": context.device.peak_posted_bytes,
        "peak_host_bytes": context.blocks.peak_host_bytes,
        **profile,
        **records,
        "model": script.model,
        "placement": script.placement,
        "num_micro_batches": script.num_micro_batches,
        "left_out": sorted(script.left_out),
        "clock_requests": context.clocks.clock.requests,
        "clock_backend": context.clocks.clock.description,
        "backend": options.backend,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "peak_rss_mib": peak_rss_mib(),
        "rss_after_import_mib": context.rss_after_import_mib,
    }


def _report(process: Process, line: str) -> None:
    """Tell the user who started the scripts by hand; a launch reads the results."""
    if process.device == 0 and not process.options.results:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
