"""Prices and speeds from files: a wrong line is an error of one line with its place."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from made_up_prices import AWS, AZURE_FILE, SPEEDS, write_prices
from one_line_errors import raises_line

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.prices.days import Offer
from schedsearch.cluster.prices.price_files import read_market, read_speeds


def test_a_folder_is_read_newest_first(tmp_path: Path) -> None:
    market = read_market(write_prices(tmp_path))
    assert len(market) == 8
    assert {quote.offer.cloud for quote in market} == {"aws", "azure"}
    newest = market[0]
    assert newest.offer == Offer("aws", "eu-1b", "p3.2xlarge", "v100", 1)
    assert (newest.time, newest.dollars_per_hour) == (datetime(2020, 3, 4, 10), 1.2)


def test_only_the_clouds_that_are_asked_for_are_read(tmp_path: Path) -> None:
    folder = write_prices(tmp_path, {"azure.csv": None})
    assert {quote.offer.cloud for quote in read_market(folder)} == {"aws"}
    market = read_market(folder, ("aws", "azure", "gcp"))
    assert {quote.offer.cloud for quote in market} == {"aws", "gcp"}
    offers = {quote.offer for quote in market}
    assert Offer("gcp", "us-west1-b", "2x v100", "v100", 2) in offers


def test_a_time_of_another_zone_is_made_utc(tmp_path: Path) -> None:
    text = AWS.replace("2020-03-04T10:00:00Z", "2020-03-04T10:00:00+12:00")
    market = read_market(write_prices(tmp_path, {"aws_eu-1.csv": text}))
    assert market[0].time == datetime(2020, 3, 3, 22)


def test_types_of_gpus_in_capital_letters_are_the_same(tmp_path: Path) -> None:
    folder = write_prices(tmp_path)
    for name in ("azure.csv", "gcp.csv", "throughputs.csv"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("v100", "V100").replace("k80", "K80"))
    clouds = ("aws", "azure", "gcp")
    (tmp_path / "small").mkdir()
    same = write_prices(tmp_path / "small")
    assert read_market(folder, clouds) == read_market(same, clouds)
    assert read_speeds(folder / "throughputs.csv") == read_speeds(same / "throughputs.csv")


def test_speeds_by_model_and_type(tmp_path: Path) -> None:
    path = write_prices(tmp_path, {"throughputs.csv": SPEEDS + "no k80,,3\n"}) / "throughputs.csv"
    speeds = read_speeds(path)
    assert speeds["quick"] == {"k80": 1.0, "v100": 4.0}
    assert speeds["no k80"] == {"v100": 3.0}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "aws_eu-1.csv",
            AWS.replace("p2.xlarge", "m5.large"),
            "line 4: instance 'm5.large' is not known; le",
        ),
        (
            "azure.csv",
            AZURE_FILE.replace("v100,1,", "v100,0,"),
            "line 2, column gpus: '0' is not a number of",
        ),
    ],
)
def test_a_wrong_price_is_a_line(tmp_path: Path, file: str, text: str, message: str) -> None:
    folder = write_prices(tmp_path, {file: text})
    with raises_line(ClusterError, f"{folder / file}: ", has=message):
        read_market(folder, ("aws", "azure", "gcp"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SPEEDS + "quick,1,2\n", "line 4: model 'quick' is in two rows; name each model once"),
        (SPEEDS.replace("1.0", "fast"), "line 2, column k80_steps_per_s: 'fast' is not a number above 0"),
        ("model,v100_steps_per_s\nslow,\n", "line 2: 'slow' has no speed; give TYPE_steps_per_s of at least"),
    ],
)
def test_a_wrong_speed_is_a_line(tmp_path: Path, text: str, message: str) -> None:
    path = write_prices(tmp_path, {"throughputs.csv": text}) / "throughputs.csv"
    with raises_line(ClusterError, f"{path}: ", has=message):
        read_speeds(path)


def test_what_is_not_there_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="has no aws_REGION.csv; add one"):
        read_market(tmp_path)
