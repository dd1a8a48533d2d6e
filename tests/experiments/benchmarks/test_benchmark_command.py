from __future__ import annotations

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest

from experiments.benchmarks import comparison
from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.comparison import missing, missing_file
from experiments.benchmarks.results import COLUMNS, COMPARED, BenchmarkCase, CaseResult

ROOMS = ("search", "frontier", "planners", "cluster", "peers", "runtime", "server")


def interrupted() -> CaseResult:
    raise KeyboardInterrupt


DONE = BenchmarkCase("done", "anything", lambda: CaseResult(0.5, status="OPTIMAL", period=16 / 3))
INTERRUPTED = BenchmarkCase("interrupted", "anything", interrupted)
ONE = Benchmark("one", "Measure one thing.", {"one": lambda: [DONE], "all": lambda: [DONE, INTERRUPTED]})


def test_the_rows_are_a_whole_results_file_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results.json"
    assert ONE.main(["one", "--output", str(output)]) == 0
    results = json.loads(output.read_text(encoding="utf-8"))
    assert results["schema_version"] == 1
    about = {"platform", "cpu", "cores", "load_average", "niceness", "python", "packages", "date"}
    assert set(results["machine"]) == about
    assert {"z3-solver", "ortools"} <= set(results["machine"]["packages"])
    assert [row["case"] for row in results["rows"]] == ["done"]
    out = capsys.readouterr().out
    assert " | ".join(COLUMNS[len(COMPARED) :]) in out
    assert COMPARED[0] not in out
    assert f"1 of 1 met; results in {output}" in out
    assert (
        "| one | done | anything | OPTIMAL | 5.33333 | 0.50 | yes |" in output.with_suffix(".md").read_text()
    )


def test_an_interrupted_run_keeps_the_rows_that_are_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results.json"
    assert ONE.main(["all", "--output", str(output)]) == 130
    written = json.loads(output.read_text(encoding="utf-8"))
    assert [row["case"] for row in written["rows"]] == ["done"]
    assert "1 of 1 met" in output.with_suffix(".md").read_text(encoding="utf-8")
    assert capsys.readouterr().err.endswith(f"interrupted; the rows done are in {output}\n")


@pytest.mark.parametrize("arguments", [["two"], ["--quick", "one"], ["--case", "no such case"]])
def test_a_wrong_group_or_no_case_is_an_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        ONE.main(arguments)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("room", ROOMS)
def test_names_are_unique_and_every_case_says_what_it_must_reach(room: str) -> None:
    benchmark = import_module(f"experiments.benchmarks.{room}.cases").BENCHMARK
    assert benchmark.name == room
    for group in benchmark.groups.values():
        cases = list(group())
        assert cases and len({case.name for case in cases}) == len(cases)
        assert all(case.must for case in cases)


def test_what_is_lacking_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = BenchmarkCase(
        "impossible", "anything", interrupted, lacks=lambda: missing_file(tmp_path / "profile.csv")
    )
    lacking = Benchmark("one", "Measure one thing.", {"one": lambda: [case]})
    assert lacking.main(["--output", str(tmp_path / "results.json")]) == 0
    assert "0 of 1 met, 1 skipped" in capsys.readouterr().out
    assert "| skipped: profile.csv is not there |" in (tmp_path / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("installed", ["", "1.0"])
def test_an_optional_package_is_named_with_its_version(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison.importlib.util, "find_spec", lambda _: object() if installed else None)
    monkeypatch.setattr(comparison.importlib.metadata, "version", lambda _: installed)
    assert missing("lowtime", "0.3.0").endswith("pip install lowtime==0.3.0")
    assert missing("lowtime", "1.0") == (
        "" if installed else "lowtime is not installed; pip install lowtime==1.0"
    )
    assert bool(missing("torch")) == (not installed)


@pytest.mark.parametrize("name", [*ROOMS, "instances"])
def test_each_is_a_command_and_can_be_imported(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    runpy.run_module(f"experiments.benchmarks.{name}.__main__", run_name="imported")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module(f"experiments.benchmarks.{name}", run_name="__main__")
    assert capsys.readouterr().out.startswith(f"usage: experiments.benchmarks.{name} ")
