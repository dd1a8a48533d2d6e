"""Every notebook runs from its first cell to its last, with parameters that make it quick."""

import ast
from pathlib import Path
from types import CodeType
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from places import ROOT

NOTEBOOKS = ROOT / "notebooks"

SMALL: dict[str, dict[str, Any]] = {
    "quick_start": {"num_micro_batches": 4, "work_limit": 2.5},
    "searched_against_hand_made": {
        "num_devices": 2,
        "num_micro_batches": 4,
        "schedules": ["searched", "one_f_one_b", "zb_v"],
        "work_limit": 2.5,
    },
    "memory_against_bubble": {"num_devices": 2, "most_memory": 2, "work_limit": 2.5},
    "recompute_offload_overlap": {
        "num_devices": 2,
        "num_micro_batches": 4,
        "memory_gib": [10, 15],
        "work_limit": 1,
    },
    "unequal_sequences": {"num_devices": 2, "num_sequences": 6, "work_limit": 0.5},
    "energy_and_stragglers": {
        "num_devices": 2,
        "num_micro_batches": 3,
        "num_plans": 5,
        "slowdowns": (1.0, 1.2),
    },
    "planning": {"model": "gpt3_1.3b", "cluster": "a100_8", "batch": 8, "time_limit_s": 8},
    "cluster": {
        "models": {"gpt3_1.3b": 16},
        "counts": [2, 4],
        "workers": {"a100": 4},
        "days": 1,
        "jobs_per_day": 5,
    },
    "zero_bubble_real_times": {"num_devices": 2, "num_micro_batches": 4, "work_limit": 2.5},
}
"""Values in the place of a notebook's parameters."""


def cells(text: str) -> list[tuple[str, str]]:
    """Return the heads and the codes of the cells that are no text."""
    parts = [cell.partition("\n") for cell in text.split("\n# %%")[1:]]
    return [(head, code) for head, _, code in parts if "[markdown]" not in head]


def run(name: str) -> list[Any]:
    """Run a notebook with the parameters of `SMALL`; return its cells' outputs."""
    names: dict[str, Any] = {"__name__": name}
    shown = []
    for head, code in cells((NOTEBOOKS / f"{name}.py").read_text()):
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compiled(tree), names)
        if last is not None and (value := eval(compiled(ast.Expression(last.value)), names)) is not None:
            shown.append(value)
        if "parameters" in head:
            assert SMALL[name].keys() <= names.keys(), "a parameter that the notebook has"
            names |= SMALL[name]
    return shown


def compiled(tree: ast.Module | ast.Expression) -> CodeType:
    return compile(tree, "notebook", "exec" if isinstance(tree, ast.Module) else "eval")


def test_all_notebooks_are_run_and_begin_with_their_title_and_parameters() -> None:
    texts = {path.stem: path.read_text() for path in NOTEBOOKS.glob("*.py")}
    assert texts.keys() == SMALL.keys()
    for text in texts.values():
        assert "formats: py:percent" in text
        first, second, *_ = text.split("\n# %%")[1:]
        assert first.startswith(" [markdown]\n# # ")
        assert second.startswith(' tags=["parameters"]\n')


@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda: None)
    with mpl.rc_context({"backend": "Agg"}):
        shown = run(name)
    figures = [fig for fig in shown if isinstance(fig, Figure)] + list(map(plt.figure, plt.get_fignums()))
    plt.close("all")
    assert figures, "it draws something"
    assert all(axes.has_data() for figure in figures for axes in figure.axes if axes.get_visible())
    tables = [table for table in shown if hasattr(table, "columns")]
    assert tables, "it shows a table"
    assert all(len(table) for table in tables)
    assert not list(tmp_path.iterdir()), "and leaves no file behind"


SHOWS = """
import schedsearch
schedule = schedsearch.one_f_one_b(schedsearch.v_shape(2), 3)
"""


@pytest.mark.parametrize(
    ("cell", "num_images"),
    [
        ("schedule.plot()", 1),
        ("figure = schedule.plot()", 1),
        ("schedule.plot()\nschedule.plot()", 2),
        ("figure = schedule.plot()\nfigure.axes[0].set_title('mine')\nfigure", 1),
        ("schedule.to_frame()", 0),
    ],
)
def test_a_figure_is_shown_once(
    cell: str, num_images: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterLab showed <Figure size 1000x170 with 1 Axes> where pyplot was not imported."""
    shells = pytest.importorskip("IPython.core.interactiveshell")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = shells.InteractiveShell.instance()
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(shell.displayhook, "write_format_data", lambda data, _: shown.append(data))
    monkeypatch.setattr(shell.display_pub, "publish", lambda data, *_, **__: shown.append(data))
    try:
        shell.history_manager.enabled = False
        for code in (SHOWS, cell, "1"):
            shell.run_cell(code)
    finally:
        shell.clear_instance()
    assert len([data for data in shown if "image/png" in data]) == num_images
    assert not [data for data in shown if "image/png" not in data and "<Figure" in data["text/plain"]]
