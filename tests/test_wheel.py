"""The wheel: its files, and commands run from it in a folder that is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from places import ROOT

STAGES = "memory_mib: 400\nstages:\n" + "- {forward_ms: 10, backward_ms: 20, activation_mib: 100}\n" * 2


def run(*line: str | Path, **where: object) -> str:
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=False, **where)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves files in its folder."""
    source = tmp_path_factory.mktemp("source")
    for name in ("placements", "schedsearch", "runtime", "experiments"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    alone = ("--no-deps", "--no-build-isolation", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *alone, "--wheel-dir", source / "dist", source)
    (path,) = (source / "dist").glob("*.whl")
    return path


def test_a_wheel_has_what_commands_need_and_no_more(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    left_out = [f"experiments/{room}/" for room in ("benchmarks", "reproduce")]
    assert not [name for name in names if name.startswith((*left_out, "tests/"))]
    assert {"experiments/conf/output.yaml", "experiments/report/browser/main.js"} <= set(names)
    assert {"runtime/models/core/text.txt", "placements/models/zoo/language.yaml"} <= set(names)
    assert {"placements/rates/h100.csv.gz", "experiments/predict/runs/table_forms.yaml"} <= set(names)
    (scripts,) = (ZipFile(wheel).read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert scripts.split() == ["[console_scripts]", "schedsearch", "=", "schedsearch.__main__:main"]


def test_commands_run_from_the_wheel_beside_a_folder_of_the_users(wheel: Path, tmp_path: Path) -> None:
    site, here = tmp_path / "site", tmp_path / "mine"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)
    (here / "experiments").mkdir(parents=True)
    (here / "stages.yaml").write_text(STAGES)
    settings = {"cwd": here, "env": os.environ | {"PYTHONPATH": str(site)}}
    program = site / "bin" / "schedsearch"
    origin = run(sys.executable, "-P", "-c", "import experiments; print(experiments.__file__)", **settings)
    assert Path(origin.strip()).is_relative_to(site)
    assert "schedsearch COMMAND" in run(program, "--help", **settings)
    two = ("placement.num_devices=2", "search.num_micro_batches=3")
    run(program, "search", "placement=v_shape", *two, "hydra.run.dir=searched", **settings)
    assert (here / "searched" / "report.html").is_file()
    run(program, "check", "schedule=searched/schedule.json", "hydra.run.dir=checked", **settings)
    given = ("stages=stages.yaml", "schedules=[searched,one_f_one_b]", "search.num_micro_batches=3")
    assert "one_f_one_b" in run(program, "compare", *given, "hydra.run.dir=compared", **settings)
    model = ("model=gpt3_125m", "cluster=a100_4", "planner.uniform=true", "planner.time_limit_s=20")
    run(program, "plan", *model, "batch=8", "hydra.run.dir=planned", **settings)
    assert (here / "planned" / "export" / "megatron.txt").is_file()
    two = ("num_devices=2", "num_micro_batches=4", "work_limit=1", "hydra.run.dir=laid_out")
    run(program, "layout", "model=gpt3_125m", "cluster=a100_4", "tensor_parallel=2", *two, **settings)
    assert (here / "laid_out" / "layout.csv").is_file()
