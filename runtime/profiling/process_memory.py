"""Resident memory of a process, now and at its peak.

The kernel counts both for one process image: where a program is started, they begin anew, whatever the
process that started it had. (`resource.getrusage` does not: its peak is handed on to a started program.) A
forked process begins with the pages of its parent, which both share, as what it has and as its peak. So the
peak less what the process had before its work is the work's own in each case. Threads share one process.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def rss_mib() -> float:
    """Return the resident memory of this process in MiB; where no kernel says so, its peak."""
    return _status_mib("VmRSS")


def peak_rss_mib() -> float:
    """Return the most resident memory that this process had so far, in MiB."""
    return _status_mib("VmHWM")


def _status_mib(name: str) -> float:
    try:
        lines = _STATUS.read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
