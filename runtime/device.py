"""Imports of generated scripts, under the names that scripts use."""

from runtime.clocks.periodic_clocks import PeriodicClocks, unrolled_clocks
from runtime.execution.device import Device
from runtime.loops.train import run
from runtime.transport.protocol import TransferError

__all__ = ["Device", "PeriodicClocks", "TransferError", "run", "unrolled_clocks"]
