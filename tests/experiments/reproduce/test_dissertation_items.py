"""Items of the dissertation: all values as claimed, and the formulas against schedules and models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT, SHARED_DATA

from experiments.reproduce.dissertation.bubbles import SCHEMES, SIZES, bubble_over_ideal
from experiments.reproduce.dissertation.closed_forms import parameters
from experiments.reproduce.dissertation.configurations import (
    FLAT,
    NETWORKS,
    ProfileOptions,
    planned,
    profile_of,
)
from experiments.reproduce.dissertation.items import ITEMS
from experiments.reproduce.dissertation.parameters_and_days import PERCENT
from experiments.reproduce.dissertation.published import TABLE_4_1
from experiments.reproduce.dissertation.spot_prices import PRICE_ITEMS
from experiments.reproduce.item import Basis, Claim, Item, Row
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule

NOT_AS_PRINTED = {
    "dissertation_table2_2": ["vgg16", "vgg16", "alexnet", "alexnet"],
    "dissertation_table7_1": ["interleaved"] * 2,
}
"""Cases of rows that are further from the dissertation than is claimed; the items say why."""


def rows_of(item: Item) -> list[Row]:
    return list(item.rows(item.options()))


ALONE = [item for item in ITEMS if not item.inputs]


@pytest.mark.parametrize("item", ALONE, ids=lambda item: item.name)
def test_values_are_as_claimed_and_trends_hold(item: Item) -> None:
    rows = rows_of(item)
    others = [row.case for row in rows if not item.is_as_claimed(row)]
    assert rows and others == NOT_AS_PRINTED.get(item.name, [])
    assert all(trend.holds for trend in item.trends(rows))
    if item.draw is not None:
        assert item.draw(rows).axes
    small = item.rows(item.small)
    assert small and all(row in rows for row in small)
    with pytest.raises(ValueError, match=r"^only: 'none' is not a case; the cases are "):
        item.cases(item.options(only=("none",)))


@pytest.mark.skipif(not (SHARED_DATA / "spot_prices").is_dir(), reason="needs the shared data")
@pytest.mark.parametrize("item", PRICE_ITEMS, ids=lambda item: item.name)
def test_spot_prices_are_as_claimed_and_their_trends_hold(item: Item) -> None:
    data = str(SHARED_DATA / "spot_prices")
    options = item.options(data=data)
    rows = item.rows(options)
    assert len(rows) == 60
    assert not [row for row in rows if not item.is_as_claimed(row)]
    assert all(row.published is not None for row in rows) == (item.claim is Claim.EXACT)
    assert [trend.says for trend in item.trends(rows) if not trend.holds] == []
    assert item.draw is not None and item.draw(rows).axes
    with pytest.raises(ValueError, match=r"^only: 'none' is not a case; the cases are A3C, "):
        item.cases(item.options(data=data, only=("none",)))


@pytest.mark.parametrize("item", PRICE_ITEMS, ids=lambda item: item.name)
def test_spot_prices_need_their_folder(item: Item, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^data: has no value; give the folder of spot prices"):
        item.cases(item.options())
    with pytest.raises(ValueError, match="published_cost_reduction.csv: cannot be read"):
        item.cases(item.options(data=str(tmp_path)))


def test_every_figure_of_measurements_is_an_item_or_said_not_to_be_made() -> None:
    """Chapters 2 to 4; the others show how something works, or are of other systems."""
    shown = {1, *range(9, 18)}, {*range(5, 13)}, {*range(6, 9), *range(10, 19)}
    page = (ROOT / "docs/commands/reproduce.md").read_text(encoding="utf-8")
    made = {item.name for item in ITEMS}
    for i, figures in enumerate(shown, 2):
        for j in figures:
            assert (f"dissertation_figure{i}_{j}" in made) != (f"\n| {i}.{j} | " in page), f"{i}.{j}"


def test_what_is_not_made_has_a_reason() -> None:
    page = (ROOT / "docs/commands/reproduce.md").read_text(encoding="utf-8")
    for number in ("Table 2.3", "Table 3.1", "Table 5.4", "4.1", "5.4", "6.2"):
        assert f"\n| {number} | " in page, number
    made = {item.name.removeprefix("dissertation_") for item in ITEMS}
    assert made >= {"table6_1", "table6_2", "table6_3", "figure6_1", "figure6_3", "figure6_4"}
    assert "Fig. 1.4 and 5.1" in next(item.part for item in ITEMS if item.name == "dissertation_table6_1")


def test_published_values_are_compared() -> None:
    exact = {item.name: item for item in ALONE if item.claim is Claim.EXACT}
    for name, metric, count in (("table4_1", "parameters_b", 20), ("table2_2", "workers_of_first_stage", 9)):
        rows = [row for row in rows_of(exact[f"dissertation_{name}"]) if row.metric == metric]
        assert len(rows) == count and all(row.published is not None for row in rows)


def test_what_is_held_against_a_formula_is_no_printed_value() -> None:
    """Figures that print no value, and shares of the peak, which are printed throughputs over 312."""
    formulas = {item.name for item in ITEMS if item.basis is Basis.FORMULA}
    drawn = {f"dissertation_figure{number}" for number in ("2_3", "3_3", "4_3", "4_4", "4_6")}
    tables = {f"dissertation_{name}" for name in ("table7_1", "section4_3_2", "table4_2")}
    assert formulas == drawn | tables
    table = next(item for item in ITEMS if item.name == "dissertation_table4_1")
    for case, row in TABLE_4_1.items():
        (share,) = (each for each in table.rows(table.options(), case) if each.metric == PERCENT)
        assert share.ours == pytest.approx(100 * row.tflops / 312) and share.basis is Basis.FORMULA


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


def test_interleaving_holds_more_than_the_table_says() -> None:
    scheme = SCHEMES["interleaved"]
    for p, m in SIZES:
        assert scheme.stashes(scheme.schedule(p, m)) == p + (p - 1) / scheme.chunks > p


@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
def test_the_bubble_is_the_formula(make: Callable[..., Schedule]) -> None:
    for p, m in ((1, 3), (4, 2), (6, 12)):
        assert bubble_over_ideal(make(v_shape(p), m)) == pytest.approx((p - 1) / m)


def test_gpt_3_has_its_parameters() -> None:
    assert parameters(96, 12_288) / 1e9 == pytest.approx(174.6, abs=0.05)
