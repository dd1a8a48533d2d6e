"""What a command line means before Hydra reads it: paths as they are, and help without heavy imports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from places import ROOT

from experiments.config.commands import commands
from experiments.config.option_list import help_text, names_of, options_of
from experiments.config.words import for_hydra

NAMES = ["a=b.yaml", "a(1).yaml", "a[1].yaml", "a{1}.yaml", "a#b", "it's.YAML", 'say "x".yaml', "a,b.yaml"]
NAMES += [
    "my stages.yaml",
    "ends.yaml ",
    "a:b$c%20d",
    "a\\b.yaml",
    "a\\",
    "ü.yaml",
    "1.5",
    "true",
    "~x",
    "${b}",
]

HEAVY = ["torch", "z3", "ortools", "numba", "pandas", "matplotlib", "scipy", "bokeh", "networkx", "hydra"]


def parsed(*words: str) -> list[object]:
    """Return what Hydra reads of the last option of a search, a value for each point of a sweep."""
    options = [word for word in for_hydra("search", words) if word != "-m"]
    *_, last = OverridesParser.create().parse_overrides(options)
    values = last.sweep_iterator() if last.is_sweep_override() else [last.value()]
    return [getattr(value, "text", value) for value in values]


def test_a_path_is_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Path(name).write_text("")
        for words in (["placement.path=" + name], ["placement=" + name], ["-m", "placement.path=" + name]):
            (value,) = parsed(*words)
            if "-m" not in words:
                assert OmegaConf.create({"path": value}).path == name
    assert len(parsed("-m", "placement.path=a,b.yaml")) == 1


def test_what_is_no_file_is_read_as_hydra_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/me")
    path = "placement.path="
    assert parsed(path + "not there (2).yaml") == ["not there (2).yaml"]
    assert parsed(path + "'quoted, by the user'") == ["quoted, by the user"]
    assert parsed(path + "~/x (1).yaml") == ["/me/x (1).yaml"]
    assert parsed("-m", path + "a(1).yaml,'b,c', d=e") == ["a(1).yaml", "b,c", "d=e"]
    assert parsed(path + "null") == [None]
    assert parsed(path + "${oc.env:HOME}/x") == ["${oc.env:HOME}/x"]
    assert parsed("hydra.run.dir=out (1)/${now:%Y}") == ["out (1)/${now:%Y}"]
    assert parsed("search.scenarios=[{jitter: 0.1}]") == [[{"jitter": 0.1}]]
    given = for_hydra("layout", ["given=[a(1).sh, b=c.sh]"])
    assert OverridesParser.create().parse_overrides(given)[0].value() == ["a(1).sh", "b=c.sh"]


@pytest.mark.parametrize("command", commands())
def test_help_has_the_options_that_matter_first_and_then_each_other_once(command: str) -> None:
    first = commands()[command].first.split()
    assert len(first) <= 8
    assert set(first) <= names_of(command)
    text = help_text(command)
    shown = re.findall(r"^  ([\w.]+)=", text, re.MULTILINE)
    assert sorted(shown) == sorted(option.name for option in options_of(command))
    there = [name for name in first if name in shown]
    assert shown[: len(there)] == there


def test_help_and_an_unknown_option_load_nothing_heavy() -> None:
    code = "import sys; from experiments.config.command import run\n"
    for command in commands():
        for word in ("--help", "nonsense=1"):
            code += f"sys.argv[1:] = [{word!r}]\ntry: run({command!r})\nexcept SystemExit: pass\n"
    code += f"print('loaded:', *{set(HEAVY)} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nloaded:\n")
    refused = [f"{name}: error: nonsense: is not an option of schedsearch {name}" for name in commands()]
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
