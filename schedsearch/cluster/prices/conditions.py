"""Costs that the published study of spot prices leaves out, off by default: moves and preemptions."""

from __future__ import annotations

import math
from dataclasses import dataclass

_MIN_SHARE = 0.01
"""The least useful share of the time: with less a job would take more than a hundred times as long."""


@dataclass(frozen=True)
class PriceConditions:
    """The conditions of a job's price; by default those of the published study (dissertation, Sec. 6.3.2).

    Attributes:
        carry_forward: A price that did not change on a day stands, and can be chosen. The study chooses only
            among prices that are dated that very day, and at the lowest of an offer's prices of the day;
            with this, a day has one price for each offer, its last.
        rank_per_gpu: Offers of all clouds are ranked by the price of a GPU. The study ranks those of Azure by
            the price of the whole instance, though it charges for one GPU, so that only instances of one
            GPU are ever chosen there.
        whole_instance: A job pays for all GPUs of its instance, though it uses one.
        restart_s: Time without work, but paid, after each move and each preemption.
        egress_dollars: Price of each move to another cloud.
        preemptions_per_day: Mean number, at random (a Poisson process), on all offers.
        life_h: Hours after which an instance is taken away, with a warning that is enough for a
            checkpoint; 24 at GCP.
        checkpoint_every_s: Work between two checkpoints; what was done since the last is lost.
        checkpoint_s: Time that the writing of one takes.
        dwell_days: The least time between two moves; 1 or less is no limit, as prices are looked at daily.
        min_saving: A move needs a price of a step that is lower by at least this share.
    """

    carry_forward: bool = False
    rank_per_gpu: bool = False
    whole_instance: bool = False
    restart_s: float = 0.0
    egress_dollars: float = 0.0
    preemptions_per_day: float = 0.0
    life_h: float = math.inf
    checkpoint_every_s: float = 3600.0
    checkpoint_s: float = 0.0
    dwell_days: int = 0
    min_saving: float = 0.0

    @property
    def useful_share(self) -> float:
        """Return the share of a long paid time that is work which stays done.

        A stretch of work up to the next checkpoint begins anew after each preemption, and so does a
        restart. With exponential times between preemptions its mean time is ``exp(rR) (exp(r(C + W)) - 1) /
        r`` for rate r, restart R, work C and writing W; C over it is the share (the model of Daly, FGCS
        2006). Instances that end after a known life cost one restart each.
        """
        rate, work_s = self.preemptions_per_day / 86400.0, self.checkpoint_every_s
        stretch_s = work_s + self.checkpoint_s
        if rate * (stretch_s + self.restart_s) > math.log(1 / _MIN_SHARE) + 1:
            return 0.0
        mean_s = math.exp(rate * self.restart_s) * math.expm1(rate * stretch_s) / rate if rate else stretch_s
        return work_s / mean_s * max(0.0, 1 - self.restart_s / (3600.0 * self.life_h))

    @property
    def makes_progress(self) -> bool:
        """Return whether a job gets anywhere: at least a hundredth of the time is of use."""
        return self.useful_share >= _MIN_SHARE and self.restart_s < 86400.0

    @property
    def moves_cost(self) -> bool:
        """Return whether a move costs anything."""
        return self.restart_s > 0 or self.egress_dollars > 0
