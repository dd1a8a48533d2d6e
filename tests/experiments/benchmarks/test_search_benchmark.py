from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from places import ROOT

from experiments.benchmarks.results import COLUMNS, Case, Outcome
from experiments.benchmarks.search import main, run
from experiments.benchmarks.search.cases import GROUPS
from experiments.benchmarks.search.measuring import BestKnown, finite, steady, sweep
from placements.shapes import v_shape

V3 = v_shape(3).with_memory(3)


def test_the_quick_cases_leave_a_whole_results_file(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "experiments.benchmarks.search", "--quick", "--output", str(output)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text(encoding="utf-8"))
    assert results["schema_version"] == 1
    about = {"platform", "cpu", "cores", "load_average", "niceness", "python", "packages", "date"}
    assert set(results["machine"]) == about
    assert {"z3-solver", "ortools"} <= set(results["machine"]["packages"])
    rows = results["rows"]
    assert len(rows) > 15
    assert {"shapes4", "every_memory", "several", "finite", "real_ratios"} <= {row["group"] for row in rows}
    for row in rows:
        assert row["must"]
        assert row["cpu_s"] > 0
        assert row["met"] == (not row["missed"])
        # Whether it was quick enough depends on the machine; what was found does not.
        assert all("CPU s" in text for text in row["missed"]), row
    lines = output.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert table[0] == "| " + " | ".join(COLUMNS) + " |"
    assert len(table) == 2 + len(rows)
    assert f"of {len(rows)} met; results in {output}" in done.stdout


def test_a_wrong_expectation_is_reported_as_not_met(tmp_path: Path) -> None:
    cases = [
        Case("wrong", "period", "period 3", partial(steady, V3, period=3, cpu_s=1e6)),
        Case("wrong", "bubble", "period at most 3", partial(steady, V3, at_most=3.5, cpu_s=1e6)),
        Case("wrong", "time", "no time", partial(steady, V3, period=4, cpu_s=1e-9)),
        Case("wrong", "sweep", "period 3", partial(sweep, {"memory 3": (V3, 3.0)}, cpu_s=1e6, each_s=1e6)),
        Case("wrong", "makespan", "less than possible", partial(_finite, BestKnown(23, is_optimal=True))),
        Case("right", "makespan", "least", partial(_finite, BestKnown(24, is_optimal=True))),
        Case("right", "proof", "proved", partial(_finite, BestKnown(24, is_optimal=False))),
        Case("right", "period", "period 4", partial(steady, V3, period=4, cpu_s=1e6)),
    ]
    rows = run(cases, tmp_path / "results.json")
    assert [row.outcome.is_met for row in rows] == [case.group == "right" for case in cases]
    assert rows[0].outcome.missed == ("period is not 3",)
    assert rows[3].outcome.missed == ("memory 3: period is not 3.0",)
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    assert [row["met"] for row in written] == [case.group == "right" for case in cases]
    assert "NO: period is not 3" in (tmp_path / "results.md").read_text(encoding="utf-8")


def _finite(best: BestKnown) -> Outcome:
    return finite(V3, 4, best, time_limit_s=10.0, polish_time_limit_s=5.0)


def test_an_interrupted_run_keeps_the_rows_that_are_done(tmp_path: Path) -> None:
    def interrupted() -> Outcome:
        raise KeyboardInterrupt

    cases = [
        Case("one", "done", "anything", lambda: Outcome(0.5, status="OPTIMAL", period=16 / 3)),
        Case("one", "interrupted", "anything", interrupted),
    ]
    with pytest.raises(KeyboardInterrupt):
        run(cases, tmp_path / "results.json")
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["case"] for row in written["rows"]] == ["done"]
    assert "1 of 1 met" in (tmp_path / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [["shapes5"], ["--quick", "large"], ["--case", "no such case"]])
def test_a_wrong_group_or_no_case_is_an_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "Traceback" not in capsys.readouterr().err


def test_names_are_unique_and_every_case_says_what_it_must_reach() -> None:
    cases = [case for group in GROUPS.values() for case in group()]
    assert len({(case.group, case.name) for case in cases}) == len(cases)
    assert all(case.must for case in cases)
    assert {case.group for case in cases} == set(GROUPS)
