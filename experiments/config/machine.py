"""The surroundings of a measurement: the machine, Python, the packages, the commit of the project."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

PACKAGES = ("z3-solver", "ortools", "numpy", "scipy", "networkx", "lowtime", "torch")
"""Packages whose versions can change a result, or with which rows compare, where they are installed."""


def machine() -> dict[str, object]:
    """Return the surroundings of the results: machine, its load now, Python, packages, date."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "platform": platform.platform(),
        "cpu": next(named, platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "niceness": os.nice(0),
        "python": platform.python_version(),
        "packages": {
            name: dist.version for name in PACKAGES for dist in importlib.metadata.distributions(name=name)
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def commit() -> str:
    """Return the commit's short name, with ``-dirty`` if files differ; empty where this is no checkout."""
    project = Path(__file__).parents[2]
    if not (project / ".git").exists():
        return ""
    command = ["git", "-C", str(project), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
