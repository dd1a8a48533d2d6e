"""The line of an iteration has its number, its loss and its ms."""

from __future__ import annotations

from pathlib import Path

from runtime.execution.results import Progress, read_progress, write_progress


def test_a_line_has_the_loss_and_the_milliseconds(tmp_path: Path) -> None:
    done = Progress(3, 2.5, 1234.56)
    assert str(done).startswith("iteration 3") and "loss 2.500000" in str(done) and "1234.6 ms" in str(done)
    for each in (done, Progress(4, 2.25, 1200.0)):
        write_progress(tmp_path, each)
    assert read_progress(tmp_path) == [done, Progress(4, 2.25, 1200.0)]
