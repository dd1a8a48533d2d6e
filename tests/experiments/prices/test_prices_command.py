"""The command of spot prices: another region's folder, written files, and one-line errors."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_prices import write_prices
from places import SHARED_DATA

Command = Callable[..., subprocess.CompletedProcess[str]]

STARTS = "start_days=[0,2]"
QUICK = "durations=[]"


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_another_region_gets_all_tables_and_figures(ran: Command, tmp_path: Path) -> None:
    """Two start days of a day's job: 24 (1.0 + 0.8) dollars of the baseline, 24 (0.5 + 0.4) of moving."""
    done = ran("prices", f"data={write_prices(tmp_path / 'eu')}", STARTS, "days=[1]", draws=True)
    out = tmp_path / "out"
    rows = table(out / "reductions.csv")
    assert list(rows[0]) == ["model", "days", "strategy", "reduction"]
    names = ["baseline", "gpu_type", "packed", "multi_cloud", "preemption"]
    assert [row["strategy"] for row in rows] == [name for name in names for _ in range(2)]
    reductions = {(row["model"], row["strategy"]): float(row["reduction"]) for row in rows}
    assert reductions["quick", "preemption"] == pytest.approx((1.0 + 0.8) / (0.5 + 0.4))
    costs = table(out / "costs.csv")
    assert float(costs[0]["mean_dollars"]) == pytest.approx(24 * 0.9) and costs[0]["mean_moves"] == "0"
    assert {row["days"] for row in table(out / "durations.csv")} == {"0.5", "1", "2", "4", "8"}
    for name in ("reductions", "durations"):
        assert all((out / f"{name}.{form}").stat().st_size for form in ("png", "svg", "pdf"))
    assert "cheapest zone of AWS with one v100" in done.stdout
    assert "2 start days, 2020-03-01 to 2020-03-02" in done.stdout


@pytest.mark.always
def test_without_azure_two_strategies_are_left_out_and_said(ran: Command, tmp_path: Path) -> None:
    folder = write_prices(tmp_path / "eu", {"azure.csv": None})
    ran("prices", f"data={folder}", STARTS, QUICK)
    strategies = {row["strategy"] for row in table(tmp_path / "out/reductions.csv")}
    assert strategies == {"baseline", "gpu_type", "packed"}
    said = [" ".join(line.split()) for line in (tmp_path / "out/prices.log").read_text().splitlines()]
    (line,) = [line for line in said if "left out" in line]
    assert line.endswith("(azure.csv is missing): multi_cloud, preemption")


def test_conditions_change_what_is_paid(ran: Command, tmp_path: Path) -> None:
    """A checkpoint that takes as long as the work before it doubles all costs, and no reduction."""
    folder = write_prices(tmp_path / "eu")
    overrides = ("checkpoint_s=3600", "carry_forward=true", "days=[0.25]", 'models=["net (batch size 8)"]')
    ran("prices", f"data={folder}", STARTS, *overrides, QUICK)
    costs = table(tmp_path / "out/costs.csv")
    assert [row["model"] for row in costs] == ["net (batch size 8)"] * 5
    assert float(costs[0]["mean_hours"]) == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=nowhere"], "nowhere: is not a folder; give one with aws_REGION.csv"),
        (["days=[]"], "days: [] is not a list of at least one; give lengths of jobs, as [4,8]"),
        (["start_days=[1]"], "start_days: [1] is not two places, from and to; give them as [-35,-5]"),
        (["start_days=[9,10]"], "start_days: [9, 10] has no day among the 4 with a price of the baseline"),
        (["clouds=[aws,other]"], "clouds: 'other' is not known; the options are aws, azure, gcp"),
        (["clouds=[azure]"], "clouds: ['azure'] is not with aws, of which the baseline is"),
        (["baseline_gpu=a100"], "throughputs.csv: 'quick' has no a100_steps_per_s, of which the baseline is"),
        (["preemptions_per_day=900"], "preemptions_per_day: with 900 of them"),
    ],
)
def test_a_wrong_option_is_a_line(
    refused: Callable[..., str], tmp_path: Path, overrides: list[str], message: str
) -> None:
    folder = write_prices(tmp_path / "eu")
    assert message in refused("prices", f"data={folder}", STARTS, *overrides)
    assert not (tmp_path / "out/reductions.csv").exists()


@pytest.mark.skipif(not (SHARED_DATA / "spot_prices").is_dir(), reason="needs the shared data")
def test_the_published_folder_gives_the_published_table(ran: Command, tmp_path: Path) -> None:
    folder = SHARED_DATA / "spot_prices"
    printed = table(folder / "published_cost_reduction.csv")
    models = ",".join(f'"{model}"' for model in dict.fromkeys(row["model"] for row in printed))
    ran("prices", f"data={folder}", f"models=[{models}]", QUICK)
    reductions = {tuple(row.values())[:3]: row["reduction"] for row in table(tmp_path / "out/reductions.csv")}
    assert len(printed) == len(reductions) == 60
    for row in printed:
        ours = reductions[row["model"], row["job_days_on_v100"], row["strategy"]]
        assert f"{float(ours):.2f}" == row["cost_reduction"]
