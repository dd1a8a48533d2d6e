from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from places import ROOT

from experiments.benchmarks.server.cases import GROUPS


def test_the_storm_of_the_quick_cases_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "experiments.benchmarks.server", "storm", "--quick", "--output", str(output)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert row["case"] == "10 jobs, 1000 messages of 8 senders"
    assert row["note"].endswith("; lost: 0")
    # Whether it was quick enough depends on the machine; what is lost does not.
    assert all("CPU is" in text for text in row["missed"]), row


def test_names_of_cases_are_unique() -> None:
    names = [(case.group, case.name) for cases in GROUPS.values() for case in cases()]
    assert len(set(names)) == len(names)
