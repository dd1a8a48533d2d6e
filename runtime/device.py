"""What a generated script imports; `runtime.execution.entry` under the name that scripts know.

`main` and `PeriodicClocks` are for scripts from before there was a ``job.json``.
"""

from runtime.execution.entry import Device, PeriodicClocks, TransferError, main, run

__all__ = ["Device", "PeriodicClocks", "TransferError", "main", "run"]
