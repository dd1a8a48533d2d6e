"""Calls in several processes: answers as they come, and what Ctrl-C leaves."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial

from places import ROOT

from experiments.reproduce.processes import in_any_order

WAITS = """
import functools, time
from experiments.reproduce.processes import in_any_order

try:
    for _ in in_any_order([functools.partial(time.sleep, seconds) for seconds in (0, 900, 900)], 2):
        print("one", flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_every_answer_comes_and_no_process_stays() -> None:
    calls = [partial(pow, number, 2) for number in range(5)]
    assert list(in_any_order(calls, 1)) == [0, 1, 4, 9, 16]
    assert sorted(in_any_order(calls, 2)) == [0, 1, 4, 9, 16]
    assert not multiprocessing.active_children()


def test_ctrl_c_of_a_terminal_ends_all_processes_without_a_word() -> None:
    """Every process gets the signal."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == ("interrupted\n", "")
