"""What the tests of the commands share."""

import subprocess


def one_line_error(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user's mistake gets."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]
