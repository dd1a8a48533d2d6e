"""Error lines that a user sees if a process of torchrun fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.transport.agreement import PipelineError
from runtime.transport.error_lines import error_line

LOOP = """
import runtime

def train():
    {what}

train()
"""


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("runtime.Pipeline([], 'none')", "loop.py:5: ScriptError: none: has no device_0.py"),
        ("raise KeyError('mine')", "Traceback (most recent call last):\n"),
    ],
)
def test_errors_of_the_project_are_one_line_and_others_keep_their_traceback(
    what: str, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "loop.py"
    file.write_text(LOOP.format(what=what))
    root = str(Path(__file__).parents[3])
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    environment = os.environ | variables | {"PYTHONPATH": root}
    command = [sys.executable, file]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(expected), done.stderr
    assert ("Traceback" in done.stderr) == ("mine" in what)


def test_the_line_says_where_a_users_module_failed(tmp_path: Path) -> None:
    """In the file of the module, which torch called; the loop is where the pipeline was called."""
    file = tmp_path / "model.py"
    file.write_text("def forward():\n    raise TypeError('no tensor')\n")
    module: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), module)
    try:
        try:
            module["forward"]()  # type: ignore[operator]
        except TypeError as error:
            raise PipelineError("device 0: TypeError: no tensor") from error
    except PipelineError as error:
        line = error_line(error)
        assert line.startswith(f"{Path(__file__).name}:")
        assert line.endswith(": PipelineError: device 0: TypeError: no tensor (model.py:2)")
