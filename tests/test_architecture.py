"""The layers: imports go left only, and every outside library has its one owner."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ["placements", "schedsearch", "runtime", "experiments"]

OWNERS = {
    "z3": ["schedsearch/smt.py", "schedsearch/recheck.py", "schedsearch/baselines/tessel/queries.py"],
    "ortools": ["schedsearch/cpsat.py", "schedsearch/finite_model.py"],
    "joblib": ["schedsearch/cache.py", "experiments/pool.py"],
    "matplotlib": [
        "schedsearch/canvas.py",
        "schedsearch/plot.py",
        "schedsearch/plot_curves.py",
        "schedsearch/plot_frontier.py",
        "schedsearch/plot_lines.py",
    ],
    "pynvml": ["runtime/nvml.py"],
    "torch": [
        "runtime/",
        "experiments/benchmarks/beside_torch.py",
        "experiments/benchmarks/one_device.py",
        "experiments/benchmarks/processes.py",
        "experiments/benchmarks/sleeping.py",
    ],
    "hydra": ["experiments/"],
    "omegaconf": ["experiments/"],
    "tqdm": ["experiments/progress.py"],
    "yaml": ["placements/placement_file.py", "experiments/command.py"],
    "scipy": ["schedsearch/residence.py", "schedsearch/energy/"],
    "networkx": [
        "schedsearch/bounds.py",
        "schedsearch/residence.py",
        "experiments/benchmarks/lowtime_plans.py",
    ],
    "fastapi": ["runtime/server/"],
    "uvicorn": ["runtime/server/"],
    "sqlalchemy": ["runtime/server/"],
    "lowtime": ["experiments/benchmarks/lowtime_plans.py"],
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
        "experiments.search_task",
        "experiments.frontier_task",
        "experiments.time_by_transfer_task",
        "schedsearch.energy",
        "runtime.server.app",
        "runtime.client",
    ],
)
def test_only_the_runtime_needs_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'pynvml'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
