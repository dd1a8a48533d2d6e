"""Sweeps: a point that fails is a row, finished points are kept, and all runs make one table."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import DictConfig

from experiments.collect import TABLE, collect, main
from experiments.config.command import Failed, Interrupted, run
from experiments.config.run_record import RunRecordError, read_run_record
from experiments.report.result import Result
from experiments.sweep import SweepEnd, draw_sweep

SMALL = ["placement=v_shape", "search.num_micro_batches=4", "search.work_limit=2.5"]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Sweep `experiments.search` in this process with another task; return the exit code."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def swept(task: Callable[[DictConfig], dict[str, float | str]], *overrides: str) -> int:
        monkeypatch.setattr("experiments.search.task.task", lambda config: Result(figures=task(config)))
        monkeypatch.setattr(sys, "argv", ["search", "-m", f"hydra.sweep.dir={tmp_path}", *overrides])
        try:
            run("search")
        except SystemExit as end:
            assert isinstance(end.code, int)
            return end.code
        return 0

    yield swept
    root.handlers[:] = handlers
    root.setLevel(level)


def statuses(directory: Path) -> list[str]:
    return [str(status) for status in collect(directory)["status"]]


def test_a_point_that_fails_is_a_row_and_the_sweep_goes_on(command, tmp_path: Path) -> None:
    options = [f"hydra.sweep.dir={tmp_path}", *SMALL]
    done = command("search", *options, "search.memory=0,4,lots", "-m")
    assert done.returncode == 1
    assert f"{tmp_path}/0: rejected: {' '.join(SMALL)} search.memory=0: memory[0]: 0 is too" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("search: not done: 2 points; the same")
    table = collect(tmp_path)
    assert list(table["search.memory"]) == [0, 4, "lots"]
    assert list(table["status"]) == ["rejected", "done", "rejected"]
    assert list(table["makespan_ms"].dropna()) == [280.0]
    assert table["message"][2].startswith("search.memory: 'lots' is not")
    assert table["proved"][1].startswith("period")
    assert set(table) >= {
        "repetend_period_ms",
        "period_bound_ms",
        "makespan_bound_ms",
        "bubble_rate",
        "version",
    }

    (tmp_path / "1/schedule.json").unlink()
    done = command("search", *options, "search.memory=3,4", "-m")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "0/schedule.json").exists()
    assert not (tmp_path / "1/schedule.json").exists(), "a point that is done is not run again"
    assert statuses(tmp_path) == ["done", "done", "rejected"]


def test_a_sweep_writes_its_table_and_draws_its_main_figure(sweep, tmp_path: Path, capsys) -> None:
    def task(config: DictConfig) -> dict[str, float | str]:
        if config.search.memory == 3:
            raise Failed("too little")
        times = len(config.placement.kind) * 100 / config.search.memory
        return {"proved": "period", "period_ms": 1.0, "makespan_ms": times}

    assert sweep(task, "placement=v_shape,gpt", "search.memory=10,3,5", "search.num_micro_batches=4") == 1
    table = pd.read_csv(tmp_path / TABLE)
    assert list(table["search.memory"]) == [10, 3, 5] * 2
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {tmp_path / TABLE} {tmp_path}/sweep.png"
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "sweep.svg").exists()

    (axes,) = draw_sweep(table, "makespan_ms").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("search.memory", "makespan_ms")
    curves = {
        line.get_label(): line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata()) > 1
    }
    assert curves == {
        "placement=gpt": [[5, 60], [10, 30]],
        "placement=v_shape": [[5, 140], [10, 70]],
    }
    alone = draw_sweep(table[table["search.memory"] == 5])
    assert [text.get_text() for text in alone.axes[0].get_xticklabels()] == ["v_shape", "gpt"]
    assert alone.axes[0].get_ylabel() == "period_ms", "the first number where no objective is known"
    of_two = draw_sweep(table.assign(**{"search.num_micro_batches": range(6)}))
    assert of_two.axes[0].get_xlabel() == "search.num_micro_batches", "the number with most values"
    assert draw_sweep(table[table["status"] == "failed"]) is None


def test_a_sweep_with_a_point_that_cannot_be_composed_is_refused(sweep, tmp_path: Path, capsys) -> None:
    assert sweep(lambda config: pytest.fail("a task ran"), "placement=v_shap,v_shape") == 2
    assert capsys.readouterr().err == "search: error: placement=v_shap: is not there; did you mean v_shape?\n"
    assert not list(tmp_path.rglob("result.json"))


def test_no_kind_of_failure_ends_a_sweep(sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minimized: list[float] = []
    monkeypatch.setattr(
        SweepEnd, "on_job_end", lambda self, config, job_return: minimized.append(job_return.return_value)
    )

    def task(config: DictConfig) -> dict[str, float | str]:
        match config.search.memory:
            case 0:
                raise Failed("none was found in time")
            case 1:
                raise AssertionError("a bug")
            case 2:
                raise OSError(28, "No space left on device", "schedule.json")
        return {"makespan_ms": 12.5}

    assert sweep(task, "search.memory=0,1,2,3") == 1
    assert statuses(tmp_path) == ["failed", "failed", "rejected", "done"]
    assert list(collect(tmp_path)["message"])[:2] == ["none was found in time", "AssertionError: a bug"]
    assert "Traceback" in (tmp_path / "1/search.log").read_text()
    assert minimized == [float("inf")] * 3 + [12.5]


def test_an_interrupted_sweep_goes_on_where_it_was(sweep, tmp_path: Path) -> None:
    ran: list[int] = []

    def interrupted(config: DictConfig) -> dict[str, float | str]:
        ran.append(config.search.memory)
        if len(ran) == 2:
            raise Interrupted("interrupted before a schedule was found")
        return {"makespan_ms": 1.0}

    assert sweep(interrupted, "search.memory=5,6,7") == 130
    assert ran == [5, 6]
    assert statuses(tmp_path) == ["done", "interrupted"]
    assert sweep(interrupted, "search.memory=5,6,7") == 0
    assert ran == [5, 6, 6, 7]


def test_a_point_is_run_again_if_its_version_or_its_inputs_are_others(sweep, tmp_path: Path) -> None:
    ran: list[int] = []

    def task(config: DictConfig) -> dict[str, float | str]:
        ran.append(config.search.memory)
        return {}

    profile, record = tmp_path / "profile.csv", tmp_path / "0/result.json"
    profile.write_text("block,frequency,time,energy\n")
    options = ["search.memory=5,6", f"profile.path={profile}"]
    assert sweep(task, *options) == sweep(task, *options) == 0
    assert ran == [5, 6]
    record.write_text(json.dumps(json.loads(record.read_text()) | {"version": "0"}))
    assert sweep(task, *options) == 0
    assert ran == [5, 6, 5]
    profile.write_text("block,frequency,time,energy\nF0,1410,1.0,0.1\n")
    assert sweep(task, *options) == 0
    assert ran == [5, 6, 5, 5, 6]


RECORD = {
    "schema_version": 1,
    "command": "search",
    "version": "",
    "overrides": ["search.memory=3", "search.objectives=[period]", "~search.x", "schedule='gpipe'"],
    "inputs": "1",
    "started": "today",
    "status": "done",
    "message": "",
    "figures": {},
}


def test_the_table_is_a_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (10, 9):
        (tmp_path / f"a/{number}").mkdir(parents=True)
        (tmp_path / f"a/{number}/result.json").write_text(json.dumps(RECORD | {"started": str(number)}))
    main([str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-1] == f"2 runs in {tmp_path / TABLE}"
    table = pd.read_csv(tmp_path / TABLE)
    assert list(table["directory"]) == [f"{tmp_path}/a/9", f"{tmp_path}/a/10"]
    assert (set(table["search.memory"]), set(table["schedule"])) == ({3}, {"gpipe"})
    assert set(table["search.objectives"]) == {"[period]"}
    main([str(tmp_path / "a/10"), str(tmp_path / "a"), "--output", str(tmp_path / "three.csv")])
    assert len(pd.read_csv(tmp_path / "three.csv")) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version: 2 is not known; write 1"),
        ({"status": "well"}, "status: 'well' is not known; use one of done, rejected, failed, interrupted"),
        ({"figures": {"energy_j": [1]}}, "figures.energy_j: [1] is not a number or text; give one"),
        ({"overrides": "x=1"}, "overrides: 'x=1' is not a list; give one"),
    ],
)
def test_a_wrong_record_is_named(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(RECORD))
    assert read_run_record(tmp_path).options["search.memory"] == 3
    path.write_text(json.dumps(RECORD | change))
    with pytest.raises(RunRecordError) as error:
        collect(tmp_path)
    assert str(error.value) == f"{path}: {message}"


def test_nothing_to_collect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(tmp_path)])
    assert end.value.code == 2
    line = (
        f"collect: error: {tmp_path}: has no result.json in it; give the directory of a run or of a sweep\n"
    )
    assert capsys.readouterr().err == line
