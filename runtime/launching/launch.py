"""Start the scripts of all devices, watch them, and return their measurement.

As a program it is one device's process, under torchrun::

    python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY

As a library, `launch` starts that line, follows it, and compares the results with the reference.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from placements import ProfileError
from placements.copies.replicas import as_stages, orders_of_stages
from runtime.checkpoints.loading import check_resume
from runtime.checkpoints.manifest import facts_of
from runtime.codegen.job import JOB_FILE, read_job
from runtime.codegen.script import programs_of, read_scripts
from runtime.execution.measurement import Measurement
from runtime.execution.process import Process, check_backend, check_device, default_backend
from runtime.execution.results import (
    DONE,
    Progress,
    Standing,
    read_failures,
    read_position,
    read_progress,
    read_result,
)
from runtime.execution.run_options import RunOptions, add_arguments
from runtime.launching.processes import (
    POLL_S,
    Forked,
    InProcess,
    Processes,
    Torchrun,
    die_with_parent,
    end_if_orphaned,
    run_script,
)
from runtime.models import ModelError, ModelOptions, read_versions
from runtime.models.state_dict import StateDictError, check_save_path, check_state_dict_file
from runtime.options.run import BACKENDS, DEVICE_OF, LAUNCHERS
from runtime.program.calls import ScriptError
from runtime.program.deadlock import check, check_updates
from runtime.program.lower import device_orders, overfull
from runtime.verify.comparison import Extent, compare, extent_of, losses_of_run
from runtime.verify.reference import ReferenceCase
from schedsearch.semantics.versions import WeightMode

__all__ = ["LAUNCHERS", "LaunchError", "launch", "main"]


class LaunchError(RuntimeError):
    """A run failed; the message says which device failed and why, and where every device stood."""


def follow(
    processes: Processes,
    num_devices: int,
    options: RunOptions,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Report each iteration as it ends until all processes have; they are ended in any case.

    Raises:
        LaunchError: One failed, or there was no progress for the `timeout_s` of the options.
    """
    assert options.results is not None
    num_reported = 0
    deadline = time.monotonic() + options.timeout_s
    try:
        while True:
            status = processes.poll()
            for done in read_progress(options.results)[num_reported:]:
                num_reported += 1
                deadline = time.monotonic() + options.timeout_s
                if progress is not None:
                    progress(done)
            if status == 0:
                return
            if status is not None or time.monotonic() > deadline:
                standings = [read_position(options.results, device) for device in range(num_devices)]
                raise LaunchError(_why(processes, status, options, standings))
            time.sleep(POLL_S)
    finally:
        processes.stop()


def stuck(standings: Sequence[Standing]) -> int:
    """Return the device that the others wait for, by where each stands; of a circle of them, one."""
    waits = {device: place.waits_for for device, place in enumerate(standings) if place.waits_for is not None}
    unfinished = (device for device, place in enumerate(standings) if place.text != DONE)
    device, seen = next(iter(waits), next(unfinished, 0)), set[int]()
    while device in waits and device not in seen:
        seen.add(device)
        device = waits[device]
    return device


def _why(processes: Processes, status: int | None, options: RunOptions, standings: Sequence[Standing]) -> str:
    """Return the first failure with the end of its traceback, or which device hangs, and where all stood.

    A device that was killed cannot say so; what the others say then is only that it is gone. A device
    may say why it fails and not end, as its GPU hangs.
    """
    assert options.results is not None
    lines: Sequence[str] = ()
    failures = read_failures(options.results)
    if killed := processes.killed() if failures or status is not None else {}:
        name, by = next(iter(killed.items()))
        why = f"{name} was ended by {by}"
    elif failures:
        why = f"device {failures[0].device} failed: {failures[0].reason}"
        lines = failures[0].traceback[-8:]
    elif status is not None:
        why = f"the run ended with status {status}"
        lines = processes.last_lines()[-12:]
    else:
        device = stuck(standings)
        where = f"device {device} stands at {standings[device].text}"
        why = f"no progress for {options.timeout_s:g} s, {where}"
    stood = (f"device {device}: {place.text}" for device, place in enumerate(standings))
    return "\n".join([why, *stood, *(f"    {line}" for line in lines)])


_START: Mapping[str, Callable[[Path, int, RunOptions], Processes]] = {
    "torchrun": Torchrun,
    "fork": Forked,
    "in_process": InProcess,
}

_LOG = logging.getLogger(__name__)

_EXTRA_TIMEOUT_S = 60.0
"""Extra time that a device waits beyond its watcher, which knows the positions of all."""

_BY_DEVICE = ("peak_posted_bytes", "peak_host_bytes", "peak_rss_mib", "rss_after_import_mib")
"""Figures that a measurement takes from each device's summary as they are."""


def launch(
    directory: str | Path,
    num_devices: int,
    options: RunOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Measurement:
    """Run the scripts of a folder, one process for each device, and compare with the reference.

    With another `num_micro_batches` the scripts are checked first; with a `sweep` nothing is compared.

    Raises:
        ScriptError: A script is missing, an option is out of its range, or the run cannot be resumed.
        UnsafeProgramsError: The scripts are not safe with that number of micro-batches.
        LaunchError: A device failed, or the run made no progress for `timeout_s`.
        ProfileError: The file of latencies is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as folder:
        run = replace((options or RunOptions()).resolved(), results=Path(folder))
        run.check()
        return _launched(Path(directory).resolve(), num_devices, _placed(run, num_devices), progress)


def _launched(
    directory: Path, num_devices: int, options: RunOptions, progress: Callable[[Progress], None] | None
) -> Measurement:
    for device in range(num_devices):
        if not (directory / f"device_{device}.py").is_file():
            raise ScriptError(
                f"{directory}: has no device_{device}.py; generate the scripts of all devices first"
            )
    job = read_job(directory / JOB_FILE)
    model = ModelOptions.from_dict(job.model_data)
    is_same = True
    if options.num_micro_batches is not None or options.resume is not None:
        is_same = _checked(directory, options)
    verify = "none" if options.sweep is not None else options.verify
    extent = extent_of(verify, model, job.placement, options.resume is not None)
    if not is_same and extent.verify != "none":
        extent = Extent("none", "options have changed since the run began")
        _LOG.info("resume: not compared with the unpipelined model, as %s", extent.reason)
    try:
        if options.load_weights is not None:
            check_state_dict_file(options.load_weights, model, job.placement)
        if options.save_weights is not None:
            check_save_path(options.save_weights)
    except StateDictError as error:
        raise ScriptError(str(error)) from None
    options = replace(options, verify=extent.verify)
    patient = replace(options, timeout_s=options.timeout_s + _EXTRA_TIMEOUT_S)
    follow(_START[options.launcher](directory, num_devices, patient), num_devices, options, progress)
    return _measurement(num_devices, options, extent)


def _placed(options: RunOptions, num_devices: int) -> RunOptions:
    """Return the options with a backend and a device that fit the launcher and each other."""
    if num_devices < 1:
        raise ScriptError(f"num_devices: {num_devices} is not at least 1")
    launcher, device = options.launcher, options.device
    backend = options.backend
    if backend is None and launcher == "torchrun" and device != "cpu":
        backend = "nccl" if device == "cuda" else default_backend(num_devices)
    backend = backend or BACKENDS[launcher][0]
    check_backend(backend, launcher)
    check_device(device, launcher, num_devices)
    of_backend = DEVICE_OF.get(backend)
    if device is not None and of_backend not in (None, device):
        raise ScriptError(f"device: {device!r} does not fit backend {backend!r}; use {of_backend}")
    check_device(of_backend, launcher, num_devices)
    return replace(options, backend=backend, device=device or of_backend or "cpu")


def _checked(directory: Path, options: RunOptions) -> bool:
    """Ensure that scripts are safe for the number of micro-batches, and can go on from a checkpoint.

    Return whether the options are those with which the run began, as the unpipelined model trains from there.
    """
    scripts = read_scripts(directory)
    changed = [script.at(options.num_micro_batches) for script in scripts]
    if changed != scripts:
        programs = check(programs_of(changed))
        number = programs.num_micro_batches
        if full := overfull(programs):
            device, held, has = full
            raise ScriptError(
                f"num_micro_batches: {number} hold {held} of the memory of device {device}, which has {has}; "
                "use fewer"
            )
        try:
            model, placement = changed[0].model, programs.placement
            orders = orders_of_stages(placement, device_orders(programs))
            read_versions(model, as_stages(placement), number, orders)
            if model.weight_versions != WeightMode.FLUSH:
                check_updates(programs, model.micro_batches_per_update)
        except ModelError as error:
            raise ScriptError(f"num_micro_batches: {number} cannot be run: {error}") from None
    if options.resume is None:
        return True
    resumed = check_resume(options.resume, facts_of(changed[0]), options.iterations)
    for note in resumed.notes:
        _LOG.info("%s", note)
    return resumed.is_same


def _measurement(num_devices: int, options: RunOptions, extent: Extent) -> Measurement:
    """Return the devices' summaries as one, compared as far as the extent says."""
    results, backend, where = options.results, options.backend, options.device
    assert results is not None and backend is not None and where is not None
    summaries = [read_result(results, device, "summary") for device in range(num_devices)]
    first = summaries[0]
    iterations = 1 if extent.verify == "first" else first["first_iteration"] + len(first["time_ms"])
    shared = (first["placement"], first["num_micro_batches"], iterations, where)
    how = (options.load_weights, options.is_exact, frozenset(first["left_out"]))
    case = ReferenceCase(first["model"], *shared, *how)

    def of_devices(name: str) -> tuple[Any, ...]:
        return tuple(summary[name] for summary in summaries if name in summary)

    return Measurement(
        backend=backend,
        blocking=options.blocking,
        num_micro_batches=case.num_micro_batches,
        first_iteration=first["first_iteration"],
        time_ms=tuple(map(max, zip(*of_devices("time_ms"), strict=True))),
        losses=tuple(losses_of_run(case, summaries, index) for index in range(len(first["losses"]))),
        comparison=compare(results, summaries, case) if extent.verify != "none" else None,
        clock_requests=dict(enumerate(map(tuple, of_devices("clock_requests")))),
        clock_backend=first["clock_backend"],
        device_names=of_devices("device_name"),
        profiles=of_devices("profile"),
        records=of_devices("records"),
        verify=extent.verify,
        verify_reason=extent.reason,
        exact=options.is_exact,
        plans=tuple(first["plans"]),
        **{name: of_devices(name) for name in _BY_DEVICE},
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one device's script under torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node NUM_DEVICES -m runtime.launch")
    parser.add_argument("directory", type=Path, help="folder of device_0.py and so on")
    add_arguments(parser)
    given = vars(parser.parse_args(arguments))
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
