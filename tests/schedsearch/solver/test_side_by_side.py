"""Independent calls in several processes: in order, after a worker's death, and interrupted."""

import logging
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.side_by_side import RayAddressError, side_by_side

MAIN = os.getpid()


def process_of(number: int, seconds: float = 0.0) -> tuple[int, int]:
    time.sleep(seconds)
    return number, os.getpid()


def dies_elsewhere(here: int, number: int) -> int:
    if number == 1 and os.getpid() != here:
        os._exit(3)
    return number


def rejected(number: int) -> int:
    raise ValueError(f"{number} is wrong")


def until_interrupted(folder: Path, number: int) -> str:
    """Search as others do: for long, and with an answer also where it is interrupted."""
    (folder / f"{number}").touch()
    with INTERRUPTS.answered() as ending:
        while number:
            time.sleep(0.02)
            INTERRUPTS.raise_if_seen()
    return f"{number} interrupted" if ending.interrupted else f"{number}"


def test_results_come_in_the_order_of_the_calls() -> None:
    kept: list[int] = []
    calls = [partial(process_of, number, seconds) for number, seconds in enumerate([0.5, 0, 0, 0])]
    results = side_by_side(calls, 2, lambda i, _: kept.append(i))
    assert [result and result[0] for result in results] == [0, 1, 2, 3]
    assert sorted(kept) == [0, 1, 2, 3] and MAIN not in {result and result[1] for result in results}


@pytest.mark.parametrize(("number", "workers"), [(1, 4), (3, 1), (0, 2)])
def test_no_process_is_started_without_a_gain(number: int, workers: int) -> None:
    results = side_by_side([partial(process_of, i) for i in range(number)], workers)
    assert results == [(i, MAIN) for i in range(number)]


def test_calls_of_a_worker_that_dies_are_made_again_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert side_by_side([partial(dies_elsewhere, MAIN, i) for i in range(4)], 2) == [0, 1, 2, 3]
    assert caplog.text.count("\n") == 1 and "made again in this one" in caplog.text


def test_an_error_of_a_call_is_the_callers() -> None:
    with pytest.raises(ValueError, match="is wrong"):
        side_by_side([partial(rejected, i) for i in range(3)], 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_the_calls_that_run_and_keeps_their_answers(tmp_path: Path, workers: int) -> None:
    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 1 + workers:
            time.sleep(0.02)
        os.kill(MAIN, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with INTERRUPTS.answered():
        results = side_by_side([partial(until_interrupted, tmp_path, i) for i in range(4)], workers)
    assert results == ["0", "1 interrupted", "2 interrupted" if workers > 1 else None, None]


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        RayAddressError, match=r"RAY_ADDRESS: 127\.0\.0\.1:1: .*; start the cluster, or unset"
    ):
        side_by_side([partial(process_of, i) for i in range(2)], 2)
