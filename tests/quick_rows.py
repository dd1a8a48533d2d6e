"""What the tests of every benchmark share."""

import json
from pathlib import Path
from typing import Any

from experiments.benchmarks.benchmark_command import Benchmark


def quick_rows(benchmark: Benchmark, output: Path, *arguments: str) -> list[dict[str, Any]]:
    """The rows of the quick cases, as they stand in the results file; the table beside it has as many."""
    assert benchmark.main([*arguments, "--quick", "--output", str(output)]) == 0
    rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["rows"]
    lines = output.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.startswith("|")]) == 2 + len(rows)
    for row in rows:
        assert row["must"]
        assert row["met"] == (not row["missed"] and not row["skipped"])
    return rows
