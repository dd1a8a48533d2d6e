"""Start the scripts of all devices, watch them, and return what they measured.

As a program it is one device's process, under torchrun::

    python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY

As a library, `launch` starts that line, follows it, and compares the outcome with the reference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from placements import ProfileError
from placements.placement_file import placement_from_dict
from runtime.codegen.script import programs_of, read_script
from runtime.execution.checkpoint import check_resume
from runtime.execution.measurement import Measurement
from runtime.execution.results import Progress, read_failures, read_position, read_progress, read_summary
from runtime.execution.run_options import RunOptions, as_environment, check_device, default_backend
from runtime.launching.in_process import NETWORKS, InProcess
from runtime.launching.processes import (
    POLL_S,
    Forked,
    Processes,
    Torchrun,
    die_with_parent,
    end_if_orphaned,
    run_script,
)
from runtime.models import ModelError, ModelOptions
from runtime.profiling.profiler import DeviceProfile, Sweep
from runtime.profiling.records import Record
from runtime.program.calls import ScriptError
from runtime.program.deadlock import check
from runtime.program.instructions import Programs, Run
from runtime.verify.reference import Case, compare, losses_of_run
from schedsearch.metrics import peak_memory
from schedsearch.schedule import as_soon_as_possible

_START: Mapping[str, Callable[[Path, RunOptions], Processes]] = {
    "torchrun": Torchrun,
    "fork": Forked,
    "in_process": InProcess,
}
LAUNCHERS = tuple(_START)
"""How devices are started: processes of torchrun, or forked from this process (CPU only, fractions of a
second), or threads of this process that take turns (always in the same order, on the CPU or on one GPU)."""

_EXTRA_TIMEOUT_S = 60.0
"""What a device waits longer than its watcher, which knows the positions of all."""


class LaunchError(RuntimeError):
    """A run failed; the message says which device failed and why, and where every device stood."""


def launch(
    directory: str | Path,
    num_devices: int,
    iterations: int = 1,
    timeout_s: float = 300.0,
    *,
    backend: str | None = None,
    device: str | None = None,
    launcher: str = "torchrun",
    compares: bool = True,
    blocking: bool = False,
    num_micro_batches: int | None = None,
    checkpoint_every: int = 0,
    checkpoints: str | Path | None = None,
    keep_checkpoints: int = 3,
    resume: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    sweep: Sweep | None = None,
    trace: bool = False,
    clock_latency: str | Path | None = None,
) -> Measurement:
    """Run the scripts of a folder, one process for each device, and compare with the reference.

    Args:
        directory: Holds ``device_0.py`` and so on.
        num_devices: How many scripts there are.
        iterations: How often each runs its iteration, those before a checkpoint included.
        timeout_s: How long the start, or one iteration, may take before the run is given up.
        backend: ``nccl``, ``gloo``, or None for NCCL where there is a GPU for each device; in process
            ``rendezvous`` (a send ends when its receive is posted; default) or ``buffered`` (at once).
        device: ``cpu``, ``cuda``, or None: under torchrun what the backend is for, else the CPU. In process
            all devices of the placement share the current GPU.
        launcher: One of `LAUNCHERS`.
        compares: Whether to compare with the reference; it trains the model twice in this process.
        blocking: Whether every transfer waits for its other end, to test that the order alone is safe.
        num_micro_batches: Of an iteration, if not the scripts' own number; the scripts are then checked
            before they are started.
        checkpoint_every: Iterations from one checkpoint to the next; 0 for none.
        checkpoints: Folder for them; see `runtime.checkpoint`.
        keep_checkpoints: How many of them stay there, the newest; 0 for all.
        resume: Folder of checkpoints whose newest the run goes on from.
        progress: Called with each iteration as it ends.
        sweep: Profile the blocks, and end with that; nothing is compared then, and at most `iterations` run.
        trace: Whether every device records its last iterations, for `runtime.trace`.
        clock_latency: File of `python -m runtime.clock latency`; by default the table of the GPU's name.

    Raises:
        ScriptError: A script is missing, an argument is out of its range, or the run cannot be resumed.
        UnsafeProgramsError: The scripts are not safe with that number of micro-batches.
        LaunchError: A device failed, or the run made no progress for `timeout_s`.
        ProfileError: The file of latencies is wrong.
    """
    directory = Path(directory).resolve()
    backend = backend or _backend(launcher, device, num_devices)
    _check_arguments(directory, num_devices, launcher, backend)
    device = _device(launcher, backend, device, num_devices)
    if not timeout_s > 0:
        raise ScriptError(f"timeout_s: {timeout_s:g} is not a positive number of seconds")
    if checkpoints is not None and Path(checkpoints).exists() and not Path(checkpoints).is_dir():
        raise ScriptError(f"checkpoints: {checkpoints} is not a folder; give one")
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as folder:
        options = RunOptions(
            device=0,
            num_devices=num_devices,
            iterations=iterations,
            backend=backend,
            timeout_s=timeout_s + _EXTRA_TIMEOUT_S,
            results=Path(folder),
            keeps_tensors=compares and sweep is None,
            blocking=blocking,
            num_micro_batches=num_micro_batches,
            checkpoint_every=checkpoint_every,
            checkpoints=Path(checkpoints).resolve() if checkpoints else None,
            keep_checkpoints=keep_checkpoints,
            resume=Path(resume).resolve() if resume else None,
            sweep=sweep,
            torch_device=device,
            records=trace,
            clock_latency=Path(clock_latency).resolve() if clock_latency else None,
        )
        options.check()
        if num_micro_batches is not None or resume is not None:
            _check_scripts(directory, options)
        _follow(_START[launcher](directory, options), options, timeout_s, progress)
        return _measurement(options, options.keeps_tensors)


def _check_scripts(directory: Path, options: RunOptions) -> None:
    """Ensure that scripts are safe for the number of micro-batches, and can go on from a checkpoint."""
    scripts = [read_script(directory / f"device_{device}.py") for device in range(options.num_devices)]
    changed = [script.at(options.num_micro_batches) for script in scripts]
    if changed != scripts:
        _check_memory(check(programs_of(changed)))
    if options.resume:
        check_resume(options.resume, changed, options.iterations)


def _check_memory(programs: Programs) -> None:
    """Ensure that a number of micro-batches that the schedule was not made for fits too: GPipe's may not."""
    placement, number = programs.placement, programs.num_micro_batches
    orders = [
        [(each.block, each.micro_batch) for each in program if isinstance(each, Run)]
        for program in programs.instructions
    ]
    peaks = peak_memory(as_soon_as_possible(placement, number, orders)).tolist()
    for device, (peak, capacity) in enumerate(zip(peaks, placement.memory or peaks, strict=True)):
        if peak > capacity:
            raise ScriptError(
                f"num_micro_batches: {number} hold {peak} of the memory of device {device}, which has "
                f"{capacity}; use fewer"
            )


def _check_arguments(directory: Path, num_devices: int, launcher: str, backend: str) -> None:
    if launcher not in LAUNCHERS:
        raise ScriptError(f"launcher: {launcher!r} is not known; use {' or '.join(LAUNCHERS)}")
    allowed = {"torchrun": ("gloo", "nccl"), "fork": ("gloo",), "in_process": NETWORKS}[launcher]
    if backend not in allowed:
        raise ScriptError(
            f"backend: {backend!r} cannot be used with launcher {launcher!r}; use {' or '.join(allowed)}"
        )
    if num_devices < 1:
        raise ScriptError(f"num_devices: {num_devices} is not at least 1")
    for device in range(num_devices):
        if not (directory / f"device_{device}.py").is_file():
            raise ScriptError(
                f"{directory}: has no device_{device}.py; generate the scripts of all devices first"
            )


def _backend(launcher: str, device: str | None, num_devices: int) -> str:
    """Return what moves the tensors, if nobody said."""
    if launcher == "in_process":
        return NETWORKS[0]
    if launcher != "torchrun" or device == "cpu":
        return "gloo"
    return "nccl" if device == "cuda" else default_backend(num_devices)


def _device(launcher: str, backend: str, device: str | None, num_devices: int) -> str:
    """Return where the run computes.

    Raises:
        ScriptError: It cannot there, or the backend is for another device.
    """
    check_device(device, launcher, num_devices)
    of_backend = {"nccl": "cuda", "gloo": "cpu"}.get(backend)
    if device is not None and of_backend not in (None, device):
        raise ScriptError(f"device: {device!r} is not what backend {backend!r} is for; use {of_backend}")
    check_device(of_backend, launcher, num_devices)
    return device or of_backend or "cpu"


def _follow(
    processes: Processes, options: RunOptions, timeout_s: float, progress: Callable[[Progress], None] | None
) -> None:
    """Report progress until all processes have ended.

    Raises:
        LaunchError: One failed, or there was no progress for too long.
    """
    assert options.results is not None
    num_reported = 0
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            status = processes.poll()
            for done in read_progress(options.results)[num_reported:]:
                num_reported += 1
                deadline = time.monotonic() + timeout_s
                if progress is not None:
                    progress(done)
            if status == 0:
                return
            if status is not None:
                raise LaunchError(_why_failed(options, status, processes))
            if time.monotonic() > deadline:
                raise LaunchError(_why_late(options, timeout_s, processes))
            time.sleep(POLL_S)
    finally:
        processes.stop()


def _why_late(options: RunOptions, timeout_s: float, processes: Processes) -> str:
    """Return where every device stood; or why one failed whose process does not end, as its GPU hangs."""
    assert options.results is not None
    if read_failures(options.results):
        return _why_failed(options, 1, processes)
    return f"no progress for {timeout_s:g} s\n{_positions(options)}"


def _why_failed(options: RunOptions, status: int, processes: Processes) -> str:
    """Return the first failure with the end of its traceback, and where every device stood.

    A device that was killed cannot say so; what the others say then is only that it is gone.
    """
    assert options.results is not None
    failures = read_failures(options.results)
    if killed := processes.killed():
        device, name = min(killed.items())
        return f"device {device} was ended by {name}\n{_positions(options)}"
    if not failures:
        end = "\n".join(f"    {line}" for line in processes.last_lines()[-12:])
        return f"the run ended with status {status}\n{_positions(options)}\n{end}"
    first = failures[0]
    end = "\n".join(f"    {line}" for line in first.lines[1:][-8:])
    return f"device {first.device} failed: {first.lines[0]}\n{_positions(options)}\n{end}"


def _positions(options: RunOptions) -> str:
    assert options.results is not None
    return "\n".join(
        f"device {device}: {read_position(options.results, device)[1]}"
        for device in range(options.num_devices)
    )


def _measurement(options: RunOptions, compares: bool) -> Measurement:
    assert options.results is not None
    summaries = [read_summary(options.results, device) for device in range(options.num_devices)]
    first = summaries[0]
    case = Case(
        ModelOptions(**first["model"]),
        placement_from_dict(first["placement"]),
        first["num_micro_batches"],
        first["first_iteration"] + len(first["time_ms"]),
        options.torch_device,
    )
    comparison = compare(options.results, case) if compares else None
    return Measurement(
        backend=options.backend,
        blocking=options.blocking,
        num_micro_batches=case.num_micro_batches,
        first_iteration=first["first_iteration"],
        peak_posted_bytes=tuple(summary["peak_posted_bytes"] for summary in summaries),
        time_ms=tuple(
            max(times) for times in zip(*(summary["time_ms"] for summary in summaries), strict=True)
        ),
        losses=tuple(losses_of_run(case, summaries, index) for index in range(len(first["losses"]))),
        comparison=comparison,
        clock_requests={device: tuple(summary["clock_requests"]) for device, summary in enumerate(summaries)},
        clock_backend=first["clock_backend"],
        device_names=tuple(summary["device_name"] for summary in summaries),
        profiles=tuple(
            DeviceProfile.from_plain(summary["profile"]) for summary in summaries if "profile" in summary
        ),
        records=tuple(
            tuple(map(Record.from_plain, summary["records"])) for summary in summaries if "records" in summary
        ),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one device's script under torchrun; options override what the environment says."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node NUM_DEVICES -m runtime.launch")
    parser.add_argument("directory", type=Path, help="folder of device_0.py and so on")
    parser.add_argument("--iterations", type=int, help="how often each script runs its iteration (default 1)")
    parser.add_argument(
        "--backend", choices=("gloo", "nccl"), help="default: nccl with a GPU for each device"
    )
    parser.add_argument(
        "--blocking", action="store_true", default=None, help="let transfers wait for their other ends"
    )
    parser.add_argument("--num-micro-batches", type=int, help="of an iteration, if not the scripts' own")
    parser.add_argument("--checkpoint-every", type=int, help="iterations between two checkpoints")
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints")
    parser.add_argument("--keep-checkpoints", type=int, help="how many stay (default 3; 0: all)")
    parser.add_argument("--resume", type=Path, help="folder of checkpoints whose newest to go on from")
    parser.add_argument("--trace", type=Path, help="file for what the devices did in the last iterations")
    parser.add_argument("--clock-latency", type=Path, help="file of python -m runtime.clock latency")
    parsed = parser.parse_args(arguments)
    given = {name: value for name, value in vars(parsed).items() if value is not None and name != "directory"}
    os.environ |= as_environment(given)
    # A kernel that is loaded at its first use waits for all streams, so for receives that are not due yet.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    try:
        RunOptions.from_environment().check()
        die_with_parent()
        end_if_orphaned()
        run_script(parsed.directory)
    except (ScriptError, ModelError, ProfileError) as error:
        sys.stderr.write(f"runtime.launch: {error}\n")
        return 1
    return 0
