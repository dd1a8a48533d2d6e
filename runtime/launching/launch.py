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
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from placements import ProfileError
from placements.copies.replicas import as_stages, orders_of_stages
from placements.placement_file import placement_from_dict
from runtime.checkpoints.loading import check_resume
from runtime.checkpoints.manifest import facts_of
from runtime.codegen.job import JOB_FILE, read_job
from runtime.codegen.script import programs_of, read_scripts
from runtime.execution.measurement import Measurement
from runtime.execution.process import Process, check_backend, check_device, default_backend
from runtime.execution.results import Progress, read_summary
from runtime.execution.run_options import RunOptions, add_arguments
from runtime.launching import lines
from runtime.launching.following import LaunchError, follow
from runtime.launching.in_process import InProcess
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
from runtime.options.run import BACKENDS, DEVICE_OF, LAUNCHERS
from runtime.profiling.profiler import DeviceProfile
from runtime.profiling.records import Record
from runtime.program.calls import ScriptError
from runtime.program.deadlock import check, check_updates
from runtime.program.lower import orders_of, overfull
from runtime.transport.communicators import AUTO
from runtime.verify.comparison import Extent, compare, extent_of, losses_of_run
from runtime.verify.reference import ReferenceCase
from runtime.virtual.play import cheapest_sharing
from schedsearch.semantics.versions import WeightMode

__all__ = ["LAUNCHERS", "LaunchError", "launch", "main"]

_START: Mapping[str, Callable[[Path, int, RunOptions], Processes]] = {
    "torchrun": Torchrun,
    "fork": Forked,
    "in_process": InProcess,
}

_LOG = logging.getLogger(__name__)

_EXTRA_TIMEOUT_S = 60.0
"""What a device waits longer than its watcher, which knows the positions of all."""


def launch(
    directory: str | Path,
    num_devices: int,
    options: RunOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Measurement:
    """Run the scripts of a folder, one process for each device, and compare with the reference.

    Args:
        directory: Holds ``device_0.py`` and so on.
        num_devices: How many scripts there are.
        options: Of the run. With another `num_micro_batches` the scripts are checked first; with a `sweep`
            nothing is compared.
        progress: Called with each iteration as it ends.

    Raises:
        ScriptError: A script is missing, an option is out of its range, or the run cannot be resumed.
        UnsafeProgramsError: The scripts are not safe with that number of micro-batches.
        LaunchError: A device failed, or the run made no progress for `timeout_s`.
        ProfileError: The file of latencies is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as folder:
        run = replace((options or RunOptions()).resolved(), results=Path(folder))
        return _launched(Path(directory).resolve(), num_devices, run, progress)


def _launched(
    directory: Path, num_devices: int, options: RunOptions, progress: Callable[[Progress], None] | None
) -> Measurement:
    options.check()
    options = _placed(options, num_devices)
    for device in range(num_devices):
        if not (directory / f"device_{device}.py").is_file():
            raise ScriptError(
                f"{directory}: has no device_{device}.py; generate the scripts of all devices first"
            )
    job = read_job(directory / JOB_FILE)
    model = ModelOptions.from_dict(job.model)
    is_same = True
    if options.num_micro_batches is not None or options.resume is not None:
        is_same = _checked(directory, options)
    asked = "none" if options.sweep is not None else options.verify
    extent = extent_of(asked, model, job.placement, options.resume is not None)
    if not is_same and extent.verify != "none":
        _LOG.info(
            "resume: not compared with the unpipelined model, as options have changed since the run began"
        )
        extent = Extent("none", "options have changed since the run began")
    try:
        if options.load_weights is not None:
            check_state_dict_file(options.load_weights, model, job.placement)
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
        devices = devices_of_nodes(job.placement, options.nodes)
        processes: Processes = Torchrun(directory, num_devices, patient, devices)
    else:
        processes = _START[options.launcher](directory, num_devices, patient)
    follow(processes, num_devices, options, progress)
    return _measurement(num_devices, options, extent)


def _placed(options: RunOptions, num_devices: int) -> RunOptions:
    """Return the options with what moves the tensors and where the run computes, if nobody said.

    Raises:
        ScriptError: The launcher cannot use that, or the backend is for another device.
    """
    if num_devices < 1:
        raise ScriptError(f"num_devices: {num_devices} is not at least 1")
    launcher, device = options.launcher, options.device
    backend = options.backend or _backend(launcher, device, num_devices)
    check_backend(backend, launcher)
    check_launcher_of_nodes(launcher, options.nodes)
    check_device(device, launcher, num_devices)
    of_backend = DEVICE_OF.get(backend)
    if device is not None and of_backend not in (None, device):
        raise ScriptError(f"device: {device!r} is not what backend {backend!r} is for; use {of_backend}")
    check_device(of_backend, launcher, num_devices)
    return replace(options, backend=backend, device=device or of_backend or "cpu")


def _checked(directory: Path, options: RunOptions) -> bool:
    """Ensure that scripts are safe for the number of micro-batches, and can go on from a checkpoint.

    Returns:
        Whether the run goes on with the options with which it began; the unpipelined model trains from the
        begin with those of now.
    """
    scripts = read_scripts(directory)
    changed = [script.at(options.num_micro_batches) for script in scripts]
    if changed != scripts:
        programs = check(programs_of(changed))
        if full := overfull(programs):
            device, held, has = full
            raise ScriptError(
                f"num_micro_batches: {programs.num_micro_batches} hold {held} of the memory of device "
                f"{device}, which has {has}; use fewer"
            )
        try:
            number, orders = programs.num_micro_batches, orders_of(programs)
            model, stages = changed[0].model, as_stages(programs.placement)
            read_versions(model, stages, number, orders_of_stages(programs.placement, orders))
            if model.weight_versions != WeightMode.FLUSH:
                check_updates(programs, model.micro_batches_per_update)
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


def _backend(launcher: str, device: str | None, num_devices: int) -> str:
    """Return what moves the tensors, if nobody said."""
    if launcher == "in_process":
        return BACKENDS[launcher][0]
    if launcher != "torchrun" or device == "cpu":
        return "gloo"
    return "nccl" if device == "cuda" else default_backend(num_devices)


def _measurement(num_devices: int, options: RunOptions, extent: Extent) -> Measurement:
    assert options.results is not None
    assert options.backend is not None
    assert options.device is not None
    summaries = [read_summary(options.results, device) for device in range(num_devices)]
    first = summaries[0]
    model = ModelOptions(**first["model"])
    case = ReferenceCase(
        replace(model, compile=None),
        placement_from_dict(first["placement"]),
        first["num_micro_batches"],
        1 if extent.verify == "first" else first["first_iteration"] + len(first["time_ms"]),
        options.device,
        options.load_weights,
        options.is_exact,
        model.compile is not None,
        frozenset(first["left_out"]),
    )
    comparison = compare(options.results, case) if extent.verify != "none" else None
    return Measurement(
        backend=options.backend,
        blocking=options.blocking,
        num_micro_batches=case.num_micro_batches,
        first_iteration=first["first_iteration"],
        peak_posted_bytes=tuple(summary["peak_posted_bytes"] for summary in summaries),
        peak_host_bytes=tuple(summary["peak_host_bytes"] for summary in summaries),
        peak_gathered_bytes=tuple(summary["peak_gathered_bytes"] for summary in summaries),
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
        plans=tuple((int(index), int(version), float(ms)) for index, version, ms in first["plans"]),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one device's script under torchrun."""
    given_words = sys.argv[1:] if arguments is None else arguments
    if given_words[:1] == [lines.PRINT]:
        return lines.main(given_words[1:])
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node NUM_DEVICES -m runtime.launch")
    parser.add_argument("directory", type=Path, help="folder of device_0.py and so on")
    add_arguments(parser)
    given = vars(parser.parse_args(given_words))
    directory = given.pop("directory")
    # A kernel that is loaded at its first use waits for all streams, so for receives that are not due yet.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    # Each communicator has a stream; streams that share a work queue wait for each other's events.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        process = Process.of_torchrun(replace(RunOptions.of_environment(), **given))
        process.options.check()
        die_with_parent()
        end_if_orphaned()
        with ExitStack() as at_end:
            if given:
                folder = at_end.enter_context(tempfile.TemporaryDirectory(prefix="schedsearch_"))
                os.environ |= process.options.write(Path(folder))
            run_script(directory, process)
    except (ScriptError, ModelError, ProfileError) as error:
        sys.stderr.write(f"runtime.launch: {error}\n")
        return 1
    return 0
