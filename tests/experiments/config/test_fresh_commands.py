"""Commands in a process that has imported nothing before; the other tests fork theirs."""

from pathlib import Path

import pytest
from commands import one_line_error

import experiments

COMMANDS = {path.stem for path in Path(experiments.__path__[0]).glob("*.py")} - {"__init__", "collect"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_misspelt_option_is_one_line(name: str, command, fresh_command) -> None:
    """The command with all the others' imports, and one without torch, start as they do for a user."""
    start = fresh_command if name in ("run", "search") else command
    assert "nonsense: is not an option of experiments." in one_line_error(start(name, "nonsense=1"))
