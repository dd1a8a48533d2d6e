from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m experiments.NAME`` with overrides; its output goes to ``tmp_path / "out"``."""

    def run(name: str, *overrides: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", f"experiments.{name}", f"hydra.run.dir={tmp_path / 'out'}", *overrides]
        return subprocess.run(line, cwd=ROOT, text=True, capture_output=True, timeout=timeout_s, check=False)

    return run
