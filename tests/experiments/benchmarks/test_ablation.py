"""What strategies are worth: the table, and a run that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.benchmarks.search.ablation import ALL, AblationRow, main, table


def test_a_gain_is_how_much_longer_the_period_is_without() -> None:
    rows = [
        AblationRow("a", "loops", ALL, "10", 100, {"annealing": 1.0, "queries": 3.0}, 4.0),
        AblationRow("a", "loops", "annealing", "11", 100, {"queries": 4.0}, 4.0),
        AblationRow("b", "loops", ALL, "41/2", 205, {"annealing": 1.0, "queries": 3.0}, 4.0),
        AblationRow("b", "loops", "annealing", "20", 205, {"queries": 4.0}, 4.0),
        AblationRow("a", "loops", "greedy", "10", 100, {}, 0.0),
    ]
    lines = table(rows).splitlines()
    assert lines[2:] == [
        f"| annealing | {group} | 2 | 25% | +3.78 % | 1 | 1 | +0.00 % |" for group in ("loops", "all")
    ], "greedy did nothing"


def test_a_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "ablation.json"
    arguments = ["k_4x16_memory_6", "--work", "0.05", "--objectives", "period", "--output", str(output)]
    assert main([*arguments, "--without", "queries"]) == 0
    assert [row["without"] for row in json.loads(output.read_text())["rows"]] == [ALL, "queries"]
    assert main([*arguments, "--without", "queries", "annealing"]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert [row["without"] for row in rows] == [ALL, "queries", "annealing"]
    assert "| queries | " in capsys.readouterr().out and (tmp_path / "ablation.md").exists()
    with pytest.raises(SystemExit):
        main([*arguments[:2], "0.06", "--output", str(output)])
    assert "is of work_limit 0.05, not of 0.06; give another --output" in capsys.readouterr().err
