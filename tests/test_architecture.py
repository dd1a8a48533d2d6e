"""The layers: imports go left only, and every outside library has its one owner."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

LAYERS = ["placements", "schedsearch", "runtime", "experiments"]

OWNERS = {
    "z3": [
        "schedsearch/solver/smt.py",
        "schedsearch/certificate/recheck_z3.py",
        "schedsearch/tessel/queries.py",
    ],
    "ortools": ["schedsearch/solver/cpsat.py", "schedsearch/improve/window_cpsat.py"],
    "joblib": ["schedsearch/cache.py", "experiments/figures/pool.py"],
    "matplotlib": [
        "schedsearch/figures/canvas.py",
        "schedsearch/figures/timeline.py",
        "schedsearch/figures/panels.py",
        "schedsearch/figures/frontier.py",
        "schedsearch/figures/memory.py",
    ],
    "pynvml": ["runtime/clocks/nvml.py"],
    "torch": [
        "runtime/",
        "experiments/benchmarks/runtime/beside_torch.py",
        "experiments/benchmarks/runtime/one_device.py",
        "experiments/benchmarks/runtime/processes.py",
        "experiments/benchmarks/runtime/sleeping.py",
    ],
    "hydra": ["experiments/"],
    "omegaconf": ["experiments/"],
    "tqdm": ["experiments/config/progress.py"],
    "yaml": ["placements/placement_file.py", "experiments/config/command.py"],
    "scipy": ["schedsearch/bounds/memory_occupancy.py", "schedsearch/energy/"],
    "networkx": [
        "schedsearch/bounds/memory_need.py",
        "schedsearch/bounds/memory_occupancy.py",
        "experiments/benchmarks/frontier/lowtime_plans.py",
    ],
    "fastapi": ["runtime/server/"],
    "uvicorn": ["runtime/server/"],
    "sqlalchemy": ["runtime/server/"],
    "lowtime": ["experiments/benchmarks/frontier/lowtime_plans.py"],
}


def sources() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: import by full name"
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield ast.unparse(node.args[0]).strip("f'\"").split(".")[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_left_only(layer: str) -> None:
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / layer).rglob("*.py")
        for name in imported(path)
        if name in LAYERS and name not in allowed
    }
    assert not wrong


@pytest.mark.parametrize("library", OWNERS)
def test_each_library_has_its_owner(library: str) -> None:
    users = {str(path.relative_to(ROOT)) for path in sources() if library in imported(path)}
    assert users, f"nothing imports {library}; remove it from OWNERS and from pyproject.toml"
    assert not {user for user in users if not any(user.startswith(owner) for owner in OWNERS[library])}


def test_every_outside_library_is_listed() -> None:
    outside = {name for path in sources() for name in imported(path)} - set(LAYERS) - sys.stdlib_module_names
    assert outside - {"numpy"} <= set(OWNERS)


@pytest.mark.parametrize(
    "module",
    [
        "experiments.tasks.search",
        "experiments.tasks.frontier",
        "experiments.figures.time_by_transfer",
        "schedsearch.energy",
        "runtime.server.app",
        "runtime.client",
    ],
)
def test_only_the_runtime_needs_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'pynvml'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
