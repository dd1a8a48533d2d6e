"""Torch's GPU: its name for NVML, and events, marks that the work of its compute stream reaches in order."""

from __future__ import annotations

import torch


def record_event(*, timed: bool = True, sleeps: bool = False) -> torch.cuda.Event:
    """Record an event at the present end of the compute stream.

    Args:
        timed: Whether it can tell when it was reached; one that cannot costs less.
        sleeps: Whether a thread that waits for it sleeps until the GPU interrupts, rather than asking the
            GPU again and again.
    """
    event = torch.cuda.Event(enable_timing=timed, blocking=sleeps)  # type: ignore[no-untyped-call]
    event.record()
    return event


def gpu_uuid(device: torch.device) -> str:
    """Return the name by which NVML knows torch's GPU."""
    return str(torch.cuda.get_device_properties(device).uuid)
