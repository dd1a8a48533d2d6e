"""The two figures of the bubble: small ones, whole, and what is in them."""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import yaml
from places import ROOT

from experiments.figures.cases import SteadyStateRow
from experiments.figures.pool import SweepAnswer, collect
from experiments.figures.sweep import COLUMNS, _panels, to_csv, to_table
from schedsearch.figures.panels import draw_shares

A_THIRD, TWO_THIRDS = (pytest.approx(n / 3, abs=1e-6) for n in (1, 2))

PNG_START = b"\x89PNG\r\n\x1a\n"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rates(rows: list[dict[str, str]], searched_by: str, column: str) -> dict[int, float]:
    return {
        int(row[column]): float(row["bubble_rate"])
        for row in rows
        if row["searched_by"].startswith(searched_by)
    }


def test_bubble_by_in_flight(command, tmp_path: Path) -> None:
    options = ["shapes=[v_shape]", "num_devices=3", "max_in_flight=3", "num_processes=1"]
    options += [f"cache_dir={tmp_path / 'cache'}"]
    done = command("bubble_by_in_flight", *options, draws=True)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "out"
    rows = rows_of(directory / "bubble_by_in_flight.csv")
    assert list(rows[0]) == COLUMNS
    for searched_by in ("Tessel", "ours, 1 micro-batch"):
        assert rates(rows, searched_by, "in_flight") == {1: TWO_THIRDS, 2: 0.5, 3: 0.0}
    assert rates(rows, "ours, 1 to 3", "in_flight") == {1: TWO_THIRDS, 2: A_THIRD, 3: 0.0}
    assert {row["decided"] for row in rows} == {"yes"}
    assert (directory / "bubble_by_in_flight.png").read_bytes().startswith(PNG_START)
    assert "<svg" in (directory / "bubble_by_in_flight.svg").read_text()
    assert "v_shape" in done.stdout
    made = {path.name: path.read_bytes() for path in directory.glob("bubble*") if path.suffix != ".log"}
    assert command("bubble_by_in_flight", *options, draws=True).returncode == 0
    assert made == {name: (directory / name).read_bytes() for name in made}  # from the cache, seconds too


@pytest.mark.parametrize("num_processes", [1, 2])
def test_rows_are_sorted_whichever_process_ends_first(num_processes: int, tmp_path: Path) -> None:
    searches = [partial(SweepAnswer, (n, n + 10)) for n in (3, 1, 2)]
    path = tmp_path / "rows.csv"
    assert collect("rows", searches, num_processes, path, str, int, str) == [1, 2, 3, 11, 12, 13]
    assert path.read_text() == "[1, 2, 3, 11, 12, 13]"
    assert not multiprocessing.active_children()


def test_bubble_by_memory(command, tmp_path: Path) -> None:
    """More than one micro-batch per repetend uses tight memory better; too little memory is a row too."""
    done = command(
        "bubble_by_memory",
        "shapes=[v_shape]",
        "num_devices=3",
        "memories=[0,2,3]",
        "num_processes=1",
        "tessel_time_limit_s=10",
        "work_limit=10",
    )
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "out/bubble_by_memory.csv")
    assert len(rows) == 3 * 4
    possible = [row for row in rows if row["memory"] != "0"]
    assert {row["period"] for row in rows if row["memory"] == "0"} == {""}
    assert rates(possible, "Tessel", "memory") == {2: 0.5, 3: 0.0}
    assert rates(possible, "ours, 1 micro-batch per", "memory") == {2: 0.5, 3: 0.0}
    assert rates(possible, "ours, 1 to 3", "memory") == {2: A_THIRD, 3: 0.0}
    assert (tmp_path / "out/bubble_by_memory.svg").exists()


def test_the_bubble_of_ones_own_stages(command, tmp_path: Path) -> None:
    """Two equal stages: room for one micro-batch leaves half of the time idle, room for two none."""
    stage = {"forward_ms": 10.5, "backward_ms": 21, "activation_mib": 100, "weight_mib": 50}
    (tmp_path / "stages.yaml").write_text(yaml.safe_dump({"stages": [stage] * 2, "memory_mib": 999}))
    options = [f"stages={tmp_path / 'stages.yaml'}", "shapes=[v_shape]", "num_processes=1"]
    done = command("bubble_by_memory", *options, "work_limit=5", "max_micro_batches_per_repetend=1")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "out/bubble_by_memory.csv")
    assert {row["searched_by"] for row in rows} == {"ours, 1 micro-batch per repetend"}, (
        "not Tessel's, unasked"
    )
    assert {(row["num_devices"], row["memory"]) for row in rows} == {("2", m) for m in ("150", "250", "350")}
    assert rates(rows, "ours", "memory") == {150: 0.5, 250: 0.0, 350: 0.0}
    assert {row["period"] for row in rows if row["memory"] == "150"} == {"63"}


@pytest.mark.slow
def test_the_m_shape_needs_no_bubble_with_memory_5(command, tmp_path: Path) -> None:
    """Tessel's rule for the micro-batches in flight stops it at a seventh."""
    limits = ["max_in_flight=5", "max_micro_batches_per_repetend=1", "tessel_time_limit_s=200"]
    done = command("bubble_by_memory", "shapes=[m_shape]", "memories=[5]", *limits)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "out/bubble_by_memory.csv")
    assert rates(rows, "Tessel, N_R up to the memory", "memory") == {5: pytest.approx(1 / 7, abs=1e-5)}
    assert rates(rows, "ours, 1 micro-batch per", "memory") == {5: 0.0}


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("bubble_by_memory", "shapes=[w_shape]", "shapes: 'w_shape' is not a shape; did you mean"),
        ("bubble_by_memory", "shapes=[]", "shapes: is empty"),
        ("bubble_by_memory", "stages=none.yaml", "none.yaml: cannot be read (No such file or directory)"),
        ("bubble_by_memory", "shapes=3", "shapes: 3 is not a list"),
        ("bubble_by_memory", "memories=[x]", "memories: 'x' is not a whole number of 0 or more"),
        ("bubble_by_memory", "memories=[]", "memories: is empty"),
        (
            "bubble_by_memory",
            "memorys=[3]",
            "is not an option of schedsearch bubble_by_memory; did you mean",
        ),
        (
            "bubble_by_memory",
            "max_micro_batches_per_repetend=0",
            "per_repetend: 0 is not at least 1",
        ),
        ("bubble_by_memory", "work_limit=0", "work_limit: 0 is not a positive number of units of work"),
        ("bubble_by_in_flight", "num_devices=0", "num_devices: 0 is not at least 1"),
        ("bubble_by_in_flight", "num_processes=0", "num_processes: 0 is not at least 1"),
        ("bubble_by_in_flight", "max_in_flight=0", "max_in_flight: 0 is not at least 1"),
        ("bubble_by_in_flight", "solver=cplex", "solver: 'cplex' is not a solver"),
        ("bubble_by_in_flight", "cache_dir=/dev/null/x", "cache_dir: /dev/null/x cannot be made"),
    ],
)
def test_wrong_input(name: str, override: str, message: str, refused, tmp_path: Path) -> None:
    assert message in refused(name, override)
    assert not list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize(
    ("num_processes", "after_s", "whom"),
    [
        pytest.param(1, 1, "command", id="in the second search"),
        pytest.param(2, 0.1, "group", id="as the processes start, all of them"),
        pytest.param(2, 3, "command", id="in both searches"),
    ],
)
def test_ctrl_c_keeps_the_rows_that_are_there(
    num_processes: int, after_s: float, whom: str, tmp_path: Path
) -> None:
    """From a terminal every process gets the signal; from elsewhere only the command does."""
    path = tmp_path / "out/bubble_by_in_flight.csv"
    line = [sys.executable, "-m", "experiments", "bubble_by_in_flight", f"hydra.run.dir={tmp_path / 'out'}"]
    line += ["shapes=[v_shape,nn_shape]", "num_devices=6", "tessel_time_limit_s=500"]
    line += [
        f"max_in_flight={4 if num_processes == 1 else 9}",
        f"num_processes={num_processes}",
    ]
    process = subprocess.Popen(
        line, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while not path.exists() or (num_processes == 1 and len(path.read_text().splitlines()) < 2):
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(after_s)
    (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=30)
    except (
        subprocess.TimeoutExpired
    ):  # Z3 loses a signal that comes just as it answers one of Tessel's queries
        (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].endswith(f"rows found so far are in {path}")
    assert all(list(row) == COLUMNS for row in rows_of(path))


ROWS = [
    SteadyStateRow("v_shape", 4, 3, None, "ours", 2, 12, 1 / 3, 0.25, False, 1.234),
    SteadyStateRow("v_shape", 4, 4, None, "ours", 1, 4, 0.0, 0.0, True, 0.5),
    SteadyStateRow("v_shape", 4, 3, 4, "Tessel", None, None, None, 1.0, True, 0.0),
]


def test_rows_as_text() -> None:
    assert to_csv(ROWS).splitlines()[1:] == [
        "v_shape,4,3,,ours,2,12,0.333333,0.250000,no,1.23",
        "v_shape,4,4,,ours,1,4,0.000000,0.000000,yes,0.50",
        "v_shape,4,3,4,Tessel,,,,1.000000,yes,0.00",
    ]
    _, ours, tessel, marks = to_table(ROWS, "memory").splitlines()
    assert marks.startswith("?: not proved")
    assert len(to_table(ROWS[1:2], "memory").splitlines()) == 2, "nothing to explain"
    assert ours.split() == ["v_shape", "ours", "33.3?", "0.0"]
    assert tessel.split() == ["v_shape", "Tessel", "-"]


def test_a_search_that_finds_nothing_says_so_in_the_figure() -> None:
    nothing = [
        SteadyStateRow("v_shape", 4, memory, 4, "Tessel", None, None, None, 0.1, False, 9.0)
        for memory in (3, 4)
    ]
    (panel,) = _panels([*ROWS[:2], *nothing], "memory")
    assert list(panel.curves) == ["ours", "Tessel: none found"]
    figure = draw_shares([panel], "memory (MiB)", "share", "Bubble")
    assert {text.get_text() for text in figure.legends[0].get_texts()} >= {"ours", "Tessel: none found"}
