"""Processes that join each other like torchrun's, forked from the test's process."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runtime.execution.run_options import RunOptions


class JoinedError(Exception):
    """Processes failed; the arguments are the last lines of their errors, by rank."""


def join(count: int, function: Callable[[int], Any], folder: Path, timeout_s: float = 300.0) -> list[Any]:
    """Run a function of the rank in each of several processes; return the results.

    Args:
        count: How many processes.
        function: What each does.
        folder: For their meeting and their results; may be used again.
        timeout_s: For all of them.

    Raises:
        JoinedError: Some failed or hang.
    """
    number = len(list(folder.glob("joined_*")))
    here = folder / f"joined_{number}"
    here.mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    common = meeting_in(here, count)
    processes = [
        context.Process(target=_be, args=(function, rank, common, here), daemon=True) for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
    errors = {
        rank: _error(here / f"error_{rank}.txt") for rank in range(count) if processes[rank].exitcode != 0
    }
    if errors:
        raise JoinedError(errors)
    return [torch.load(here / f"result_{rank}.pt", weights_only=False) for rank in range(count)]


def meeting_in(folder: Path, count: int) -> dict[str, str]:
    """Return the environment of processes that meet in a folder, apart from their ranks."""
    run = RunOptions(meeting=f"file://{folder / 'meeting'}").write(folder)
    return {**run, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}


def _error(path: Path) -> str:
    return path.read_text().strip() if path.exists() else "hangs, or was ended by a signal"


def _be(function: Callable[[int], Any], rank: int, common: dict[str, str], folder: Path) -> None:
    os.environ |= common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)  # as torchrun does; threads of the process before the fork are not here
    try:
        torch.save(function(rank), folder / f"result_{rank}.pt")
    except BaseException as error:
        traceback.print_exc(file=sys.__stderr__)
        (folder / f"error_{rank}.txt").write_text(f"{type(error).__name__}: {error}")
        os._exit(1)
    os._exit(0)
