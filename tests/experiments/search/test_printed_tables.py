"""Cells of tables under the right heads, with their units: of predictions, studies and plans by profile."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import cast

import pytest

from experiments.cluster_study import task as cluster_study
from experiments.plan import pipedream_plan
from experiments.predict import task as predict
from experiments.predict.errors import Errors
from experiments.predict.measured_folder import MeasuredPlan
from experiments.predict.prediction import PlanPrediction
from placements.measured.plan_file import ReplicatedPlan
from placements.planners.pipedream.plan import PipelinePlan, PlannedStage
from schedsearch.cluster.planned_jobs.study import StudyResult

MIB = 2**20


def predicted(measured_s: float | None, predicted_s: float | None, note: str = "") -> PlanPrediction:
    plan = MeasuredPlan("a_plan", "a model", cast(ReplicatedPlan, None), measured_s, 4.0, "")
    return PlanPrediction(plan, predicted_s, 3.5, note)


def test_predictions_have_measured_and_predicted_in_their_columns() -> None:
    rows = predict.to_csv([predicted(2.0, 1.5, "odd"), predicted(None, 1.25)]).splitlines()
    assert rows == [
        "plan,measured_s,predicted_s,measured_gib,predicted_gib,note",
        "a_plan,2.00000,1.50000,4.000,3.500,odd",
        "a_plan,,1.25000,4.000,3.500,",
    ]


def test_an_error_is_a_share_of_what_was_measured() -> None:
    """1.5 s of 2 are a quarter too few, 2.5 of 2 a quarter too many; 3.5 GiB of 4 an eighth too few."""
    found = predicted(2.0, 1.5), predicted(2.0, 2.5)
    assert [each.time_error for each in found] == [-0.25, 0.25]
    assert found[0].memory_error == -0.125
    assert predicted(None, 1.5).time_error is None
    assert str(Errors.of([-0.25])) == "mean absolute error 25.0%, mean error -25.0%, worst 25.0%, of 1 plan"


ROW = {
    "run": "shifted",
    "kwh": 1234.56,
    "dollars": 78.9,
    "average_jct_h": 2.5,
    "slo_misses": 3,
    "jobs_with_slo": 40,
    "peak_kw": 5.25,
    "share_above_cap": 0.125,
}


def test_a_study_has_a_cell_for_each_head() -> None:
    assert dict(zip(cluster_study.HEADS, cluster_study.cells(ROW), strict=True)) == {
        "run": "shifted",
        "kWh": "1,234.6",
        "$": "78.90",
        "mean JCT": "2.5 h",
        "SLOs missed": "3 of 40",
        "peak": "5.25 kW",
        "above cap": "12.5%",
    }
    assert cluster_study.cells(ROW | {"share_above_cap": None})[-1] == ""


class Study:
    """Two runs, of which the second is held against the first."""

    end_s = 9000.0

    def kw_by_hour(self) -> dict[str, object]:
        return {}

    def rows(self) -> list[dict[str, object]]:
        saved = {
            "kwh_saved": 0.25,
            "dollars_saved": 0.125,
            "average_jct_h_saved": -0.61,
        }
        names = {"in_words": "later", "baseline": "first"}
        return [ROW | {"run": "first", "baseline": ""}, ROW | names | saved]


def test_a_study_in_words_tells_how_long_jobs_take() -> None:
    """The time that is saved was printed as that which is taken: +61 % of the time for 1.61 times as long."""
    *_, line = cluster_study._shown(cast(StudyResult, Study()))
    assert line.startswith("shifted: later; compared with first, it saves 25.0% of the energy and 12.5% of ")
    assert line.endswith("jobs take 1.61 times as long")


def test_the_files_of_a_study_have_hours_and_a_column_for_each_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("save_figure", "draw_savings", "draw_power_by_hour"):
        monkeypatch.setattr(cluster_study, name, lambda *given: None)
    cluster_study._save(cast(StudyResult, Study()), tmp_path)
    assert json.loads((tmp_path / "cluster_study.json").read_text())["end_h"] == 2.5
    first, *_ = csv.DictReader((tmp_path / "cluster_study.csv").open())
    assert (first["kwh"], first["dollars"], first["peak_kw"]) == ("1234.56", "78.9", "5.25")
    assert "1,234.6" in (tmp_path / "cluster_study.md").read_text()


PLAN = PipelinePlan(
    (
        PlannedStage(("a", "b"), 2, 4.0, 6.0, 1.5, 0.5, 0.25, 3 * MIB, 2 * MIB, 2),
        PlannedStage(("c",), 1, 3.0, 5.0, 0.0, 0.0, 0.0, 1 * MIB, 1 * MIB, 1),
    ),
    (),
    "per_worker",
    True,
)
"""Two workers take 10 / 2 ms for an input of 16 samples, then one takes 8."""


@pytest.mark.parametrize(("memory_mib", "note"), [(None, ""), (1.0, "does not fit in 1 MiB")])
def test_plans_by_profile_have_samples_per_second(memory_mib: float | None, note: str) -> None:
    row = pipedream_plan._row("pipedream", PLAN, memory_mib, 16)
    expected = {
        "name": "pipedream",
        "configuration": "2-1",
        "stages": 2,
        "workers": 3,
        "batch": 16,
        "time_ms": 8.0,
        "samples_per_s": 2000.0,
        "bottleneck": "compute",
        "bottleneck_stage": 1,
        "note": note,
    }
    assert {name: row[name] for name in expected} == expected
    memory = f"{row['peak_memory_mib']:.5g}"
    assert pipedream_plan._shown(row) == ["pipedream", "2-1", "8", "2000", "compute", memory, note]
