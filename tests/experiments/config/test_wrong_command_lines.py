"""Wrong command lines: one line that names the place and the remedy, before any work starts."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.config.command import run
from experiments.config.declaring import command_of
from experiments.config.option_list import command_options
from experiments.config.rooms import names
from experiments.report.result import Result
from experiments.search.options import SearchCommandOptions

V_SHAPE = "placement=v_shape"

WRONG = [
    ("search", [V_SHAPE, "search.objectives={a: 1}"], "override search.objectives={a: 1}; --help says more"),
    (
        "search",
        [V_SHAPE, "placement.kind=v_shap"],
        "placement.kind: 'v_shap' is not known; did you mean v_shape?",
    ),
    (
        "search",
        ["placement=file", "placement.path=."],
        "placement.path: . is a directory; give a file, or choose",
    ),
    (
        "search",
        ["placement=profiled", "placement.path=none"],
        "none/profile.json: cannot be read (No such file",
    ),
    (
        "search",
        ["search.memory=[1,2"],
        "search.memory=[1,2: is not NAME=VALUE, or has brackets or quotes that are not",
    ),
    (
        "search",
        ["search.memory=3,4"],
        "search.memory=3,4: has several values; write -m too to sweep over them",
    ),
    (
        "search",
        ["placement.num_devices=${none}"],
        "placement.num_devices: Interpolation key 'none' not found; give",
    ),
    ("search", ["--placement", "v_shape"], "--placement: is not NAME=VALUE; write placement=v_shape"),
    ("search", ["placement:v_shape"], "placement:v_shape: is not NAME=VALUE; write placement=v_shape"),
    (
        "search",
        [V_SHAPE, "--config-dir=.", "search.sead=1"],  # a flag may stand among options
        "search.sead: is not an option of schedsearch search; did you mean search.seed?",
    ),
    (
        "search",
        [V_SHAPE, "-m", "search.memori=3,4"],
        "search.memori: is not an option of schedsearch search; did",
    ),
    (
        "search",
        ["-m", "search.memory=interval(1,4)"],
        "hydra/sweeper: basic takes values one by one; give them as",
    ),
    (
        "reproduce",
        ["experiment=tessel_fig9"],
        "experiment=tessel_fig9: is not there; did you mean tessel_figure9?",
    ),
    ("compare", ["stages={}", "schedules=[]"], "schedules: is empty; use some of searched, searched@v_shape"),
    (
        "run",
        [V_SHAPE, "runtime.resume=docs"],
        "runtime.resume: docs holds no whole checkpoint; give the output",
    ),
    (
        "run",
        [V_SHAPE, "runtime.model=module", "runtime.path={}"],
        " fails with TypeError: data() takes 1 positional",
    ),
    (
        "profile",
        [V_SHAPE, "runtime.recompute={F0: 1}"],
        "runtime.recompute: {'F0': 1} is not text or a list or null",
    ),
]

FILES = {
    "compare": "stages:\n- {forward_ms: 1, backward_ms: 2}\n- {forward_ms: 1, backward_ms: 2}\n",
    "run": "from torch.nn import *\ndef build(block): return Linear(2, 2)\ndef data(iteration): return 1\n",
}


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(("name", "given", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_a_wrong_command_line_is_one_line(
    name: str,
    given: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, out = tmp_path / "given", tmp_path / "out"
    path.write_text(FILES.get(name, ""))
    places = [f"hydra.run.dir={out}", f"hydra.sweep.dir={out}"]
    line = [name, *places, *(word.replace("{}", str(path)) for word in given)]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as end:
        run(name)
    assert end.value.code == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{name}: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(out.rglob("*.json"))


def test_every_point_of_a_comparison_may_have_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`search.memory` is in the help of compare; where nothing fits in it, the exit code says so."""
    path = tmp_path / "stages.yaml"
    path.write_text(FILES["compare"].replace("2}", "2, activation_mib: 100}"))
    given = [f"stages={path}", "schedules=[one_f_one_b]", "search.num_micro_batches=3"]
    sweep = ["-m", "search.memory=24MiB,1GiB", f"hydra.sweep.dir={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["compare", *given, *sweep])
    with pytest.raises(SystemExit) as end:
        run("compare")
    assert end.value.code == 1
    records = [json.loads((tmp_path / point / "result.json").read_text()) for point in "01"]
    assert [record["status"] for record in records] == ["rejected", "done"]
    monkeypatch.setattr(sys, "argv", ["compare", *given, "search.memory=24MiB", f"hydra.run.dir={tmp_path}"])
    capfd.readouterr()
    with pytest.raises(SystemExit) as end:
        run("compare")
    assert end.value.code == 2
    assert capfd.readouterr().err.startswith("compare: error: schedules: none fits (")


def test_help_shows_no_option_that_is_refused() -> None:
    for command, declared in zip(names(), map(command_of, names()), strict=True):
        assert not set(declared.refused) & {option.name for option in command_options(command)}


@pytest.mark.parametrize("line", [["-m", V_SHAPE], [V_SHAPE, "-m"]])
def test_m_may_stand_anywhere(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def task(config: SearchCommandOptions) -> Result:
        ran.append(config.search.memory)
        return Result()

    monkeypatch.setattr("experiments.search.task.task", task)
    monkeypatch.setattr(sys, "argv", ["search", *line, "search.memory=3,4", f"hydra.sweep.dir={tmp_path}"])
    run("search")
    assert ran == [3, 4]
