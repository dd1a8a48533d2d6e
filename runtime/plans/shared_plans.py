"""How all devices of a run go over to a new plan at the same iteration.

Device 0 alone asks the source of plans; what it is told goes to all others through the transport, once
before each iteration. So every device takes the same plan from the same iteration on, whatever the server
and the network do. Perseus has a client in each process; two of these could learn of a plan in different
iterations. A server that named an iteration instead would have to know how far each job is, and every device
would have to reach it before then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from placements import Placement
from runtime.plans.plan_client import DeployedPlan, PlanSource
from runtime.transport.protocol import Transport

_LOG = logging.getLogger(__name__)
Told = TypeVar("Told")


class SharedPlans:
    """The plans of a run, the same on all devices.

    Attributes:
        is_used: Whether the run has a source of plans; without one nothing is sent.

    Args:
        source: Asked by device 0; what the others give is not looked at.
        placement: Placement of the run.
        num_micro_batches: Micro-batches of one iteration.
        transport: Reaches the other devices.
        device: This one.
    """

    def __init__(
        self,
        source: PlanSource | None,
        placement: Placement,
        num_micro_batches: int,
        transport: Transport,
        device: int,
    ) -> None:
        """Let all devices know whether device 0 has a source; every device must call this."""
        self._source = source if device == 0 else None
        self._placement, self._num_micro_batches = placement, num_micro_batches
        self._transport = transport
        self.is_used = _from_device_0(self._source is not None, transport)

    def at_iteration_boundary(self) -> DeployedPlan | None:
        """Return the plan to run from this iteration on, or None to go on as before.

        Every device must call it before each iteration, and gets the same.
        """
        if not self.is_used:
            return None
        return _from_device_0(self._fitting() if self._source is not None else None, self._transport)

    def _fitting(self) -> DeployedPlan | None:
        """Return a new plan; one of another schedule is refused, because no device could run it."""
        assert self._source is not None
        plan = self._source.at_iteration_boundary()
        if plan is None:
            return None
        if (reason := self._misfit(plan)) is not None:
            _LOG.warning("plan %d is not run: it %s; is it for this schedule?", plan.version, reason)
            return None
        return plan

    def _misfit(self, plan: DeployedPlan) -> str | None:
        for block in self._placement.blocks:
            number = len(plan.clock_mhz.get(block.name, ()))
            if number != self._num_micro_batches:
                return f"has clocks of {block.name} for {number} micro-batches, not {self._num_micro_batches}"
        for name, clocks in plan.clock_mhz.items():
            # An optimizer block has one clock, and is no block of scripts.
            if name not in self._placement.by_name and len(clocks) > 1:
                return f"has clocks of {name}, which {self._placement.name} has not"
        return None


@contextmanager
def shared_plans(
    open_source: Callable[[], PlanSource | None],
    placement: Placement,
    num_micro_batches: int,
    transport: Transport,
    device: int,
) -> Iterator[SharedPlans]:
    """Open the source of plans on device 0, and close it at the end; see `SharedPlans`."""
    source = open_source() if device == 0 else None
    try:
        yield SharedPlans(source, placement, num_micro_batches, transport, device)
    finally:
        if source is not None:
            source.close()


def _from_device_0(told: Told, transport: Transport) -> Told:
    """Return what device 0 gave; every device must call it."""
    given: list[Told] = transport.collect(told)
    return given[0]
