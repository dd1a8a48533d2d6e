"""Torch's GPU: its name for NVML, and events, marks that the work of its compute stream reaches in order."""

from __future__ import annotations

import torch


def record_event(*, timed: bool = True) -> torch.cuda.Event:
    """Record an event at the present end of the compute stream.

    Args:
        timed: Whether it can tell when it was reached; one that cannot costs less.
    """
    event = torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]
    event.record()
    return event


def gpu_uuid(device: torch.device) -> str:
    """Return the name by which NVML knows torch's GPU."""
    return str(torch.cuda.get_device_properties(device).uuid)
