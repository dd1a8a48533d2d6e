"""Pages of the gallery: notebooks executed when the site is built, and a report that a command writes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
MADE = ROOT / "docs" / "gallery" / "made"
SOURCES = ("placements", "schedsearch", "runtime", "experiments", "examples")
REPORT = MADE / "report"
COMPARE = (
    "experiments.compare",
    "stages=examples/stages.yaml",
    "schedules=[one_f_one_b,zb_v,dual_pipe_v,searched]",
    "search.time_limit_s=300",  # it ends with a proof, long before
    f"hydra.run.dir={REPORT}",
)
"""Comparison whose report is the live one of the gallery."""


def make_pages() -> None:
    """Execute each notebook and the comparison, two at a time, unless nothing changed since the last build.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails.
        subprocess.CalledProcessError: The comparison fails.
    """
    MADE.mkdir(exist_ok=True)
    changed = max(path.stat().st_mtime for name in SOURCES for path in (ROOT / name).rglob("*.*"))
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(_make_page, path, changed) for path in sorted(NOTEBOOKS.glob("*.py"))]
        made.append(pool.submit(_make_report, changed))
    for each in made:
        each.result()


def card(name: str, sentence: str) -> str:
    """Return a thumbnail that leads to the page of a notebook, and a sentence, in Markdown.

    Raises:
        ValueError: No cell of the notebook shows a figure.
    """
    figures = sorted((MADE / name).iterdir(), key=lambda path: int(path.stem.split("_")[-2]))
    if not figures:
        raise ValueError(f"notebooks/{name}.py: no cell shows a figure")
    title = (MADE / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    thumbnail = f"![Figure of the notebook: {title}](made/{name}/{figures[0].name})"
    return f"[{thumbnail}](made/{name}.md)\n\n[**{title}**](made/{name}.md): {sentence}"


def _make_page(path: Path, changed: float) -> None:
    page = MADE / f"{path.stem}.md"
    if page.exists() and page.stat().st_mtime > max(changed, path.stat().st_mtime):
        return
    notebook = jupytext.read(path)
    with TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]  # no progress bars
    place = {"output_files_dir": path.stem, "unique_key": path.stem}
    text, resources = MarkdownExporter().from_notebook_node(notebook, place)
    shutil.rmtree(MADE / path.stem, ignore_errors=True)
    (MADE / path.stem).mkdir()
    for name, data in resources["outputs"].items():
        (MADE / name).write_bytes(data)
    # Style sheets of tables have empty lines, at which Markdown would end the HTML.
    text = re.sub(r"<style scoped>.*?</style>\n", "", text, flags=re.DOTALL)
    page.write_text(text.lstrip(), encoding="utf-8")


def _make_report(changed: float) -> None:
    page = REPORT / "report.html"
    if not (page.exists() and page.stat().st_mtime > changed):
        shutil.rmtree(REPORT, ignore_errors=True)
        subprocess.run([sys.executable, "-m", *COMPARE], cwd=ROOT, check=True)
