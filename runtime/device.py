"""What a generated script imports; `runtime.execution.entry` under the name that scripts know."""

from runtime.execution.entry import Device, TransferError, run

__all__ = ["Device", "TransferError", "run"]
