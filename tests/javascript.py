"""JavaScript of the docs, run in Node or in a browser without a window; skipped where there is neither."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

PLAYGROUND = ROOT / "docs" / "playground"
BROWSERS = "chromium", "chromium-browser", "google-chrome"


def simulated(body: str, data: object, folder: Path) -> Any:
    """Return the result of a function body in which ``Simulator`` and ``data`` are known."""
    simulator = (PLAYGROUND / "simulator.js").read_text(encoding="utf-8")
    script = f"const data = {json.dumps(data)};\nconst answer = (() => {{ {body} }})();\n"
    if node := shutil.which("node"):
        file = folder / "simulated.cjs"
        file.write_text(
            f"{simulator}\n{script}process.stdout.write(JSON.stringify(answer));\n", encoding="utf-8"
        )
        return json.loads(_output([node, str(file)]))
    page = folder / "simulated.html"
    shown = 'document.body.append(document.createElement("pre")); '
    shown += "document.body.lastChild.textContent = JSON.stringify(answer);"
    page.write_text(f"<!DOCTYPE html><body><script>{simulator}\n{script}{shown}</script>", encoding="utf-8")
    return json.loads(text_of(browsed(page.as_uri()), "pre"))


def browsed(address: str) -> str:
    """Return a page as HTML, as it is after its scripts have run.

    Raises:
        AssertionError: It wrote to the console.
    """
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("there is no Chromium")
    options = "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"
    done = subprocess.run(
        [browser, *options, address], capture_output=True, text=True, timeout=120, check=True
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def text_of(page: str, what: str) -> str:
    """Return the text of the first element with this tag, or of the one with this ``#id``."""
    tag, attributes = (r"\w+", rf'[^>]*\bid="{what[1:]}"') if what.startswith("#") else (what, "")
    match = re.search(rf"<({tag})\b{attributes}[^>]*>(.*?)</\1>", page, re.DOTALL)
    assert match, f"the page has no {what}"
    return html.unescape(re.sub(r"<[^>]*>", "", match[2]))


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
