"""Start the scripts of all devices, watch them, and return what they measured.

As a program it is one device's process, under torchrun; with the word ``print`` it prints the line for that,
or those of several nodes::

    python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY
    python -m runtime.launch print DIRECTORY --nodes 2

As a library, `launch` starts that line, follows it, and compares the results with the reference.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from placements import ProfileError
from placements.placement_file import placement_from_dict
from runtime.checkpoints.loading import check_resume
from runtime.checkpoints.manifest import facts_of
from runtime.codegen.script import Script, programs_of, read_script, read_scripts
from runtime.execution.measurement import Measurement
from runtime.execution.results import Progress, read_summary
from runtime.execution.run_options import (
    RunOptions,
    add_arguments,
    as_environment,
    check_device,
    default_backend,
)
from runtime.launching import lines
from runtime.launching.following import LaunchError, follow
from runtime.launching.in_process import NETWORKS, InProcess
from runtime.launching.lines import check_launcher_of_nodes, devices_of_nodes
from runtime.launching.processes import (
    Forked,
    Processes,
    Torchrun,
    die_with_parent,
    end_if_orphaned,
    run_script,
)
from runtime.models import ModelError, ModelOptions, read_versions
from runtime.models.state_dict import StateDictError, check_save_path, check_state_dict_file
from runtime.profiling.profiler import DeviceProfile
from runtime.profiling.records import Record
from runtime.program.calls import ScriptError
from runtime.program.deadlock import check
from runtime.program.instructions import Programs, Run
from runtime.transport.communicators import AUTO
from runtime.verify.extent import Extent, extent_of
from runtime.verify.reference import Case, compare, losses_of_run
from runtime.virtual.play import cheapest_sharing
from schedsearch.metrics import peak_memory
from schedsearch.schedule import as_soon_as_possible

__all__ = ["LAUNCHERS", "LaunchError", "launch", "main"]

_START: Mapping[str, Callable[[Path, RunOptions], Processes]] = {
    "torchrun": Torchrun,
    "fork": Forked,
    "in_process": InProcess,
}
LAUNCHERS = tuple(_START)
"""How devices are started: processes of torchrun, or forked from this process (CPU only, fractions of a
second), or threads of this process that take turns (always in the same order, on the CPU or on one GPU)."""

_LOG = logging.getLogger(__name__)

_EXTRA_TIMEOUT_S = 60.0
"""What a device waits longer than its watcher, which knows the positions of all."""


def launch(
    directory: str | Path,
    num_devices: int,
    iterations: int = 1,
    timeout_s: float = 300.0,
    *,
    backend: str | None = None,
    device: str | None = None,
    launcher: str = "torchrun",
    verify: str | None = "all",
    trace: bool = False,
    communicators: str = AUTO,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
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
        verify: Which iterations are compared with the reference, which trains the model twice in this
            process: ``none``, ``first`` or ``all``; None for what `runtime.verify.extent` chooses.
        trace: Whether every device records its last iterations, for `runtime.profiling.trace`.
        communicators: One of `runtime.transport.communicators.SHARINGS`.
        progress: Called with each iteration as it ends.
        options: More of `RunOptions`: ``blocking``, ``num_micro_batches`` (the scripts are then checked
            first), ``checkpoint_every``, ``checkpoints``, ``keep_checkpoints``, ``resume``,
            ``clock_latency``, ``nodes`` (as many torchruns on this machine, each with the
            devices of a node), ``exact``, ``load_weights``, ``save_weights``, and ``sweep``, with which
            nothing is compared and at most `iterations` run.

    Raises:
        ScriptError: A script is missing, an argument is out of its range, or the run cannot be resumed.
        UnsafeProgramsError: The scripts are not safe with that number of micro-batches.
        LaunchError: A device failed, or the run made no progress for `timeout_s`.
        ProfileError: The file of latencies is wrong.
    """
    paths = {name: Path(value).resolve() for name, value in options.items() if isinstance(value, str | Path)}
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as folder:
        run = RunOptions(
            device=0,
            num_devices=num_devices,
            iterations=iterations,
            backend=backend or "",
            timeout_s=timeout_s,
            results=Path(folder),
            torch_device=device or "",
            records=trace,
            communicators=communicators,
            **options | paths,
        )
        asked = "none" if run.sweep is not None else verify
        return _launched(Path(directory).resolve(), launcher, run, asked, progress)


def _launched(
    directory: Path,
    launcher: str,
    options: RunOptions,
    asked: str | None,
    progress: Callable[[Progress], None] | None,
) -> Measurement:
    options.check()
    options = _placed(options, launcher)
    for device in range(options.num_devices):
        if not (directory / f"device_{device}.py").is_file():
            raise ScriptError(
                f"{directory}: has no device_{device}.py; generate the scripts of all devices first"
            )
    first = cache(lambda: read_script(directory / "device_0.py"))
    is_same = True
    if options.num_micro_batches is not None or options.resume is not None:
        is_same = _checked(directory, options)
    extent = _extent(first, options, asked)
    if not is_same and extent.verify != "none":
        _LOG.info(
            "resume: not compared with the unpipelined model, as options have changed since the run began"
        )
        extent = Extent("none", "options have changed since the run began")
    try:
        if options.load_weights is not None:
            check_state_dict_file(options.load_weights, first().model, first().placement)
        if options.save_weights is not None:
            check_save_path(options.save_weights)
    except StateDictError as error:
        raise ScriptError(str(error)) from None
    options = replace(options, verify=extent.verify)
    patient = replace(options, timeout_s=options.timeout_s + _EXTRA_TIMEOUT_S)
    if options.communicators == AUTO and options.backend == "nccl":
        programs = programs_of(read_scripts(directory))
        patient = replace(patient, communicators=str(cheapest_sharing(programs)))
    if options.nodes > 1:
        devices = devices_of_nodes(first().placement, options.nodes)
        processes: Processes = Torchrun(directory, patient, devices)
    else:
        processes = _START[launcher](directory, patient)
    follow(processes, options, progress)
    return _measurement(options, extent)


def _extent(first: Callable[[], Script], options: RunOptions, asked: str | None) -> Extent:
    """Return what is compared; a script is run to be read, so it is read only where its model decides."""
    if asked in ("none", "all"):
        return Extent(asked, "as asked for")
    script = first()
    return extent_of(asked, script.model, script.placement, options.resume is not None)


def _placed(options: RunOptions, launcher: str) -> RunOptions:
    """Return the options with what moves the tensors and where the run computes, if nobody said.

    Raises:
        ScriptError: The launcher cannot use that, or the backend is for another device.
    """
    if launcher not in LAUNCHERS:
        raise ScriptError(f"launcher: {launcher!r} is not known; use {' or '.join(LAUNCHERS)}")
    num_devices, device = options.num_devices, options.torch_device or None
    backend = options.backend or _backend(launcher, device, num_devices)
    allowed = {"torchrun": ("gloo", "nccl"), "fork": ("gloo",), "in_process": NETWORKS}[launcher]
    if backend not in allowed:
        raise ScriptError(
            f"backend: {backend!r} cannot be used with launcher {launcher!r}; use {' or '.join(allowed)}"
        )
    check_launcher_of_nodes(launcher, options.nodes)
    check_device(device, launcher, num_devices)
    of_backend = {"nccl": "cuda", "gloo": "cpu"}.get(backend)
    if device is not None and of_backend not in (None, device):
        raise ScriptError(f"device: {device!r} is not what backend {backend!r} is for; use {of_backend}")
    check_device(of_backend, launcher, num_devices)
    return replace(options, backend=backend, torch_device=device or of_backend or "cpu")


def _checked(directory: Path, options: RunOptions) -> bool:
    """Ensure that scripts are safe for the number of micro-batches, and can go on from a checkpoint.

    Returns:
        Whether the run goes on with the options with which it began; the unpipelined model trains from the
        begin with those of now.
    """
    scripts = [read_script(directory / f"device_{device}.py") for device in range(options.num_devices)]
    changed = [script.at(options.num_micro_batches) for script in scripts]
    if changed != scripts:
        programs = check(programs_of(changed))
        _check_memory(programs)
        try:
            read_versions(changed[0].model, programs.placement, programs.num_micro_batches, _orders(programs))
        except ModelError as error:
            raise ScriptError(
                f"num_micro_batches: {programs.num_micro_batches} cannot be run: {error}"
            ) from None
    if options.resume is None:
        return True
    resumed = check_resume(options.resume, facts_of(changed[0]), options.iterations)
    for note in resumed.notes:
        _LOG.info("%s", note)
    return resumed.is_same


def _check_memory(programs: Programs) -> None:
    """Ensure that a number of micro-batches that the schedule was not made for fits too: GPipe's may not."""
    placement, number = programs.placement, programs.num_micro_batches
    peaks = peak_memory(as_soon_as_possible(placement, number, _orders(programs))).tolist()
    for device, (peak, capacity) in enumerate(zip(peaks, placement.memory or peaks, strict=True)):
        if peak > capacity:
            raise ScriptError(
                f"num_micro_batches: {number} hold {peak} of the memory of device {device}, which has "
                f"{capacity}; use fewer"
            )


def _orders(programs: Programs) -> list[list[tuple[str, int]]]:
    return [
        [(each.block, each.micro_batch) for each in program if isinstance(each, Run)]
        for program in programs.instructions
    ]


def _backend(launcher: str, device: str | None, num_devices: int) -> str:
    """Return what moves the tensors, if nobody said."""
    if launcher == "in_process":
        return NETWORKS[0]
    if launcher != "torchrun" or device == "cpu":
        return "gloo"
    return "nccl" if device == "cuda" else default_backend(num_devices)


def _measurement(options: RunOptions, extent: Extent) -> Measurement:
    assert options.results is not None
    summaries = [read_summary(options.results, device) for device in range(options.num_devices)]
    first = summaries[0]
    model = ModelOptions(**first["model"])
    case = Case(
        replace(model, compile=None),
        placement_from_dict(first["placement"]),
        first["num_micro_batches"],
        1 if extent.verify == "first" else first["first_iteration"] + len(first["time_ms"]),
        options.torch_device,
        options.load_weights,
        options.is_exact,
        model.compile is not None,
    )
    comparison = compare(options.results, case) if extent.verify != "none" else None
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
        verify=extent.verify,
        verify_reason=extent.reason,
        exact=options.is_exact,
        peak_rss_mib=tuple(summary["peak_rss_mib"] for summary in summaries),
        rss_after_import_mib=tuple(summary["rss_after_import_mib"] for summary in summaries),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one device's script under torchrun; options override what the environment says."""
    given_words = sys.argv[1:] if arguments is None else arguments
    if given_words[:1] == [lines.PRINT]:
        return lines.main(given_words[1:])
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node NUM_DEVICES -m runtime.launch")
    parser.add_argument("directory", type=Path, help="folder of device_0.py and so on")
    add_arguments(parser)
    parsed = parser.parse_args(given_words)
    given = {name: value for name, value in vars(parsed).items() if value is not None and name != "directory"}
    os.environ |= as_environment(given)
    # A kernel that is loaded at its first use waits for all streams, so for receives that are not due yet.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    # Each communicator has a stream; streams that share a work queue wait for each other's events.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        RunOptions.from_environment().check()
        die_with_parent()
        end_if_orphaned()
        run_script(parsed.directory)
    except (ScriptError, ModelError, ProfileError) as error:
        sys.stderr.write(f"runtime.launch: {error}\n")
        return 1
    return 0
