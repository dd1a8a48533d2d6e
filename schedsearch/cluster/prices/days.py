"""Offers of clouds, and their prices on each day: those to choose from, and the later price of a chosen one.

Prices change several times a day, and the study looks at them once: a time is cut to its date (dissertation,
Sec. 6.3.2). The module does not know which strategy chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HOURS = 24.0
"""Hours of a day, in which a price is looked at once."""

_MIN_SHARE = 0.01
"""The least useful share of the time: with less a job would take more than a hundred times as long."""


class Offer(NamedTuple):
    """An instance that can be rented.

    Attributes:
        cloud: Name of the cloud, as ``"aws"``.
        zone: Zone, or region where prices are the same in all its zones.
        instance: Its name at the cloud.
        gpu_type: Type of GPU, as ``"v100"``.
        num_gpus: GPUs of one instance.
    """

    cloud: str
    zone: str
    instance: str
    gpu_type: str
    num_gpus: int

    @property
    def kind(self) -> tuple[str, str, int]:
        """Return cloud, type of GPU and number of GPUs, by which offers are sorted first."""
        return self.cloud, self.gpu_type, self.num_gpus


class Quote(NamedTuple):
    """The price of an offer from a time, in UTC, on; dollars per hour for the whole instance.

    A market is all quotes of all offers, newest first; of equal times the first counts.
    """

    time: datetime
    offer: Offer
    dollars_per_hour: float


@dataclass(frozen=True)
class PriceConditions:
    """Conditions of a job's price; the defaults are the published study's (dissertation, Sec. 6.3.2).

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
        checkpoint_every_s: Work between two checkpoints; a preemption loses the work since the last one.
        checkpoint_s: Time that the writing of one takes.
    """

    carry_forward: bool = False
    rank_per_gpu: bool = False
    whole_instance: bool = False
    restart_s: float = 0.0
    egress_dollars: float = 0.0
    preemptions_per_day: float = 0.0
    checkpoint_every_s: float = 3600.0
    checkpoint_s: float = 0.0

    @property
    def useful_share(self) -> float:
        """Return the share of paid time spent on work that no preemption undoes.

        A stretch of work up to the next checkpoint begins anew after each preemption, and so does a
        restart. With exponential times between preemptions its mean time is ``exp(rR) (exp(r(C + W)) - 1) /
        r`` for rate r, restart R, work C and writing W; C over it is the share (the model of Daly, FGCS
        2006).
        """
        rate, work_s = self.preemptions_per_day / 86400.0, self.checkpoint_every_s
        stretch_s = work_s + self.checkpoint_s
        if rate * (stretch_s + self.restart_s) > math.log(1 / _MIN_SHARE) + 1:
            return 0.0
        mean_s = math.exp(rate * self.restart_s) * math.expm1(rate * stretch_s) / rate if rate else stretch_s
        return work_s / mean_s

    @property
    def makes_progress(self) -> bool:
        """Return whether a job gets anywhere: at least a hundredth of the time is of use."""
        return self.useful_share >= _MIN_SHARE and self.restart_s < 86400.0


@dataclass(frozen=True)
class DailyPrices:
    """Prices of all offers on all days up to the last, which stay then; dollars per hour for one job.

    Attributes:
        first: The first day.
        offers: All that have a price.
        day: Day of each price that can be chosen, from 0; by day, the first of equally good ones first.
        offer: Number of its offer; one may be there several times on a day.
        ranked_dollars: Price by which offers are compared.
        dollars: Price that a job pays that chooses the offer.
        changed: Whether an offer has a price that is dated that day; shape ``(days, offers)``.
        standing: The last price up to the day's end; NaN before the first. Same shape.
    """

    first: date
    offers: tuple[Offer, ...]
    day: NDArray[np.intp]
    offer: NDArray[np.intp]
    ranked_dollars: NDArray[np.float64]
    dollars: NDArray[np.float64]
    changed: NDArray[np.bool_]
    standing: NDArray[np.float64]

    @property
    def num_days(self) -> int:
        """Return the number of days."""
        return len(self.standing)


def daily_prices(market: Sequence[Quote], last: date, conditions: PriceConditions) -> DailyPrices:
    """Return the prices of each day from the oldest quote's to `last`; the market has a quote up to then.

    Offers are sorted; of equally good ones the first is taken.
    """
    quotes = [quote for quote in market if quote.time.date() <= last]
    first = quotes[-1].time.date()
    names = {quote.offer: (*quote.offer.kind, quote.offer.instance, quote.offer.zone) for quote in quotes}
    offers = tuple(sorted(names, key=lambda offer: names[offer]))
    number = {offer: index for index, offer in enumerate(offers)}
    paid = np.array([1 if conditions.whole_instance else offer.num_gpus for offer in offers])
    by_instance = [offer.cloud == "azure" and not conditions.rank_per_gpu for offer in offers]
    day = np.array([(quote.time.date() - first).days for quote in quotes])
    offer = np.array([number[quote.offer] for quote in quotes])
    dollars = np.array([quote.dollars_per_hour for quote in quotes]) / paid[offer]
    standing = np.full(((last - first).days + 1, len(offers)), np.nan)
    _, newest = np.unique(day * len(offers) + offer, return_index=True)
    standing[day[newest], offer[newest]] = dollars[newest]
    changed = ~np.isnan(standing)
    for later in range(1, len(standing)):
        standing[later] = np.where(changed[later], standing[later], standing[later - 1])
    if conditions.carry_forward:
        day, offer = np.nonzero(~np.isnan(standing))
        dollars = standing[day, offer]
    else:
        kinds = [*dict.fromkeys(one.kind for one in offers)]
        kind = np.array([kinds.index(one.kind) for one in offers])
        order = np.lexsort((kind[offer], day))  # of one kind the newest first
        day, offer, dollars = day[order], offer[order], dollars[order]
    ranked = dollars * np.where(by_instance, paid, 1)[offer]
    return DailyPrices(first, offers, day, offer, ranked, dollars, changed, standing)
