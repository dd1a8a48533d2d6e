"""Our runtime and torch's own on the same model, schedule and processes, iteration by iteration in turn."""

from __future__ import annotations

import runpy
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from experiments.benchmarks.runtime.processes import on_devices
from runtime.codegen.codegen import generate
from runtime.codegen.script import Script, read_script
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.loops.entry import Device
from runtime.loops.iterations import timed_iteration
from runtime.models import USER_MODEL, Blocks, Model
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.torch_pipelining.csv import torch_order
from runtime.transport.process_groups import connect
from runtime.transport.protocol import Transport
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

USUAL_AHEAD = 1
"""Blocks that a receive is posted ahead of where nobody says; torch posts receives early too."""

_TIMEOUT_S = 300.0

_Cost = tuple[float, float]
"""An iteration on a device: its milliseconds, and those of the processor with all threads."""


@dataclass(frozen=True)
class IterationCosts:
    """What the iterations of a runtime cost.

    Attributes:
        time_ms: By iteration, of the slowest device, from a common start.
        cpu_ms: By iteration, of the processors, for all devices together: user and system time.
    """

    time_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]

    @classmethod
    def of(cls, per_device: Iterable[Sequence[_Cost]]) -> IterationCosts:
        """Return those of all devices together."""
        by_iteration = list(zip(*per_device, strict=True))
        times_ms = tuple(max(time_ms for time_ms, _ in costs) for costs in by_iteration)
        return cls(times_ms, tuple(sum(cpu_ms for _, cpu_ms in costs) for costs in by_iteration))


@dataclass(frozen=True)
class Beside:
    """Both runtimes, as they were measured.

    The error is the largest difference between gradients of the two, over the largest absolute value of each.
    """

    ours: IterationCosts
    torch: IterationCosts
    error: float


def run_beside_torch(schedule: Schedule, width: int, rows: int, rounds: int) -> Beside:
    """Run a schedule of one stage per device in both runtimes in turn, after two rounds not counted.

    Each stage has two linear layers of ``width`` x ``width``; a micro-batch has ``rows`` rows.
    """
    num_devices = schedule.placement.num_devices
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        folder = Path(name)
        path = folder / "model.py"
        path.write_text(_MODEL.format(width=width, rows=rows), encoding="utf-8")
        model = {"name": USER_MODEL, "path": str(path), "dtype": "float32"}
        programs = check(prefetch_receives(lower(schedule), USUAL_AHEAD))
        scripts = [read_script(each) for each in generate(programs, {}, model, folder)]
        table = folder / "schedule.csv"
        table.write_text(str(torch_order(schedule)), encoding="utf-8")

        def work(device: int) -> tuple[list[_Cost], list[_Cost], float]:
            ours = _Ours(scripts[device], device)
            theirs = _Torch(scripts[device], device, table, ours.parameters())
            both: list[tuple[_Ours | _Torch, list[_Cost]]] = [(ours, []), (theirs, [])]
            for index in range(rounds + 2):
                for runtime, costs in both if index % 2 else both[::-1]:
                    costs.append(_cost(runtime))
            our_costs, torch_costs = (costs[2:] for _, costs in both)
            return our_costs, torch_costs, _difference(ours.gradients(), theirs.gradients())

        per_device = on_devices(num_devices, work, _TIMEOUT_S)
    our_costs, torch_costs, errors = zip(*per_device, strict=True)
    return Beside(IterationCosts.of(our_costs), IterationCosts.of(torch_costs), max(errors))


def _cost(runtime: _Ours | _Torch) -> _Cost:
    began_s = time.process_time()
    time_ms = runtime.iteration_ms()
    return time_ms, (time.process_time() - began_s) * 1000


class _Ours:
    """A device of the generated script."""

    def __init__(self, script: Script, device: int) -> None:
        self._script = script
        self.transport: Transport = connect(script.placement, script.channels, device, _TIMEOUT_S)
        self._model = Model(script.model, script.placement, self.transport.shards, self.transport.device)
        blocks = Blocks(script.placement, self._model, script.num_micro_batches)
        options = Process(device, script.placement.num_devices)
        self._device = Device(script, options, self.transport, blocks, Position(None, device))

    def iteration_ms(self) -> float:
        """Run one iteration, with gradients from nothing."""
        for weight in self._model.parameters.values():
            weight.grad = None
        return timed_iteration(self._script, self._device, 0, self.transport)

    def parameters(self) -> list[Tensor]:
        """Return the parameters, in the order of the module's."""
        return list(self._model.parameters.values())

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the last one, in the order of the parameters."""
        return list(self._model.gradients().values())


class _Torch:
    """A rank of torch's runtime, which begins with given parameters."""

    def __init__(self, script: Script, device: int, table: Path, parameters: list[Tensor]) -> None:
        assert script.model.path is not None
        defined = runpy.run_path(script.model.path)
        number, num_stages = script.num_micro_batches, script.placement.num_devices
        self._module: nn.Module = defined["build"](f"F{device}")
        with torch.no_grad():
            for own, given in zip(self._module.parameters(), parameters, strict=True):
                own.copy_(given)
        stage = PipelineStage(self._module, device, num_stages, torch.device("cpu"))
        self._schedule: Any = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
            [stage], number, loss_fn=defined["loss"]
        )
        self._schedule._load_csv(str(table), format="compute_only")
        inputs, targets = (
            torch.cat(parts) for parts in zip(*(defined["data"](0, n) for n in range(number)), strict=True)
        )
        self._arguments: list[Any] = [inputs] if device == 0 else []
        self._targets = {"target": targets} if device == num_stages - 1 else {}

    def iteration_ms(self) -> float:
        """Run one iteration, with gradients from nothing."""
        self._module.zero_grad()
        dist.barrier()
        began_s = time.perf_counter()
        self._schedule.step(*self._arguments, **self._targets)
        return (time.perf_counter() - began_s) * 1000

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the last one, in the order of the parameters."""
        return [parameter.grad for parameter in self._module.parameters() if parameter.grad is not None]


def _difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
