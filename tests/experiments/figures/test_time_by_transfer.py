"""Tessel's figure of blocking and non-blocking transfers: a small one, whole, and what is in it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from experiments.config.options import OptionError
from experiments.figures.options import TransferSweepOptions
from experiments.figures.time_by_transfer import COLUMNS, check_options, placement_of

SMALL = ["placements=[m_shape,gpt]", "num_micro_batches=6", "transfers=[0.5,0]", "num_processes=1"]


def test_the_figure_and_its_rows(command, tmp_path: Path) -> None:
    done = command("time_by_transfer", *SMALL, draws=True)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "out"
    with (directory / "time_by_transfer.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert [row["placement"] for row in rows] == ["m_shape"] * 10 + ["gpt"] * 10
    assert all(row["proved"].startswith("period") for row in rows)
    by_case: dict[tuple[str, float], dict[tuple[str, str], dict[str, float]]] = {}
    for row in rows:
        numbers = {name: float(row[name]) for name in ("time", "slowdown", "speed_up")}
        case = by_case.setdefault((row["placement"], float(row["transfer"])), {})
        case[row["communication"], row["receives"]] = numbers
    lines = [(how, "late") for how in ("blocking", "device", "pair", "directed")] + [("directed", "early")]
    for (_, transfer), case in by_case.items():
        assert list(case) == lines
        times = [case[line]["time"] for line in lines]
        assert times == sorted(times, reverse=True)
        assert case["blocking", "late"]["speed_up"] == 1
        blocking, ours = case["blocking", "late"], case["directed", "early"]
        assert ours["speed_up"] == pytest.approx(blocking["time"] / ours["time"], rel=1e-4)
        assert (ours["slowdown"] == 1) == (transfer == 0)
    assert by_case["m_shape", 0.5]["directed", "early"]["speed_up"] > 1.3
    assert (directory / "time_by_transfer.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "<svg" in (directory / "time_by_transfer.svg").read_text()
    assert done.stdout.count("blocking: both devices wait") == 2
    made = (directory / "time_by_transfer.csv").read_bytes()
    assert command("time_by_transfer", *SMALL).returncode == 0
    assert (directory / "time_by_transfer.csv").read_bytes() == made


OPTIONS = TransferSweepOptions(
    placements=["v_shape"],
    num_devices=4,
    num_micro_batches=4,
    memory=None,
    transfers=[0, 0.5],
    receive_ahead=2,
    gpu="a100",
    work_limit=10.0,
    solver="portfolio",
    seed=0,
    num_processes=1,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placements": ["w_shape"]}, "placements: 'w_shape' is not known; did you mean"),
        ({"placements": []}, "placements: is empty; give at least one"),
        ({"placements": ["gpt", "gpt"]}, "placements: 'gpt' is named twice; name each once"),
        ({"transfers": []}, "transfers: is empty; give at least one"),
        ({"transfers": [0.1, -1]}, "transfers: -1 is not a number of 0 or more"),
        ({"transfers": [float("inf")]}, "transfers: inf is not a number of 0 or more"),
        ({"transfers": ["x"]}, "transfers: 'x' is not a number of 0 or more"),
        ({"num_micro_batches": 0}, "num_micro_batches: 0 is not at least 1"),
        ({"receive_ahead": 0}, "receive_ahead: 0 is not at least 1"),
        ({"num_processes": 0}, "num_processes: 0 is not at least 1"),
        ({"memory": -1}, "memory: -1 is not at least 0"),
        ({"work_limit": 0.0}, "work_limit: 0 is not a positive number of units of work"),
        ({"solver": "cplex"}, "solver: 'cplex' is not a solver; use"),
        ({"gpu": "b20"}, "gpu: 'b20' is not known; "),
    ],
)
def test_wrong_options(change: dict[str, Any], message: str) -> None:
    check_options(OPTIONS)
    with pytest.raises(OptionError) as error:
        check_options(replace(OPTIONS, **change))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("name", ["gpt", "k_shape"])
def test_a_placement_that_cannot_be_is_named(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: num_devices: "):
        placement_of(name, replace(OPTIONS, num_devices=0))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num_devices=0", "gpt: num_devices: "),
        ("transfer=[1]", "is not an option of schedsearch time_by_transfer; did you mean transfers?"),
    ],
)
def test_wrong_input(override: str, message: str, refused, tmp_path: Path) -> None:
    assert message in refused("time_by_transfer", override)
    assert not list((tmp_path / "out").glob("*.png"))


def test_too_little_memory_is_named() -> None:
    options = replace(OPTIONS, memory=0)
    with pytest.raises(OptionError, match=r"v_shape: memory\[0\]: 0 is too small .* raise memory$"):
        placement_of("v_shape", options)


def test_ctrl_c_keeps_the_rows_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "out/time_by_transfer.csv"
    line = [sys.executable, "-m", "experiments", "time_by_transfer", f"hydra.run.dir={tmp_path / 'out'}"]
    line += ["placements=[v_shape,x_shape]", "num_micro_batches=2000", "num_processes=1", "work_limit=500"]
    process = subprocess.Popen(line, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not path.exists() or len(path.read_text().splitlines()) < 1:
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].endswith(f"rows found so far are in {path}")
