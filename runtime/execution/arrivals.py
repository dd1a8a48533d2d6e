"""Requests of an inference that come one after the other: a device waits for each before it begins it."""

from __future__ import annotations

import time

from placements import Placement
from runtime.profiling.observer import DeviceObserver
from runtime.program.instructions import Run
from schedsearch.simulation.requests import Arrivals, check_inference, entries


class RequestArrivals(DeviceObserver):
    """Holds the blocks that begin a request until it has come, by the device's own begin of the iteration.

    Raises:
        ConditionsError: The placement trains.
    """

    is_told_beside = True

    def __init__(self, placement: Placement, arrivals: Arrivals) -> None:
        """Begin without an iteration; requests come at the same times on all devices."""
        check_inference(placement, "arrival_rate")
        self._entries, self._arrivals = entries(placement), arrivals
        self._begin_s, self._iteration = 0.0, 0

    def begin(self, iteration: int) -> None:
        """Let requests count from now."""
        self._begin_s, self._iteration = time.monotonic(), iteration

    def reach(self, run: Run) -> None:
        """Wait until the request of the block has come."""
        if run.block in self._entries:
            at_ms = self._arrivals.ms(run.micro_batch + 1, self._iteration)[-1]
            time.sleep(max(0.0, self._begin_s + at_ms / 1e3 - time.monotonic()))
