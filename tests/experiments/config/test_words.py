"""Command lines before Hydra reads them: paths of groups, and help without heavy imports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from experiments.config.declaring import command_of
from experiments.config.option_list import command_options, help_text, names_of
from experiments.config.rooms import names
from experiments.config.words import config_error, for_hydra

HEAVY = ["torch", "z3", "ortools", "numba", "pandas", "matplotlib", "scipy", "bokeh", "networkx", "hydra"]


def test_the_path_of_a_group_is_its_choice_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").touch()
    assert for_hydra("search", ["-m", "placement=a.yaml,mine"]) == [
        "placement=file",
        "placement.path=a.yaml,mine",
        "-m",
    ]
    assert for_hydra("search", ["placement=v_shape"]) == ["placement=v_shape"]


@pytest.mark.parametrize("command", names())
def test_help_has_the_options_that_matter_first_and_then_each_other_once(command: str) -> None:
    first = command_of(command).first.split()
    assert len(first) <= 8
    assert set(first) <= names_of(command)
    text = help_text(command)
    shown = re.findall(r"^  ([\w.]+)=", text, re.MULTILINE)
    assert sorted(shown) == sorted(option.name for option in command_options(command))
    there = [name for name in first if name in shown]
    assert shown[: len(there)] == there


def test_help_and_an_unknown_option_load_nothing_heavy() -> None:
    code = "import sys; from experiments.config.command import run\n"
    for command in names():
        for word in ("--help", "nonsense=1"):
            code += f"sys.argv[1:] = [{word!r}]\ntry: run({command!r})\nexcept SystemExit: pass\n"
    code += f"print('loaded:', *{set(HEAVY)} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nloaded:\n")
    refused = [f"{name}: error: nonsense: is not an option of schedsearch {name}" for name in names()]
    lines = done.stderr.splitlines()
    assert all(line.startswith(start) for line, start in zip(lines, refused, strict=True))


WRONG = {
    "run": ["runtime.launcher=nope"],
    "compare": ["stages=s.csv", "search.num_micro_batches=0"],
    "plan": ["model=llama3_8b", "batch=8", "cluster=h800_8"],
    "layout": ["layers=l.csv", "num_micro_batches=8", "num_devices=0"],
    "cluster": ["data=d", "rounds=nope"],
}
"""Command lines whose last option is wrong."""


def test_a_wrong_value_does_not_wait_for_what_the_task_imports() -> None:
    code = "import sys; from experiments.config.command import run\n"
    for command, given in WRONG.items():
        code += f"sys.argv[1:] = {given}\ntry: run({command!r})\nexcept SystemExit: pass\n"
    code += f"print('loaded:', *{{*{HEAVY[:-1]}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "loaded:\n"
    for line, (command, given) in zip(done.stderr.splitlines(), WRONG.items(), strict=True):
        assert line.startswith(f"{command}: error: {given[-1].partition('=')[0]}: ")


def test_a_launcher_that_is_not_installed_names_the_extra() -> None:
    error = ValueError("Could not find 'hydra/launcher/ray'\n\nAvailable options:\n\tbasic")
    text = "hydra/launcher=ray: is not there; pip install 'schedsearch[ray]'"
    assert config_error(error, "search") == text
