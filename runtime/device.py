"""What a generated script imports; `runtime.execution.entry` under the name that scripts know."""

from runtime.execution.entry import Device, PeriodicClocks, TransferError, main

__all__ = ["Device", "PeriodicClocks", "TransferError", "main"]
