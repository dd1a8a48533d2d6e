"""The clock helper in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


class Helper:
    """A helper in a process of its own."""

    def __init__(self, path: Path, *options: str) -> None:
        line = [sys.executable, "-m", "runtime.clock", "serve", "--socket", str(path), *options]
        self.path = path
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
