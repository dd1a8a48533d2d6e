"""Prices of clouds and speeds of models from CSV files, in the form of the published study's data.

Types of GPUs are the same in capital and in small letters.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.prices.market import Market, Offer, Quote

AWS_INSTANCES: Mapping[str, tuple[str, int]] = {
    "p2.xlarge": ("k80", 1),
    "p2.8xlarge": ("k80", 8),
    "p2.16xlarge": ("k80", 16),
    "p3.2xlarge": ("v100", 1),
    "p3.8xlarge": ("v100", 4),
    "p3.16xlarge": ("v100", 8),
    "p3dn.24xlarge": ("v100", 8),
    "p4d.24xlarge": ("a100", 8),
    "p4de.24xlarge": ("a100", 8),
    "p5.48xlarge": ("h100", 8),
}
"""GPUs of AWS's instances, which its price lists do not name."""

_SPEED = "_steps_per_s"

CLOUDS = ("aws", "azure", "gcp")

Row = Mapping[str, str]


def read_market(folder: str | Path, clouds: tuple[str, ...] = ("aws", "azure")) -> Market:
    """Read the prices of a folder: ``aws_REGION.csv``, and ``azure.csv`` and ``gcp.csv`` if they are there.

    Args:
        folder: Their place.
        clouds: Those that are read.

    Raises:
        ClusterError: There is no file of AWS, or a line is wrong; the message names file and line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ClusterError(f"{folder}: is not a folder; give one with aws_REGION.csv and throughputs.csv")
    paths = sorted(folder.glob("aws_*.csv"))
    if not paths:
        raise ClusterError(f"{folder}: has no aws_REGION.csv; add one with the price changes of a region")
    quotes = [quote for path in paths for quote in _quotes(path, _AWS_COLUMNS, _aws_quote)]
    for cloud, columns, read in (
        ("azure", _AZURE_COLUMNS, _azure_quote),
        ("gcp", _GCP_COLUMNS, _gcp_quote),
    ):
        path = folder / f"{cloud}.csv"
        if cloud in clouds and path.exists():
            quotes.extend(_quotes(path, columns, read))
    return Market.of(quotes)


def read_speeds(path: str | Path) -> dict[str, dict[str, float]]:
    """Read how fast each model is on one GPU of each type.

    Args:
        path: A CSV file with ``model`` and a column ``TYPE_steps_per_s`` for each type of GPU; an empty cell
            is a GPU that the model does not run on.

    Returns:
        Steps per second by model and type of GPU.

    Raises:
        ClusterError: A line is wrong; the message names file and line.
    """
    path = Path(path)
    speeds: dict[str, dict[str, float]] = {}
    for where, row in _rows(path, ("model",)):
        model = row["model"].strip()
        if not model or model in speeds:
            raise ClusterError(f"{where}: model {model!r} is empty or in two rows; name each model once")
        speeds[model] = {
            column.removesuffix(_SPEED).lower(): _number(f"{where}, {column}", text)
            for column, text in row.items()
            if column.endswith(_SPEED) and text.strip()
        }
        if not speeds[model]:
            raise ClusterError(f"{where}: {model!r} has no speed; give TYPE{_SPEED} of at least one GPU type")
    if not speeds:
        raise ClusterError(f"{path}: has no models; give at least one row")
    return speeds


_AWS_COLUMNS = ("timestamp_utc", "instance", "zone", "dollars_per_hour")
_AZURE_COLUMNS = ("date", "instance", "gpu", "gpus", "region", "dollars_per_hour")
_GCP_COLUMNS = ("timestamp_utc", "zone", "gpu", "gpus", "dollars_per_hour")


def _aws_quote(where: str, row: Row) -> Quote:
    name = row["instance"]
    if name not in AWS_INSTANCES:
        raise ClusterError(
            f"{where}: instance {name!r} is not known; leave its lines out, or take one of "
            f"{', '.join(AWS_INSTANCES)}"
        )
    gpu_type, num_gpus = AWS_INSTANCES[name]
    return _quote(where, row, "timestamp_utc", Offer("aws", row["zone"], name, gpu_type, num_gpus))


def _azure_quote(where: str, row: Row) -> Quote:
    num_gpus = _count(f"{where}, gpus", row["gpus"])
    offer = Offer("azure", row["region"], row["instance"], row["gpu"].lower(), num_gpus)
    return _quote(where, row, "date", offer)


def _gcp_quote(where: str, row: Row) -> Quote:
    num_gpus = _count(f"{where}, gpus", row["gpus"])
    gpu_type = row["gpu"].lower()
    offer = Offer("gcp", row["zone"], f"{num_gpus}x {gpu_type}", gpu_type, num_gpus)
    return _quote(where, row, "timestamp_utc", offer)


def _quote(where: str, row: Row, column: str, offer: Offer) -> Quote:
    dollars = _number(f"{where}, dollars_per_hour", row["dollars_per_hour"])
    return Quote(_time(f"{where}, {column}", row[column]), offer, dollars)


def _quotes(path: Path, columns: tuple[str, ...], read: Callable[[str, Row], Quote]) -> list[Quote]:
    found = [read(where, row) for where, row in _rows(path, columns)]
    if not found:
        raise ClusterError(f"{path}: has no prices; give at least one row")
    return found


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, Row]]:
    """Yield each row of a table with its place, for messages."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for column in columns:
                if column not in (reader.fieldnames or ()):
                    raise ClusterError(f"{path}: lacks the column {column!r}; add it")
            for row in reader:
                where = f"{path}: line {reader.line_num}"
                if None in row or None in row.values():
                    raise ClusterError(
                        f"{where}: has not the {len(reader.fieldnames or ())} fields of line 1; complete it"
                    )
                yield where, row
    except OSError as cause:
        raise ClusterError(f"{path}: cannot be read ({cause.strerror}); give a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as cause:
        raise ClusterError(f"{path}: is not CSV ({cause}); give a CSV file") from None


def _time(where: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ClusterError(
            f"{where}: {text!r} is not a time; write it as 2020-03-23 or 2020-03-23T16:09:42Z"
        ) from None
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _number(where: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ClusterError(f"{where}: {text!r} is not a number above 0; give one")
    return number


def _count(where: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1024):
        raise ClusterError(f"{where}: {text!r} is not a number of GPUs; give 1 to 1024")
    return int(text)
