"""A command is added by a folder with options and a task, as docs/extending.md says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from commands import one_line_error
from places import ROOT

OPTIONS = """
from dataclasses import dataclass
from experiments.config.declaring import Command
from placements.forms.meaning import option

@dataclass(frozen=True, kw_only=True)
class StagesOptions:
    stages: int = option(2, "how many", min=1)

COMMAND = Command("stages", StagesOptions, task="experiments.stages.task", first="stages")
"""

TASK = """
from dataclasses import dataclass
from experiments.report.result import Result, Table
from experiments.stages.options import StagesOptions

@dataclass(frozen=True)
class StageRow:
    stage: int
    time_ms: float | None

def task(options: StagesOptions) -> Result:
    rows = [StageRow(n, 10.0 * n or None) for n in range(options.stages)]
    interrupted = "some are in" * (options.stages == 3)
    return Result(figures={"stages": options.stages}, tables={"stages": Table(StageRow, rows)},
                  files={"a.json": [1]}, sentences=["as many as asked for"], interrupted=interrupted)
"""


ADDED = """
import sys, experiments
from experiments.config.command import run
from experiments.config.rooms import PURPOSES
PURPOSES["stages"] = "Count stages."
experiments.__path__.append(sys.argv.pop(1))
run("stages")
"""


def test_a_new_command(tmp_path: Path) -> None:
    room = tmp_path / "rooms/stages"
    room.mkdir(parents=True)
    (room / "__init__.py").touch()
    (room / "options.py").write_text(OPTIONS)
    (room / "task.py").write_text(TASK)

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", ADDED, str(room.parent), *words]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)

    out = tmp_path / "2"
    assert done("stages=2", f"hydra.run.dir={out}").stdout.splitlines() == [
        "as many as asked for",
        f"stages.csv, a.json in {out}",
    ]
    assert (out / "stages.csv").read_text() == "stage,time_ms\n0,\n1,10.0\n"
    record = json.loads((out / "result.json").read_text())
    assert (record["status"], record["figures"]) == ("done", {"stages": 2})
    cut = done("stages=3", f"hydra.run.dir={tmp_path / '3'}")
    assert cut.returncode == 130
    assert cut.stderr == f"stages: interrupted; some are in {tmp_path / '3'}\n"
    assert json.loads((tmp_path / "3/result.json").read_text())["status"] == "interrupted"
    assert done("--help").stdout.startswith("Count stages.")
    assert one_line_error(done("stages=0")).endswith("stages: 0 is not a whole number of 1 or more; give one")
