"""Prices of clouds and speeds of models from CSV files, in the form of the published study's data.

Types of GPUs are the same in capital and in small letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from placements.forms.reading import in_file
from placements.forms.tables import Row, csv_rows
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.cells import above_0, date_of
from schedsearch.cluster.prices.days import Offer, Quote

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

_COLUMNS = {
    "aws": ("timestamp_utc", "instance", "zone", "dollars_per_hour"),
    "azure": ("date", "instance", "gpu", "gpus", "region", "dollars_per_hour"),
    "gcp": ("timestamp_utc", "zone", "gpu", "gpus", "dollars_per_hour"),
}

CLOUDS = tuple(_COLUMNS)

_ABOVE_0 = ("a number above 0", "give one")


def read_market(folder: str | Path, clouds: tuple[str, ...] = ("aws", "azure")) -> tuple[Quote, ...]:
    """Read cloud prices of a folder: ``aws_REGION.csv`` files, and ``azure.csv`` and ``gcp.csv`` if present.

    They come newest first; of equal times in the order of the files.

    Raises:
        ClusterError: There is no file of AWS, or a line is wrong; the message names file and line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ClusterError(f"{folder}: is not a folder; give one with aws_REGION.csv and throughputs.csv")
    paths = [("aws", path) for path in sorted(folder.glob("aws_*.csv"))]
    if not paths:
        raise ClusterError(f"{folder}: has no aws_REGION.csv; add one with the price changes of a region")
    others = ((cloud, folder / f"{cloud}.csv") for cloud in CLOUDS[1:] if cloud in clouds)
    quotes = []
    for cloud, path in (*paths, *(other for other in others if other[1].exists())):
        with in_file(path, ClusterError):
            rows = csv_rows(path, "price", ClusterError, _COLUMNS[cloud])
            quotes += [_quote(cloud, row) for row in rows]
    return tuple(sorted(quotes, key=lambda quote: quote.time, reverse=True))


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
    speeds: dict[str, dict[str, float]] = {}
    with in_file(path, ClusterError):
        for row in csv_rows(Path(path), "model", ClusterError, ("model",)):
            model = row.text("model")
            if model in speeds:
                raise row.wrong(f"model {model!r} is in two rows; name each model once")
            speeds[model] = {
                column.lower().removesuffix(_SPEED): above_0(row[column], *_ABOVE_0)
                for column in row.cells
                if column.lower().endswith(_SPEED)
            }
            if not speeds[model]:
                raise row.wrong(f"{model!r} has no speed; give TYPE{_SPEED} of at least one GPU type")
    return speeds


def _quote(cloud: str, row: Row) -> Quote:
    column = "date" if cloud == "azure" else "timestamp_utc"
    if cloud == "aws":
        instance, zone = row.text("instance"), row.text("zone")
        if instance not in AWS_INSTANCES:
            known = ", ".join(AWS_INSTANCES)
            raise row.wrong(
                f"instance {instance!r} is not known; leave its lines out, or take one of {known}"
            )
        gpu_type, num_gpus = AWS_INSTANCES[instance]
    else:
        gpu_type = row.text("gpu").lower()
        num_gpus = row["gpus"].whole("a number of GPUs", "give 1 to 1024", 1, 1024)
        zone = row.text("region" if cloud == "azure" else "zone")
        instance = row.text("instance") if cloud == "azure" else f"{num_gpus}x {gpu_type}"
    time = date_of(row.text(column))
    if time is None:
        raise row[column].wrong("a time", "write it as 2020-03-23 or 2020-03-23T16:09:42Z")
    offer = Offer(cloud, zone, instance, gpu_type, num_gpus)
    return Quote(time.replace(tzinfo=None), offer, above_0(row["dollars_per_hour"], *_ABOVE_0))
