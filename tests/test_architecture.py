"""The house: imports go left and to rooms above, guides are true, every outside library has its one owner."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from places import ROOT
from small_runs import SMALL_GPT

import schedsearch
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

FRONT_DOOR = {"schedsearch.__main__": {"experiments"}, "schedsearch": {"runtime"}}
"""Exceptions to the rule that imports go left, as the command and the library bear the name of all layers:
``schedsearch COMMAND`` runs a command of `experiments`, `schedsearch.Pipeline` is `runtime.Pipeline`, and
`schedsearch.clocks` is `runtime.PlanClocks`. They import when they are used; see
``test_the_front_door_is_all_that_schedsearch_knows_of_later_layers``.
"""

LAYERS = ["placements", "schedsearch", "runtime", "experiments"]

MOST_FILES = 14
"""About a dozen in a room, so that a stranger finds one."""

OWNERS = {
    "z3": [
        "schedsearch/model/z3_model.py",
        "schedsearch/solver/smt.py",
        "schedsearch/proof/check/states.py",
        "schedsearch/proof/check/refutation.py",
        "schedsearch/tessel/queries.py",
    ],
    "ortools": ["schedsearch/model/cpsat_model.py", "schedsearch/solver/cpsat.py"],
    "numba": ["schedsearch/graph/compiled.py"],
    "joblib": ["experiments/reproduce/run_item.py", "schedsearch/solver/side_by_side.py"],
    "cloudpickle": ["schedsearch/core/team.py"],
    "ray": ["schedsearch/solver/side_by_side.py", "runtime/rounds/real_rounds.py"],
    "bokeh": ["experiments/report/drawings.py"],
    "jinja2": ["experiments/report/html_report.py"],
    "matplotlib": ["schedsearch/figures/"],
    "IPython": ["schedsearch/figures/"],  # where it runs already
    "pandas": [
        "schedsearch/notebook.py",
        "experiments/cluster/",
        "experiments/collect.py",
        "experiments/sweep.py",
    ],
    "pynvml": ["runtime/clocks/nvml.py"],
    "safetensors": ["runtime/models/state_dict.py"],
    "torch": [
        "runtime/",
        "experiments/benchmarks/others/torch_runtime.py",
        "experiments/benchmarks/others/torch_schedules.py",
    ],
    "hydra": ["experiments/"],
    "hydra_plugins": ["experiments/slurm.py"],
    "omegaconf": ["experiments/"],
    "submitit": ["experiments/slurm.py"],
    "tqdm": ["schedsearch/core/progress.py"],
    "csv": ["placements/forms/"],
    "yaml": ["placements/forms/texts.py", "experiments/config/option_list.py"],
    "scipy": [
        "schedsearch/proof/memory_occupancy.py",
        "schedsearch/proof/mode_choice.py",
        "schedsearch/cluster/policies/allox.py",
        "schedsearch/cluster/policies/program.py",
        "schedsearch/energy/baselines/perseus.py",
        "schedsearch/energy/programs.py",
        "schedsearch/unequal/replica_bound.py",
        "experiments/reproduce/galvatron/tables.py",
        "experiments/reproduce/gavel/study.py",
        "placements/models/machine/machine_rates.py",
        "placements/profiles/length_rules.py",
    ],
    "networkx": [
        "schedsearch/baselines/structure.py",
        "schedsearch/proof/",
        "experiments/benchmarks/others/lowtime_plans.py",
    ],
    "fastapi": ["runtime/server/"],
    "starlette": ["runtime/server/"],  # comes with fastapi
    "pydantic": ["runtime/server/"],
    "uvicorn": ["runtime/server/"],
    "lowtime": ["experiments/benchmarks/others/lowtime_plans.py"],
}


def sources() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


@cache
def imported(path: Path) -> frozenset[str]:
    return frozenset(_imported(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return the syntax nodes that can import something."""
    kinds = ast.Import | ast.ImportFrom | ast.keyword | ast.Call
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def _imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: import by full name"
            yield node.module.split(".")[0]
        elif isinstance(node, ast.keyword) and node.arg == "task" and isinstance(node.value, ast.Constant):
            yield str(node.value.value).split(".")[0]  # what a command imports by name
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(arg.value).split(".")[0] for arg in node.args if isinstance(arg, ast.Constant))


def modules() -> dict[str, Path]:
    """Return every module of the layers by its dotted name; a package stands for its ``__init__``."""
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources()}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def own_imports(path: Path, known: Set[str]) -> Iterator[str]:
    """Yield the modules of the layers that a file imports, inside functions too."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (
                arg.value for arg in node.args if isinstance(arg, ast.Constant) and arg.value in known
            )


def guide(package: Path) -> str:
    """Return the docstring of a package."""
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def listed(package: Path) -> list[str]:
    """Return the names in a package's guide, in its order: the lines that are indented by four."""
    rows = [line.strip() for line in guide(package).splitlines() if re.match(r" {4}\w", line)]
    return [name for row in rows for name in re.split(r"\s{2,}", row)[0].split(", ")]


def test_imports_go_left_only_and_to_rooms_above() -> None:
    place = {
        f"{layer}.{room}": (index, number)
        for index, layer in enumerate(LAYERS)
        for number, room in enumerate(listed(ROOT / layer))
    } | {layer: (index, -1) for index, layer in enumerate(LAYERS)}

    def place_of(module: str) -> tuple[int, int]:
        return place[".".join(module.split(".")[:2])]

    paths = modules()
    wrong = {
        f"{name} imports {other}"
        for name, path in paths.items()
        for other in own_imports(path, paths.keys())
        if name not in (*LAYERS, *FRONT_DOOR) and place_of(other) > place_of(name)
    }
    assert not wrong


def test_the_front_door_is_all_that_schedsearch_knows_of_later_layers() -> None:
    paths = modules()
    for name, layers in FRONT_DOOR.items():
        others = {other.split(".")[0] for other in own_imports(paths[name], paths.keys())}
        assert others <= {"schedsearch", *layers}
    later = {module for module in schedsearch._HOME if module.split(".")[0] in ("runtime", "experiments")}
    assert later == {"runtime"}
    assert schedsearch._HOME["runtime"] == ("Pipeline", "clocks")
    assert not {"runtime", "experiments"} & modules_after("import schedsearch; schedsearch.search")


LOADERS = {
    *("runtime", "schedsearch", "experiments.__main__", "experiments.benchmarks.frame"),
    *("experiments.config.command", "experiments.config.declaring"),
    *("experiments.plan.task", "experiments.reproduce.catalogue"),
}
"""Front doors, which alone import modules of ours by their names, late: no circle can hide behind those."""


def test_front_doors_alone_import_by_name() -> None:
    outside = set(OWNERS)
    wrong = {
        f"{name}: {ast.unparse(node)}"
        for name, path in modules().items()
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
        if name not in LOADERS
        if not (isinstance(node.args[0], ast.Constant) and node.args[0].value.split(".")[0] in outside)
    }
    assert not wrong


def test_no_files_import_each_other_in_a_circle() -> None:
    paths = modules()
    edges = ((name, other) for name, path in paths.items() for other in own_imports(path, paths.keys()))
    circles = nx.strongly_connected_components(nx.DiGraph(edge for edge in edges if edge[0] != edge[1]))
    assert not [sorted(circle) for circle in circles if len(circle) > 1]


FOLDERS = {str(path.parent.relative_to(ROOT)) for path in sources()} - {"experiments/conf"}


@pytest.mark.parametrize("room", sorted(FOLDERS))
def test_a_room_is_small_and_its_guide_names_what_is_in_it(room: str) -> None:
    here = ROOT / room
    inside = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/*.py")}
    named = {*listed(here), *re.findall(r"`(\w+)`", guide(here))}
    assert inside - {"__init__", "__main__"} <= named
    assert len({*here.glob("*.py")} - {here / "__main__.py"}) <= MOST_FILES


MAP = re.compile(r"(?<=\| folder \| what is in it \|\n\|---\|---\|\n).*?(?=\n\n)", re.DOTALL)
"""The rows of CONTRIBUTING's table of rooms."""


def test_contributings_map_is_made_of_the_rooms_first_lines(request: pytest.FixtureRequest) -> None:
    rooms = (layer + room for layer in LAYERS for room in ("", *map("/{}".format, listed(ROOT / layer))))
    rows = (
        f"| `{room}/` | {guide(ROOT / room).splitlines()[0]} |"
        for room in rooms
        if (ROOT / room / "__init__.py").exists()
    )
    page = ROOT / "CONTRIBUTING.md"
    expected = MAP.sub(lambda _: "\n".join(rows), page.read_text(encoding="utf-8"), count=1)
    if request.config.getoption("--update-golden"):
        page.write_text(expected, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == expected, "write it anew with --update-golden"


@pytest.mark.parametrize("library", OWNERS)
def test_each_library_has_its_owner(library: str) -> None:
    users = {str(path.relative_to(ROOT)) for path in sources() if library in imported(path)}
    assert users, f"nothing imports {library}; remove it from OWNERS and from pyproject.toml"
    assert not {user for user in users if not any(user.startswith(owner) for owner in OWNERS[library])}


def test_every_outside_library_is_listed() -> None:
    outside = {name for path in sources() for name in imported(path)} - set(LAYERS) - sys.stdlib_module_names
    assert outside - {"numpy"} <= set(OWNERS)


HEAVY = {
    "z3",
    "ortools",
    "numba",
    "pandas",
    "networkx",
    "scipy",
    "matplotlib",
    "hydra",
    "omegaconf",
    "joblib",
    "bokeh",
    "torch._dynamo",
    "torch._inductor",
}


def modules_after(code: str) -> set[str]:
    """Return the modules that a fresh process has loaded after some lines of Python."""
    code = f"{code}\nimport sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split())


@pytest.mark.parametrize("module", ["runtime.device", "runtime.check", "runtime.launching.processes"])
def test_a_devices_script_loads_no_solvers_and_no_figures(module: str) -> None:
    """Each process of a run would wait for them, and hold them in its memory."""
    assert not HEAVY & modules_after(f"import {module}")


@pytest.mark.parametrize("launcher", ["fork", "in_process"])
def test_nor_does_a_run_or_a_loop_of_ones_own(launcher: str, tmp_path: Path) -> None:
    """With everything that is imported late: by its launch, a comparison, and a device up to its end."""
    scripts = generate(lower(one_f_one_b(v_shape(2), 2)), {}, SMALL_GPT, tmp_path)
    of_device = tmp_path / "modules.txt"
    with scripts[0].open("a") as script:
        script.write(f"    import sys\n    open({str(of_device)!r}, 'w').write(' '.join(sys.modules))\n")
    run = f"launch({str(tmp_path)!r}, 2, RunOptions(2, 60, {launcher!r}, verify='all'))"
    imports = "import runtime; runtime.Pipeline\nfrom runtime.launch import RunOptions, launch\n"
    assert not HEAVY & modules_after(imports + run)
    if launcher == "fork":
        loaded = of_device.read_text().split()
        assert "runtime.loops.train" in loaded
        assert not HEAVY & set(loaded)


WITHOUT_TORCH = [
    "experiments.search.task",
    "experiments.frontier.task",
    "schedsearch.energy",
    "runtime.codegen.codegen",
    "runtime.program.deadlock",
    "runtime.server.app",
    "runtime.client",
    "runtime.clock",
]


def test_only_the_runtime_needs_torch() -> None:
    code = f"import sys, {', '.join(WITHOUT_TORCH)}; assert not {{'torch', 'pynvml'}} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
