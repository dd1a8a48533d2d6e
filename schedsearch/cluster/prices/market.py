"""Offers of clouds and their prices over time, as step functions. The module does not know who rents them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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
    """The price of an offer from a time, in UTC, on; dollars per hour for the whole instance."""

    time: datetime
    offer: Offer
    dollars_per_hour: float


class PriceSeries(NamedTuple):
    """The price of one offer over time: each price holds until the next.

    Attributes:
        offer: Offer that the prices are of.
        times_s: Since 1970, not decreasing; of equal times the last counts.
        dollars_per_hour: Price from each time on, for the whole instance.
    """

    offer: Offer
    times_s: NDArray[np.float64]
    dollars_per_hour: NDArray[np.float64]

    def at(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the price at each time, for the whole instance; NaN before the first."""
        place = np.searchsorted(self.times_s, times_s, side="right") - 1
        return np.where(place < 0, np.nan, self.dollars_per_hour[place])


@dataclass(frozen=True)
class Market:
    """All quotes of all offers, newest first; of equal times the first counts."""

    quotes: tuple[Quote, ...]

    @staticmethod
    def of(quotes: Sequence[Quote]) -> Market:
        """Return the market of quotes in any order; of equal times the quote given first counts."""
        return Market(tuple(sorted(quotes, key=lambda quote: quote.time, reverse=True)))

    @cached_property
    def series(self) -> tuple[PriceSeries, ...]:
        """Return the prices of each offer, by cloud, type of GPU, GPUs, instance and zone."""
        of_offer: dict[Offer, list[tuple[float, float]]] = {}
        for quote in reversed(self.quotes):
            of_offer.setdefault(quote.offer, []).append((seconds(quote.time), quote.dollars_per_hour))
        return tuple(PriceSeries(offer, *np.array(of_offer[offer]).T) for offer in in_order(of_offer))

    @property
    def clouds(self) -> tuple[str, ...]:
        """Return the clouds by name."""
        return tuple(sorted({series.offer.cloud for series in self.series}))

    def min_prices(self, times_s: NDArray[np.float64]) -> Mapping[str, NDArray[np.float64]]:
        """Return the least price of one GPU of each type at each time (any shape, in s since 1970).

        These are `GpuCluster.dollars_per_hour` over time, for a cluster that rents the cheapest offer; NaN
        before a type's first price.
        """
        found: dict[str, NDArray[np.float64]] = {}
        for series in self.series:
            each = series.at(times_s) / series.offer.num_gpus
            gpu_type = series.offer.gpu_type
            found[gpu_type] = np.fmin(found[gpu_type], each) if gpu_type in found else each
        return found


def seconds(time: datetime) -> float:
    """Return a time in UTC as seconds since 1970."""
    return time.replace(tzinfo=UTC).timestamp()


def in_order(offers: Mapping[Offer, object]) -> list[Offer]:
    """Return offers sorted; of equally good ones the first is taken."""
    return sorted(offers, key=lambda offer: (*offer.kind, offer.instance, offer.zone))
