"""How a job chooses what to rent, and what it then costs: the ladder of the dissertation's Fig. 6.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.cluster.prices.conditions import PriceConditions
from schedsearch.cluster.prices.days import DailyPrices, DayOffers
from schedsearch.cluster.prices.market import Offer

HOURS = 24.0
"""Hours of a day, in which a price is looked at once."""


@dataclass(frozen=True)
class OfferStrategy:
    """A rule by which offers are chosen: the most steps per dollar of those that it admits.

    Attributes:
        name: Name as in the study's table.
        says: What it does, for people.
        any_gpu_type: Whether GPUs of other types than the baseline's are admitted.
        any_num_gpus: Whether instances of several GPUs are, of which the job takes one.
        any_cloud: Whether other clouds than AWS are.
        moves: Whether it chooses anew every day; else only when the job starts.
    """

    name: str
    says: str
    any_gpu_type: bool = True
    any_num_gpus: bool = True
    any_cloud: bool = True
    moves: bool = False

    def admits(self, offer: Offer, baseline_gpu: str) -> bool:
        """Return whether it may choose an offer."""
        return (
            (self.any_gpu_type or offer.gpu_type == baseline_gpu)
            and (self.any_num_gpus or offer.num_gpus == 1)
            and (self.any_cloud or offer.cloud == "aws")
        )


BASELINE = OfferStrategy("baseline", "the cheapest zone of one GPU type", False, False, False)
MULTI_CLOUD = OfferStrategy("multi_cloud", "also of other clouds")
DYNAMIC = OfferStrategy("preemption", "chosen anew every day (the dissertation's dynamic)", moves=True)

LADDER = (
    BASELINE,
    OfferStrategy("gpu_type", "the best GPU type", True, False, False),
    OfferStrategy("packed", "also instances of several GPUs", True, True, False),
    MULTI_CLOUD,
    DYNAMIC,
)
"""Each may choose all that the one before may."""

DayChoice = Mapping[int, float]
"""The best offers of a day, usually one, with what each costs; the first is taken."""


class JobCourse(NamedTuple):
    """The course of a job.

    Attributes:
        dollars: All that is paid.
        hours: Hours from start to end.
        moves: Moves from an offer to another.
    """

    dollars: float
    hours: float
    moves: int


def choices(
    strategy: OfferStrategy, prices: DailyPrices, speeds: NDArray[np.float64], baseline_gpu: str
) -> list[DayChoice]:
    """Return what a strategy chooses on each day; nothing where nothing has a price.

    Args:
        strategy: What it admits.
        prices: Prices of each day.
        speeds: Steps per second on one GPU of each offer; 0 where the job does not run.
        baseline_gpu: Type of GPU of the baseline.
    """
    admitted = np.array([strategy.admits(offer, baseline_gpu) for offer in prices.offers]) & (speeds > 0)
    return [_best(candidates, speeds, admitted) for candidates in prices.candidates]


def _best(candidates: DayOffers, speeds: NDArray[np.float64], admitted: NDArray[np.bool_]) -> DayChoice:
    kept = admitted[candidates.offers]
    offers, dollars = candidates.offers[kept], candidates.dollars[kept]
    if not offers.size:
        return {}
    steps_per_dollar = speeds[offers] / candidates.ranked_dollars[kept]
    best = np.flatnonzero(steps_per_dollar == steps_per_dollar.max())
    return {int(offers[each]): float(dollars[each]) for each in best}


def run(
    strategy: OfferStrategy,
    chosen: Sequence[DayChoice],
    prices: DailyPrices,
    speeds: NDArray[np.float64],
    start: int,
    steps: float,
    conditions: PriceConditions,
) -> JobCourse:
    """Return what a job costs, day by day.

    Args:
        strategy: Whether it moves.
        chosen: What is chosen on each day; see `choices`. There is an offer on the first.
        prices: Prices of each day.
        speeds: Steps per second on one GPU of each offer.
        start: Number of the day on which it starts.
        steps: Steps that the job has to do.
        conditions: What moves and preemptions cost.
    """
    held, dollars_per_hour = next(iter(chosen[start].items()))
    share, dollars, hours, moves, since = conditions.useful_share, 0.0, 0.0, 0, start
    for day in range(start, prices.num_days):
        lost_h, choice = 0.0, chosen[day] if strategy.moves else {}
        if day > start and prices.changed[day, held]:
            dollars_per_hour = float(prices.standing[day, held])
        if day > start and choice and day - since >= conditions.dwell_days:
            offer, offered = (held, choice[held]) if held in choice else next(iter(choice.items()))
            enough = (1 - conditions.min_saving) * dollars_per_hour / speeds[held]
            if offer == held:
                dollars_per_hour = offered
            elif conditions.min_saving == 0 or offered / speeds[offer] <= enough:
                moves, since, lost_h = moves + 1, day, conditions.restart_s / 3600
                if prices.offers[held].cloud != prices.offers[offer].cloud:
                    dollars += conditions.egress_dollars
                held, dollars_per_hour = offer, offered
        steps_per_hour = speeds[held] * 3600 * share
        needed_h = lost_h + steps / steps_per_hour
        spent_h = needed_h if day == prices.num_days - 1 else min(needed_h, HOURS)
        dollars += spent_h * dollars_per_hour
        hours += spent_h
        if spent_h == needed_h:
            break
        steps -= (spent_h - lost_h) * steps_per_hour
    return JobCourse(dollars, hours, moves)
