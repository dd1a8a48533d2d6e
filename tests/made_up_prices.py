"""Prices made up for tests: markets from tables, and folders of files in the form of the published study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from placements.forms.texts import write_text
from schedsearch.cluster.prices.days import Offer, Quote

FIRST = datetime(2020, 3, 1, 12)
"""Time of the first day's prices."""

ZONE_A = Offer("aws", "a", "p3.2xlarge", "v100", 1)
ZONE_B = Offer("aws", "b", "p3.2xlarge", "v100", 1)
SLOW = Offer("aws", "a", "p2.xlarge", "k80", 1)
FOUR = Offer("aws", "a", "p3.8xlarge", "v100", 4)
AZURE = Offer("azure", "us_east", "NC6s v3", "v100", 1)
AZURE_TWO = Offer("azure", "us_east", "NC12s v3", "v100", 2)

Prices = Mapping[Offer, Sequence[float | None]]
"""The price of each offer on each day; None where it did not change."""


def market_of(prices: Prices) -> list[Quote]:
    """Return the quotes of prices, one a day, newest first."""
    quotes = [
        Quote(FIRST + timedelta(days=day), offer, dollars)
        for offer, of_days in prices.items()
        for day, dollars in enumerate(of_days)
        if dollars is not None
    ]
    return sorted(quotes, key=lambda quote: quote.time, reverse=True)


AWS = (
    "timestamp_utc,instance,zone,dollars_per_hour\n"
    "2020-03-04T10:00:00Z,p3.2xlarge,eu-1b,1.2\n"
    "2020-03-03T10:00:00Z,p3.2xlarge,eu-1a,1.0\n"
    "2020-03-03T09:00:00Z,p2.xlarge,eu-1a,0.2\n"
    "2020-03-02T10:00:00Z,p3.2xlarge,eu-1b,0.8\n"
    "2020-03-01T10:00:00Z,p3.2xlarge,eu-1a,1.0\n"
    "2020-03-01T09:00:00Z,p3.8xlarge,eu-1a,2.0\n"
)
AZURE_FILE = (
    "date,instance,gpu,gpus,region,dollars_per_hour\n"
    "2020-03-01,NC6s v3,v100,1,us_east,0.6\n"
    "2020-03-02,NC6s v3,v100,1,us_east,0.4\n"
)
GCP = "timestamp_utc,zone,gpu,gpus,dollars_per_hour\n2020-03-01T00:00:00.000Z,us-west1-b,v100,2,0.5\n"
SPEEDS = "model,k80_steps_per_s,v100_steps_per_s\nquick,1.0,4.0\nnet (batch size 8),2.0,4.0\n"

FILES = {"aws_eu-1.csv": AWS, "azure.csv": AZURE_FILE, "gcp.csv": GCP, "throughputs.csv": SPEEDS}


def write_prices(folder: Path, files: Mapping[str, str | None] | None = None) -> Path:
    """Write a folder of prices; `files` replaces some of them, and leaves out the ones that are None."""
    for name, text in {**FILES, **(files or {})}.items():
        if text is not None:
            write_text(folder / name, text)
    return folder
