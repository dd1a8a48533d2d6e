"""A run, followed until all its processes have ended: progress as it comes, and why it failed if it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from runtime.execution.results import DONE, Progress, Standing, read_failures, read_position, read_progress
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
    waits = {device: each.waits_for for device, each in enumerate(standings) if each.waits_for is not None}
    unfinished = (device for device, each in enumerate(standings) if each.text != DONE)
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
    stood = (f"device {device}: {each.text}" for device, each in enumerate(standings))
    return "\n".join([why, *stood, *(f"    {line}" for line in lines)])
