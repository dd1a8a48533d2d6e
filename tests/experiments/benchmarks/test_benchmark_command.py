from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.frontier.cases import BENCHMARK as FRONTIER
from experiments.benchmarks.peers.cases import BENCHMARK as PEERS
from experiments.benchmarks.results import COLUMNS, COMPARED, Case, CaseResult
from experiments.benchmarks.runtime.cases import BENCHMARK as RUNTIME
from experiments.benchmarks.search.cases import BENCHMARK as SEARCH
from experiments.benchmarks.server.cases import BENCHMARK as SERVER

BENCHMARKS = [SEARCH, FRONTIER, RUNTIME, SERVER, PEERS]


def interrupted() -> CaseResult:
    raise KeyboardInterrupt


DONE = Case("one", "done", "anything", lambda: CaseResult(0.5, status="OPTIMAL", period=16 / 3))
INTERRUPTED = Case("one", "interrupted", "anything", interrupted)
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


@pytest.mark.parametrize("arguments", [["shapes5"], ["--quick", "large"], ["--case", "no such case"]])
def test_a_wrong_group_or_no_case_is_an_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        SEARCH.main(arguments)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_names_are_unique_and_every_case_says_what_it_must_reach(benchmark: Benchmark) -> None:
    cases = [case for group in benchmark.groups.values() for case in group()]
    assert len({(case.group, case.name) for case in cases}) == len(cases)
    assert all(case.must for case in cases)
    assert {case.group for case in cases} == set(benchmark.groups)


@pytest.mark.parametrize("name", ["search", "frontier", "runtime", "server", "peers"])
def test_each_is_a_command(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module(f"experiments.benchmarks.{name}", run_name="__main__")
    assert capsys.readouterr().out.startswith(f"usage: experiments.benchmarks.{name} ")
