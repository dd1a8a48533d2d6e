"""Items of the dissertation: all values as claimed, and the formulas against schedules and models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT, SHARED_DATA

from experiments.reproduce.catalogue import ITEMS as EVERY
from experiments.reproduce.dissertation.configurations import (
    FLAT,
    NETWORKS,
    planned,
    profile_of,
)
from experiments.reproduce.item import DataOptions

TABLE_2_2, FIGURE_6_5 = EVERY["dissertation_table2_2"], EVERY["dissertation_figure6_5"]
SPOT_PRICES = SHARED_DATA / "spot_prices"


def test_configurations_are_as_claimed_and_trends_hold() -> None:
    rows = TABLE_2_2.rows(TABLE_2_2.options())
    others = [row.case for row in rows if not TABLE_2_2.is_as_claimed(row)]
    assert others == ["vgg16", "vgg16", "alexnet", "alexnet"], "the item says why"
    assert all(trend.holds for trend in TABLE_2_2.trends(rows))


@pytest.mark.skipif(not SPOT_PRICES.is_dir(), reason="needs the shared data")
def test_spot_prices_are_as_claimed() -> None:
    rows = FIGURE_6_5.rows(FIGURE_6_5.options(data=str(SPOT_PRICES)))
    assert len(FIGURE_6_5.compared(rows)) == len(rows) == 60
    assert all(FIGURE_6_5.is_as_claimed(row) for row in rows)


def test_spot_prices_and_the_published_table_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^data: has no value; give the folder of published_cost"):
        FIGURE_6_5.cases(FIGURE_6_5.options())
    with pytest.raises(ValueError, match="^data: .* has no published_cost_reduction.csv; give"):
        FIGURE_6_5.cases(FIGURE_6_5.options(data=str(tmp_path)))


def test_every_figure_of_measurements_is_an_item_or_said_not_to_be_made() -> None:
    """Chapters 2 to 4; the others show how something works, or are of other systems."""
    shown = {1, *range(9, 18)}, {*range(5, 13)}, {*range(6, 9), *range(10, 19)}
    page = (ROOT / "docs/commands/reproduce.md").read_text(encoding="utf-8")
    spans = re.findall(r"\b(\d)\.(\d+)(?: to \d\.(\d+))?", page.split("## What is not made")[1])
    not_made = {(int(i), j) for i, first, last in spans for j in range(int(first), int(last or first) + 1)}
    for i, figures in enumerate(shown, 2):
        for j in figures:
            assert (f"dissertation_figure{i}_{j}" in EVERY) != ((i, j) in not_made), f"{i}.{j}"


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
                assert all(number <= inner or number % inner == 0 for number in workers), (network, sync)
    assert planned(profile_of("vgg16"), "4x4 (A)", "printed") == [12, 3, 1]


@pytest.mark.skipif(not (SHARED_DATA / "pipedream").is_dir(), reason="needs the shared data")
def test_gnmt_comes_from_its_profile() -> None:
    options = DataOptions(only=("gnmt",), data=str(SHARED_DATA / "pipedream"))
    workers = {
        row.label: row.ours for row in TABLE_2_2.rows(options) if row.metric == "workers_of_first_stage"
    }
    assert workers == {"1x4 (A)": 1, "3x4 (A)": 4, "2x8 (B)": 8}
    with pytest.raises(ValueError, match="^data: .*gnmt.csv"):
        TABLE_2_2.cases(DataOptions(data="nowhere"))
