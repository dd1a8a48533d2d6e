"""Commands in a process that has imported nothing before; the other tests fork theirs."""

import subprocess
import sys

from commands import one_line_error
from places import ROOT

from experiments.config.rooms import names


def test_a_misspelt_option_is_one_line(refused, fresh_command) -> None:
    """One command starts as it does for a user."""
    for name in names():
        assert f"{name}: error: nonsense: is not an option of schedsearch " in refused(name, "nonsense=1")
    done = fresh_command("search", "nonsense=1")
    assert "nonsense: is not an option of schedsearch " in one_line_error(done)


def test_the_help_on_hydra_lists_the_groups(command) -> None:
    assert "hydra/sweeper: basic" in command("search", "--hydra-help").stdout


def test_garbage_collection_leaves_out_what_a_task_imports() -> None:
    code = """
import gc
from experiments.config.command import imported
imported("experiments.search.task")
print(gc.isenabled(), gc.get_freeze_count(), len(gc.get_objects()))
"""
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    is_enabled, frozen, collected = printed.split()
    assert is_enabled == "True"
    assert int(frozen) > 100 * int(collected)
