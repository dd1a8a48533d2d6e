"""`experiments.replay`: its tables, its files, and refused input."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import refusal
from made_up_job_traces import write_trace


def uneven(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return (3 if (replica, n) == (0, 0) else 1) * (0.010 if kind == "F" else 0.020)


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.always
def test_all_jobs_of_a_folder_are_replayed(ran, tmp_path: Path) -> None:
    write_trace(tmp_path, uneven, name="one", steps=(1, 2))
    write_trace(tmp_path, uneven, name="two", stages=3, chunks=2, replicas=1, steps=(5,))
    profile = tmp_path / "profile.csv"
    blocks = [f"{kind}{n}" for kind in "FB" for n in range(6)]
    profile.write_text("block,frequency,time,energy\n" + "".join(f"{b},1400,0.01,2\n" for b in blocks))
    energy = (f"profile={profile}", "blocking_power_w=100", "tokens=1000")
    done = ran("replay", f"data={tmp_path}", "work_limit=0.05", *energy)
    out = tmp_path / "out"
    rows = table(out / "replay.csv")
    assert [row["change"] for row in rows if row["job"] == "two"] == [
        *("measured", "simulated", "order", "order, backwards in halves", "order and division of layers")
    ]
    for job, gpus, numbers, stages in (("one", 4, 8, 2), ("two", 3, 4, 6)):
        row_of = {row["change"]: row for row in rows if row["job"] == job}
        measured, simulated = (float(row_of[name]["pipeline_ms"]) for name in ("measured", "simulated"))
        assert simulated == pytest.approx(measured, rel=1e-3)
        for row in row_of.values():
            assert not row["bound_ms"] or float(row["bound_ms"]) <= float(row["pipeline_ms"])
            assert not row["schedule"] or (out / row["schedule"]).is_file()
        # each block takes 2 J, and a device waits at 100 W for the rest of the pipeline's time
        causes = {
            row["cause"]: float(row["time_ms"]) for row in table(out / "causes.csv") if row["job"] == job
        }
        assert sum(ms for name, ms in causes.items() if name != "iteration") == pytest.approx(
            causes["iteration"]
        )
        energy_j = float(row_of["measured"]["energy_j"])
        # one micro-batch of a replica takes three times as long
        busy_ms = (numbers + 2) * stages * 30
        assert energy_j == pytest.approx(numbers * stages * 4 + (gpus * measured - busy_ms) / 10)
        assert float(row_of["measured"]["tokens_per_kwh"]) == pytest.approx(numbers * 1000 * 3.6e6 / energy_j)
    iterations = table(out / "iterations.csv")
    assert [(row["job"], row["step"]) for row in iterations] == [("one", "1"), ("one", "2"), ("two", "5")]
    assert "one: an iteration takes" in done.stdout
    assert " J " in done.stdout
    assert {"trace-one.json", "timelines-one.png", "causes-two.png"} <= {path.name for path in out.iterdir()}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "has no trace (subfolders are not read); traces that can be read are a job's table"),
        (
            ("profile=x.csv",),
            "blocking_power_w: is missing beside profile; give the power of a GPU that waits, in W",
        ),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, given: tuple[str, ...], message: str) -> None:
    assert message in refusal("replay", [f"data={tmp_path}", *given], tmp_path / "out")


def test_the_times_of_a_job_are_scenarios_of_a_search(ran, tmp_path: Path) -> None:
    write_trace(tmp_path, uneven, name="one", steps=(1, 2))
    ran("replay", f"data={tmp_path}", "work_limit=0.01")
    out = tmp_path / "out"
    ran(
        "search",
        *("placement=file", f"placement.path={out / 'placement-one.yaml'}", "search.num_micro_batches=4"),
        *(f"search.scenarios={out / 'scenarios-one.yaml'}", "search.scenario_quantile=0.95"),
        *("search.work_limit=0.5", "schedule=one_f_one_b"),
    )
    rows = table(out / "scenarios.csv")
    assert {row["schedule"] for row in rows} >= {"robust", "one_f_one_b"}
    for row in rows:
        assert row["scenario"] == "as measured in one"
        assert 0 < float(row["error_ms"]) < float(row["mean_ms"]) / 10
        assert float(row["bound_ms"]) <= float(row["mean_ms"])
