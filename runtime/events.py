"""Events on the compute stream of torch's GPU: marks that its work reaches one after the other."""

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
