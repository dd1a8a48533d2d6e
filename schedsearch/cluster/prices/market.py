"""Offers of clouds and their prices over time. The module does not know who rents them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


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


@dataclass(frozen=True)
class Market:
    """All quotes of all offers, newest first; of equal times the first counts."""

    quotes: tuple[Quote, ...]

    @staticmethod
    def of(quotes: Sequence[Quote]) -> Market:
        """Return the market of quotes in any order; of equal times the quote given first counts."""
        return Market(tuple(sorted(quotes, key=lambda quote: quote.time, reverse=True)))

    @property
    def clouds(self) -> tuple[str, ...]:
        """Return the clouds by name."""
        return tuple(sorted({quote.offer.cloud for quote in self.quotes}))


def in_order(offers: Mapping[Offer, object]) -> list[Offer]:
    """Return offers sorted; of equally good ones the first is taken."""
    return sorted(offers, key=lambda offer: (*offer.kind, offer.instance, offer.zone))
