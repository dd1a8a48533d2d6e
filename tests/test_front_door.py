"""``schedsearch COMMAND``: the commands by one name, whatever folders the user has beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from places import ROOT

import schedsearch
from experiments.__main__ import main
from experiments.config.declaring import command_of
from experiments.config.option_list import command_options
from experiments.config.rooms import names

PACKAGES = ("placements", "runtime", "experiments")


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python where this project is found as an installed one is: after the working directory."""
    site = cwd.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(f"import sys; sys.path.append({str(ROOT)!r})\n")
    paths = os.pathsep.join([*filter(None, [environment.pop("PYTHONPATH", "")]), str(site)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "80"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """The working directory of a user who has folders of our names."""
    for name in PACKAGES:
        folder = tmp_path / "mine" / name
        folder.mkdir(parents=True)
        (folder / "mine.py").write_text("")
    return tmp_path / "mine"


@pytest.fixture
def packages(folders: Path) -> Path:
    """The same where they are packages, which Python takes before ours."""
    for name in PACKAGES:
        (folders / name / "__init__.py").write_text("raise SystemExit('a package of the user')\n")
    return folders


def test_help_lists_all_commands_in_80_columns(tmp_path: Path) -> None:
    done = python("-m", "schedsearch", "--help", cwd=tmp_path)
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert listed[: len(names()) + 1] == [*names(), "collect"]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_list_of_commands_is_whole() -> None:
    """A room that can be run, and a place in the list for each."""
    rooms = {path.parent.name for path in (ROOT / "experiments").glob("*/__main__.py")}
    assert set(names()) == rooms - {"benchmarks"}  # which is for a checkout, and no command of Hydra
    assert all(command_of(name).name == name and find_spec(command_of(name).task) for name in names())


@pytest.mark.parametrize("name", names())
def test_a_whole_run_of_each_command_is_always_tested(name: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests/experiments" / name).glob("*.py")]
    assert any(
        "@pytest.mark.always" in text and re.search(rf'(command|ran)\("{name}"', text) for text in texts
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("serch", "serch: is not a command; did you mean search?"),
        ("placement=v_shape", "placement=v_shape: needs a command before it, as in schedsearch search"),
        ("--placement", "--placement: needs a command before it, as in schedsearch search"),
    ],
)
def test_what_is_no_command_is_one_line(
    given: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["schedsearch", given])
    with pytest.raises(SystemExit) as end:
        main()
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.startswith(f"schedsearch: error: {message}")
    assert error.count("\n") == 1


def test_the_shell_completes_commands_and_options(tmp_path: Path) -> None:
    def completed(line: str) -> list[str]:
        point = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
        return python("-m", "schedsearch", "-sc", "query=bash", cwd=tmp_path, **point).stdout.split()

    assert completed("schedsearch pr") == ["profile", "profile_rates", "prices", "predict"]
    assert "placement=v_shape" in completed("schedsearch search placement=v")


SMALL = ("placement=v_shape", "placement.num_devices=2", "search.num_micro_batches=3", "hydra.run.dir=out")


def test_packages_of_the_users_break_no_run(packages: Path) -> None:
    """Nor its search, nor its torchrun."""
    small = ("runtime.model=synthetic", "runtime.iterations=2", "energy.num_plans=3", "energy.baselines=[]")
    torchrun = ("runtime.launcher=torchrun", "runtime.device=cpu")
    done = python("-m", "schedsearch", "run", *SMALL, *small, *torchrun, cwd=packages)
    assert done.returncode == 0, done.stderr
    data = json.loads((packages / "out/measurement.json").read_text())
    assert (data["backend"], data["iterations"], data["bitwise_equal"]) == ("gloo", 2, True)


def test_nor_the_processes_of_a_sweep(packages: Path) -> None:
    """One point of three is refused, which is said at the end."""
    line = ["-m", *SMALL[:-1], "search.memory=0,2,3", "hydra/launcher=joblib", "hydra.sweep.dir=swept"]
    done = python("-m", "schedsearch", "search", *line, "hydra.launcher.n_jobs=2", cwd=packages)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("search: not done: 1 points; the same")
    assert len([*packages.glob("swept/*/schedule.json")]) == 2


def test_nor_does_pythonpath(packages: Path) -> None:
    """The console script has no working directory on its path, but many users have PYTHONPATH=. there."""
    script = "from schedsearch.__main__ import main; main()"
    done = python("-P", "-c", script, "search", "nonsense=1", cwd=packages, PYTHONPATH=".")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("search: error: nonsense: is not an option of schedsearch search")


def test_a_model_beside_the_command_is_still_found(packages: Path) -> None:
    """A user's file may import another one of the working directory, as in a command of `experiments`."""
    (packages / "layers_of_mine.py").write_text("from torch.nn import Linear\n")
    (packages / "model.py").write_text(
        "import torch\nfrom layers_of_mine import Linear\n"
        "def build(block): return Linear(4, 4)\n"
        "def data(iteration, micro_batch): return torch.ones(2, 4), torch.ones(2, 4)\n"
        "def loss(outputs, targets): return ((outputs - targets) ** 2).mean()\n"
    )
    given = ["runtime.model=module", "runtime.path=model.py", "runtime.launcher=fork"]
    given += ["runtime.iterations=1", "energy.num_plans=3"]
    script = "from schedsearch.__main__ import main; main()"
    done = python("-P", "-c", script, "run", *SMALL, *given, cwd=packages)
    assert done.returncode == 0, done.stderr


def test_an_import_says_which_folder_is_in_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "placements"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    done = python("-c", "from schedsearch import search", cwd=tmp_path / "mine")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: schedsearch.search: {folder} has the name of a package of ")
    assert last.endswith("rename it, or take its folder out of sys.path")


def test_the_package_has_its_version_and_the_pipeline() -> None:
    code = "import schedsearch as s, sys; assert 'torch' not in sys.modules; print(s.__version__, s.Pipeline)"
    done = python("-c", code, cwd=ROOT)
    assert done.stdout == "0.2.0 <class 'runtime.loops.pipeline.Pipeline'>\n"


def test_no_message_or_help_sends_to_a_page_that_a_wheel_lacks() -> None:
    """Docstrings may; texts for users of the wheel have to say it themselves."""
    texts = [option for name in names() for option in command_options(name) if "docs/" in option.meaning]
    sources = (path for layer in (*PACKAGES, "schedsearch") for path in (ROOT / layer).rglob("*.py"))
    matches = [path for path in sources if re.search(r"see docs/\S+\"", path.read_text(encoding="utf-8"))]
    assert not texts + [path for path in matches if "benchmarks" not in path.parts]


def test_the_version_has_one_source() -> None:
    """A checkout that is not installed has no version in `importlib.metadata`."""
    assert f"version: {schedsearch.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    sources = (path for layer in (*PACKAGES, "schedsearch") for path in (ROOT / layer).rglob("*.py"))
    assert not [path for path in sources if 'version("schedsearch")' in path.read_text(encoding="utf-8")]
