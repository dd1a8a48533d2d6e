"""Processes that go on together or not at all: if something fails on one, all raise the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from runtime.transport.protocol import Transport

T = TypeVar("T")


class PipelineError(ValueError):
    """A step cannot be done, or its loss is not finite; every process names the device and its reason.

    Attributes:
        reason: Reason, without the device.
        device: Device that failed; None where all did.
    """

    def __init__(self, reason: str, device: int | None = None) -> None:
        super().__init__(reason if device is None else f"device {device}: {reason}")
        self.reason, self.device = reason, device


def not_finite(device: int, when: str, block: str, micro_batch: int, loss: float) -> PipelineError:
    """Return the error of a loss that is not finite."""
    reason = (
        f"{when}: the loss of {block}, micro-batch {micro_batch}, is {loss}; lower the learning rate, or "
        "look at the data"
    )
    return PipelineError(reason, device)


def agreed(
    transport: Transport, device: int, compute: Callable[[], T], tell: Callable[[T], Any]
) -> tuple[T, list[Any]]:
    """Return the result of `succeeded`, and the words of each device on its own; all must call it."""
    value = succeeded(transport, device, compute)
    return value, transport.collect(tell(value))


def succeeded(transport: Transport, device: int, compute: Callable[[], T]) -> T:
    """Return the result of a computation, once all have theirs; every process must call it.

    Raises:
        PipelineError: One fails, and so all do, with its reason.
    """
    failed: Exception | None = None
    try:
        value = compute()
    except Exception as error:  # whatever a user's module or batch raises
        failed = error
    (num_failed,) = transport.add_up([float(failed is not None)])
    if num_failed:
        kind = "" if isinstance(failed, ValueError) else f"{type(failed).__name__}: "
        reasons = transport.collect(None if failed is None else " ".join(f"{kind}{failed}".split()))
        index, reason = next((i, text) for i, text in enumerate(reasons) if text is not None)
        raise PipelineError(reason, index) from failed
    return value
