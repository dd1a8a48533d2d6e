"""Our runtime and torch's own on the same model, schedule and processes, iteration by iteration in turn."""

from __future__ import annotations

import pickle
import runpy
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.multiprocessing.spawn import start_processes

from runtime.codegen.codegen import generate
from runtime.codegen.script import Script, read_script
from runtime.execution.device import Device
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.loops.iterations import timed_iteration
from runtime.models import USER_MODEL, Blocks, Model
from runtime.models.blocks import warm_up
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.torch_pipelining.csv import torch_order
from runtime.transport.process_groups import connect
from schedsearch.schedule import Schedule

_MODEL = """
import torch
from torch import nn
from torch.nn.functional import mse_loss as loss

WIDTH, ROWS = {width}, {rows}

def build(block):
    torch.manual_seed(int(block[1:]))
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())

def data(iteration, micro_batch):
    generator = torch.Generator().manual_seed(micro_batch)
    return tuple(torch.rand(ROWS, WIDTH, generator=generator) for _ in range(2))
"""
"""The file of a user's own model; torch is given the modules and data that it defines."""

_USUAL_AHEAD = 1
"""Blocks that a receive is posted ahead of where nobody says; torch posts receives early too."""

_TIMEOUT_S = 300.0

_Runner = tuple[Callable[[], float], Callable[[], list[Tensor]]]
"""On a device: runs an iteration with gradients from nothing, and returns its ms; returns the gradients."""


def run_beside_torch(
    schedule: Schedule, width: int, rows: int, rounds: int
) -> tuple[list[list[float]], list[list[float]], float]:
    """Run a schedule of one stage per device in both runtimes in turn, after two rounds not counted.

    Each stage has two linear layers of ``width`` x ``width``; a micro-batch has ``rows`` rows.

    Returns:
        Milliseconds of the slowest device from a common start, for our runtime and torch's, by round; CPU
        seconds of all devices together, likewise; and the largest difference between gradients of the two,
        over the largest absolute value of each.
    """
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        path = Path(name, "model.py")
        path.write_text(_MODEL.format(width=width, rows=rows), encoding="utf-8")
        model = {"name": USER_MODEL, "path": str(path), "dtype": "float32"}
        programs = check(prefetch_receives(lower(schedule), _USUAL_AHEAD))
        scripts = [read_script(file) for file in generate(programs, {}, model, Path(name))]
        table = Path(name, "schedule.csv")
        table.write_text(str(torch_order(schedule)), encoding="utf-8")
        arguments = (scripts, table, rounds + 2)
        warm_up(torch.device("cpu"))
        start_processes(  # type: ignore[no-untyped-call]
            _measure, arguments, len(scripts), start_method="fork"
        )
        per_device = [pickle.loads((table.parent / f"{n}.pkl").read_bytes()) for n in range(len(scripts))]
    times = torch.tensor([costs for costs, _ in per_device])[:, 2:]  # device, round, runtime, ms and s
    slowest_ms, cpu_s = times[..., 0].amax(0).T, times[..., 1].sum(0).T
    return slowest_ms.tolist(), cpu_s.tolist(), max(error for _, error in per_device)


def _measure(device: int, scripts: list[Script], table: Path, rounds: int) -> None:
    """Write the costs of a device and the error of its gradients beside the table, as one process of many.

    Costs are ms and CPU seconds, for each round and runtime.
    """
    torch.set_num_threads(1)
    meeting, timeout = f"file://{table.with_name('meeting')}", timedelta(seconds=_TIMEOUT_S)
    dist.init_process_group(
        "gloo", init_method=meeting, rank=device, world_size=len(scripts), timeout=timeout
    )
    ours, gradients, parameters = _ours(scripts[device], device)
    theirs, their_gradients = _torchs(scripts[device], device, table, parameters)
    costs: list[list[tuple[float, float]]] = []
    for index in range(rounds):
        costs.append([(0.0, 0.0), (0.0, 0.0)])
        for which, run in sorted(enumerate((ours, theirs)), reverse=index % 2 == 0):
            began_s = time.process_time()
            costs[-1][which] = run(), time.process_time() - began_s
    pairs = zip(gradients(), their_gradients(), strict=True)
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    table.with_name(f"{device}.pkl").write_bytes(pickle.dumps((costs, error)))
    dist.barrier()
    dist.destroy_process_group()


def _ours(script: Script, device: int) -> tuple[*_Runner, list[Tensor]]:
    """Return a function that runs the generated script, and its parameters in the module's order."""
    transport = connect(script.placement, script.channels, device, _TIMEOUT_S)
    model = Model(script.model, script.placement, transport.shards, transport.device)
    blocks = Blocks(script.placement, model, script.num_micro_batches)
    options = Process(device, script.placement.num_devices)
    runner = Device(script, options, transport, blocks, Position(None, device))

    def iteration_ms() -> float:
        for weight in model.parameters.values():
            weight.grad = None
        return timed_iteration(script, runner, 0, transport)

    return iteration_ms, lambda: list(model.gradients().values()), list(model.parameters.values())


def _torchs(script: Script, device: int, table: Path, parameters: list[Tensor]) -> _Runner:
    """Return a function that runs torch's runtime, which begins with given parameters."""
    assert script.model.path is not None
    defined = runpy.run_path(script.model.path)
    number, num_stages = script.num_micro_batches, script.placement.num_devices
    module: nn.Module = defined["build"](f"F{device}")
    with torch.no_grad():
        for parameter, given in zip(module.parameters(), parameters, strict=True):
            parameter.copy_(given)
    stage = PipelineStage(module, device, num_stages, torch.device("cpu"))
    schedule: Any = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        [stage], number, loss_fn=defined["loss"]
    )
    schedule._load_csv(str(table), format="compute_only")
    samples = (defined["data"](0, n) for n in range(number))
    inputs, targets = (torch.cat(parts) for parts in zip(*samples, strict=True))
    arguments = [inputs] if device == 0 else []
    named = {"target": targets} if device == num_stages - 1 else {}

    def iteration_ms() -> float:
        module.zero_grad()
        dist.barrier()
        began_s = time.perf_counter()
        schedule.step(*arguments, **named)
        return (time.perf_counter() - began_s) * 1000

    return iteration_ms, lambda: [p.grad for p in module.parameters() if p.grad is not None]
