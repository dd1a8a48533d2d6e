"""A run, followed until all its processes have ended: progress as it comes, and why it failed if it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from runtime.execution.results import (
    DONE,
    Progress,
    Standing,
    read_failures,
    read_position,
    read_progress,
)
from runtime.execution.run_options import RunOptions
from runtime.launching.processes import POLL_S, Processes


class LaunchError(RuntimeError):
    """A run failed; the message says which device failed and why, and where every device stood."""


def follow(
    processes: Processes,
    num_devices: int,
    options: RunOptions,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Report progress until all processes have ended.

    Args:
        processes: Those that run; they are ended in any case.
        num_devices: Devices of the run.
        options: Options of the run; its `timeout_s` is how long it may make no progress.
        progress: Called with each iteration as it ends.

    Raises:
        LaunchError: One failed, or there was no progress for too long.
    """
    assert options.results is not None
    run = _Run(options.results, num_devices, processes)
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
            if status is not None:
                raise LaunchError(_why_failed(run, status))
            if time.monotonic() > deadline:
                raise LaunchError(_why_late(run, options.timeout_s))
            time.sleep(POLL_S)
    finally:
        processes.stop()


class _Run(NamedTuple):
    """What tells of a run."""

    results: Path
    num_devices: int
    processes: Processes

    def standings(self) -> list[Standing]:
        """Return where each device stood."""
        return [read_position(self.results, device) for device in range(self.num_devices)]

    def positions(self) -> str:
        """Return that in words, a line for each device."""
        return "\n".join(f"device {device}: {each.text}" for device, each in enumerate(self.standings()))


def _why_late(run: _Run, timeout_s: float) -> str:
    """Return where every device stood; or why one failed whose process does not end, as its GPU hangs."""
    if read_failures(run.results):
        return _why_failed(run, 1)
    standings = run.standings()
    device = stuck(standings)
    where = f"{run.processes.name_of(device)} stands at {standings[device].text}"
    return f"no progress for {timeout_s:g} s, {where}\n{run.positions()}"


def stuck(standings: Sequence[Standing]) -> int:
    """Return the device that the others wait for; of several that wait for each other, one.

    Args:
        standings: Of each device.
    """
    waits = {device: each.waits_for for device, each in enumerate(standings) if each.waits_for is not None}
    unfinished = (device for device, each in enumerate(standings) if each.text != DONE)
    device, seen = next(iter(waits), next(unfinished, 0)), set[int]()
    while device in waits and device not in seen:
        seen.add(device)
        device = waits[device]
    return device


def _why_failed(run: _Run, status: int) -> str:
    """Return the first failure with the end of its traceback, and where every device stood.

    A device or node that was killed cannot say so; what the others say then is only that it is gone.
    """
    failures = read_failures(run.results)
    if killed := run.processes.killed():
        name, by = next(iter(killed.items()))
        return f"{name} was ended by {by}\n{run.positions()}"
    if not failures:
        end = "\n".join(f"    {line}" for line in run.processes.last_lines()[-12:])
        return f"the run ended with status {status}\n{run.positions()}\n{end}"
    first = failures[0]
    end = "\n".join(f"    {line}" for line in first.traceback[-8:])
    return f"{run.processes.name_of(first.device)} failed: {first.reason}\n{run.positions()}\n{end}"
