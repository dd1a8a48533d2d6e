"""What a generated script imports, under the name that scripts know."""

from runtime.clocks.periodic_clocks import PeriodicClocks, unrolled_clocks
from runtime.loops.entry import Device, TransferError, run

__all__ = ["Device", "PeriodicClocks", "TransferError", "run", "unrolled_clocks"]
