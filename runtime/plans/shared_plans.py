"""How all devices of a run go over to a new plan at the same iteration.

Device 0 alone asks the source of plans; the answer goes to all others through the transport, once before
each iteration. Perseus has a client in each process; two of these could learn of a plan in different
iterations. A server that named an iteration instead would have to know how far each job is.
"""

from __future__ import annotations

import logging

from placements import Placement
from runtime.plans.plan_client import DeployedPlan, PlanSource
from runtime.transport.protocol import Transport

_LOG = logging.getLogger(__name__)


class SharedPlans:
    """The plans of a run, the same on all devices; every device must make it, and call it alike.

    Attributes:
        is_used: Whether device 0 has a source of plans; without one nothing is sent.

    Args:
        source: Source of plans on device 0, if there is one; None on all others.
    """

    def __init__(
        self, source: PlanSource | None, placement: Placement, num_micro_batches: int, transport: Transport
    ) -> None:
        self._source = source
        self._placement, self._num_micro_batches = placement, num_micro_batches
        self._transport = transport
        self.is_used: bool = transport.collect(self._source is not None)[0]

    def at_iteration_boundary(self) -> DeployedPlan | None:
        """Return the plan to run from this iteration on, or None to go on as before."""
        if not self.is_used:
            return None
        plan: DeployedPlan | None = self._transport.collect(self._fitting() if self._source else None)[0]
        return plan

    def _fitting(self) -> DeployedPlan | None:
        """Return a new plan; one of another schedule is refused, because no device could run it."""
        assert self._source is not None
        plan = self._source.at_iteration_boundary()
        if plan is not None and (reason := self._misfit(plan)) is not None:
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
