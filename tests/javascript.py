"""JavaScript of the docs, run in Node or in a browser without a window; skipped where there is neither."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, chromium
from places import ROOT

PLAYGROUND = ROOT / "docs" / "playground"


def simulated(body: str, data: object, folder: Path) -> Any:
    """Return what the body of a function of ``Simulator``, ``Readers`` and ``data`` returns."""
    sources = [(PLAYGROUND / name).read_text(encoding="utf-8") for name in ("simulator.js", "readers.js")]
    script = "\n".join([*sources, f"const data = {json.dumps(data)}, answer = (() => {{ {body} }})();\n"])
    if node := shutil.which("node"):
        file = folder / "simulated.cjs"
        file.write_text(f"{script}process.stdout.write(JSON.stringify(answer));\n", encoding="utf-8")
        done = subprocess.run([node, str(file)], capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout)
    if CHROMIUM is None:
        pytest.skip("there is neither Node nor Chromium")
    file = folder / "simulated.html"
    file.write_text(f"<!DOCTYPE html><body><script>{script}</script>", encoding="utf-8")
    with chromium() as page:
        page.open(file)
        return page.evaluate("answer")
