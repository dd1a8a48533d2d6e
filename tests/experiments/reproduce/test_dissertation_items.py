"""Items of the dissertation: all values as claimed, and the formulas against schedules and models."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import ROOT, SHARED_DATA

from experiments.reproduce.catalogue import ITEMS as EVERY
from experiments.reproduce.dissertation.configurations import (
    FLAT,
    NETWORKS,
    ProfileOptions,
    planned,
    profile_of,
)
from experiments.reproduce.dissertation.spot_markets import GCP_DOLLARS_PER_HOUR, TABLE_6_1
from experiments.reproduce.dissertation.spot_markets import ITEMS as MARKET_ITEMS
from experiments.reproduce.item import Item, Row

NOT_AS_PRINTED = {
    "dissertation_table2_2": ["vgg16", "vgg16", "alexnet", "alexnet"],
    "dissertation_table6_1": ["Transformer", "CycleGAN", "ResNet-50"],
    "dissertation_table6_3": ["gcp", "gcp"],
}
"""Cases of rows that are further from the dissertation than is claimed; the items say why."""

ITEMS = [EVERY[name] for name in EVERY if name.startswith("dissertation")]
ALONE = [item for item in ITEMS if item not in MARKET_ITEMS]
SPOT_PRICES = SHARED_DATA / "spot_prices"


def rows_of(item: Item) -> list[Row]:
    return list(item.rows(item.options()))


@pytest.mark.parametrize("item", ALONE, ids=lambda item: item.name)
def test_values_are_as_claimed_and_trends_hold(item: Item) -> None:
    rows = rows_of(item)
    others = [row.case for row in rows if not item.is_as_claimed(row)]
    assert rows and others == NOT_AS_PRINTED.get(item.name, [])
    assert all(trend.holds for trend in item.trends(rows))
    assert item.draw is None or item.draw(rows).axes
    small = item.rows(item.small)
    assert small and all(row in rows for row in small)


@pytest.mark.skipif(not SPOT_PRICES.is_dir(), reason="needs the shared data")
@pytest.mark.parametrize(
    ("item", "count"),
    zip(MARKET_ITEMS, (20, 4, 8, 60), strict=True),
    ids=lambda value: getattr(value, "name", ""),
)
def test_spot_prices_are_as_claimed_and_their_trends_hold(item: Item, count: int) -> None:
    rows = item.rows(item.options(data=str(SPOT_PRICES)))
    assert len(item.compared(rows)) == len(rows) == count
    assert [row.case for row in rows if not item.is_as_claimed(row)] == NOT_AS_PRINTED.get(item.name, [])
    assert [trend.says for trend in item.trends(rows) if not trend.holds] == []
    assert item.draw is None or item.draw(rows).axes


def test_two_values_by_dollar_do_not_follow_from_the_printed_speeds() -> None:
    others = [
        (model, gpu)
        for model, (_, published) in TABLE_6_1.items()
        for gpu, (speed, per_dollar) in zip(("p100", "v100"), published, strict=True)
        if abs(speed * GCP_DOLLARS_PER_HOUR["k80"][0] / GCP_DOLLARS_PER_HOUR[gpu][0] - per_dollar) > 0.051
    ]
    assert others == [("Transformer", "v100"), ("ResNet-50", "v100")]


@pytest.mark.parametrize("item", MARKET_ITEMS, ids=lambda item: item.name)
def test_spot_prices_need_their_folder(item: Item) -> None:
    with pytest.raises(ValueError, match="^data: has no value; give the folder of spot prices"):
        item.cases(item.options())


def test_the_published_table_is_read_with_the_prices(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"published_cost_reduction.csv: cannot be read"):
        MARKET_ITEMS[-1].cases(MARKET_ITEMS[-1].options(data=str(tmp_path)))


def test_every_figure_of_measurements_is_an_item_or_said_not_to_be_made() -> None:
    """Chapters 2 to 4; the others show how something works, or are of other systems."""
    shown = {1, *range(9, 18)}, {*range(5, 13)}, {*range(6, 9), *range(10, 19)}
    page = (ROOT / "docs/commands/reproduce.md").read_text(encoding="utf-8")
    made = {item.name for item in ITEMS}
    for i, figures in enumerate(shown, 2):
        for j in figures:
            assert (f"dissertation_figure{i}_{j}" in made) != (f"\n| {i}.{j} | " in page), f"{i}.{j}"


def test_no_stage_has_15_workers_of_4x4() -> None:
    """Two levels divide servers, or the workers of one; 15-1 needs three servers and a part of a fourth."""
    for model in ("vgg16", "alexnet"):
        profile = profile_of(model)
        assert planned(profile, FLAT, "per_worker") == [15, 1]
        for network, expected in (("4x4 (A)", [12, 4]), ("2x8 (B)", [8, 8])):
            assert planned(profile, network, "per_worker") == expected
            inner = NETWORKS[network][0].count
            for sync in ("per_worker", "printed"):
                workers = planned(profile, network, sync)
                assert all(each <= inner or each % inner == 0 for each in workers), (network, sync)
    assert planned(profile_of("vgg16"), "4x4 (A)", "printed") == [12, 3, 1]


@pytest.mark.skipif(not (SHARED_DATA / "pipedream").is_dir(), reason="needs the shared data")
def test_gnmt_comes_from_its_profile() -> None:
    options = ProfileOptions(only=("gnmt",), data=str(SHARED_DATA / "pipedream"))
    table = next(item for item in ITEMS if item.name == "dissertation_table2_2")
    workers = {row.label: row.ours for row in table.rows(options) if row.metric == "workers_of_first_stage"}
    assert workers == {"1x4 (A)": 1, "3x4 (A)": 4, "2x8 (B)": 8}
    with pytest.raises(ValueError, match="^data: .*gnmt.csv"):
        table.cases(ProfileOptions(data="nowhere"))
