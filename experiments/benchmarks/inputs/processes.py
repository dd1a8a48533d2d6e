"""A function on each of several devices, as forked processes that reach each other over gloo."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from runtime.launching.processes import die_with_parent
from runtime.models.blocks import warm_up

Result = TypeVar("Result")

_JOIN_S = 10.0
"""How long a process may take to end once another has failed."""


class BenchmarkError(RuntimeError):
    """A process of a measurement failed or took too long."""


def on_devices(num_devices: int, work: Callable[[int], Result], timeout_s: float = 300.0) -> list[Result]:
    """Return the results of a function on each device, given its number.

    It runs in as many processes at once, each with one thread for torch, in a process group of them all.

    Raises:
        BenchmarkError: One failed, or all together took too long.
    """
    warm_up(torch.device("cpu"))
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        folder = Path(name)
        context = get_context("fork")
        processes = [
            context.Process(target=_be, args=(device, num_devices, work, folder, timeout_s), daemon=True)
            for device in range(num_devices)
        ]
        try:
            for process in processes:
                process.start()
            for process in processes:
                process.join(timeout_s)
                if process.exitcode != 0:
                    raise BenchmarkError(f"device {processes.index(process)} failed or took too long")
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join(_JOIN_S)
        return [pickle.loads((folder / f"{device}.pkl").read_bytes()) for device in range(num_devices)]


def _be(device: int, num_devices: int, work: Callable[[int], object], folder: Path, timeout_s: float) -> None:
    """Be one device."""
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=device,
        world_size=num_devices,
        timeout=timedelta(seconds=timeout_s),
    )
    (folder / f"{device}.pkl").write_bytes(pickle.dumps(work(device)))
    dist.barrier()
    dist.destroy_process_group()
