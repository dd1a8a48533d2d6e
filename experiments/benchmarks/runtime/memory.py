"""What the processes of a run take of the machine's memory, beside what they must hold.

A process must hold its weights, their gradients, the optimizer's state and the schedule's activations.
Nothing is compared, so nothing else is to be held. A checkpoint that is written beside the training takes a
copy of its shard for a while.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from experiments.benchmarks.results import CaseResult
from experiments.benchmarks.runtime.processes import on_devices
from experiments.benchmarks.timing import CpuClock
from placements import Placement
from runtime.checkpoints.saving import Checkpoints
from runtime.checkpoints.training_state import TrainingState
from runtime.codegen.codegen import generate
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.models import Model, ModelOptions, body_of
from runtime.profiling.process_memory import peak_rss_mib, rss_mib
from runtime.program.deadlock import check
from runtime.program.lower import lower, messages
from runtime.transport.communicators import PAIR
from runtime.transport.process_groups import connect
from schedsearch.baselines import one_f_one_b

MIB = 2**20

COPIES = {"sgd": 2, "adamw": 4}
"""Tensors of a parameter's size that each optimizer has: the weight, its gradient, and its own state."""


def resident(
    placement: Placement,
    num_micro_batches: int,
    model: Mapping[str, object],
    *,
    tolerance: float,
    launcher: str = "torchrun",
) -> CaseResult:
    """Run 1F1B without a comparison, and hold the memory of each process against what it must hold.

    Args:
        placement: A chain of stages, each on one device.
        num_micro_batches: Of an iteration.
        model: What the blocks compute, in float32.
        tolerance: Share of what a process must hold by which its memory may differ from it.
        launcher: How the processes are started.
    """
    clock = CpuClock()
    options = ModelOptions.from_dict(model)
    body = body_of(options, placement)
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        generate(check(lower(one_f_one_b(placement, num_micro_batches))), {}, model, Path(name))
        run = launch(
            name,
            placement.num_devices,
            RunOptions(2, 590.0, launcher=launcher, device="cpu", verify="none", trace=True),
        )
    notes, missed = [], []
    for device in range(placement.num_devices):
        parameters = {
            each.name: each.numel
            for block in placement.on(device)
            for each in (body.parameters(block.name) if block.name.startswith("F") else ())
        }
        held = max(sample.value for record in run.records[device] for sample in record.held_bytes)
        must = (4 * sum(parameters.values()) * COPIES[options.optimizer] + held) / MIB
        took = run.peak_rss_mib[device] - run.rss_after_import_mib[device]
        notes.append(f"{took:.0f} of {must:.0f} MiB")
        if abs(took / must - 1) > tolerance:
            missed.append(f"device {device}: {took:.0f} MiB for {must:.0f}")
    return CaseResult(clock.seconds, tuple(missed), note=f"took, of what it must hold: {', '.join(notes)}")


class _Written(NamedTuple):
    """What a checkpoint took on a device, in MiB.

    Attributes:
        shard_mib: What was written of this device.
        extra_mib: The most memory beyond what the process had before.
    """

    shard_mib: float
    extra_mib: float


def checkpointed(placement: Placement, model: Mapping[str, object], *, most: float) -> CaseResult:
    """Write a checkpoint beside the training, after one update, and hold its memory against its shard.

    Args:
        placement: Of stages, each on one device.
        model: What the blocks compute.
        most: How many times its shard a process may take.
    """
    clock = CpuClock()
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        write = partial(_write_checkpoint, placement, ModelOptions.from_dict(model), Path(name))
        written = on_devices(placement.num_devices, write)
    missed = tuple(
        f"device {device}: {each.extra_mib:.0f} MiB is more than {most:g} times {each.shard_mib:.0f}"
        for device, each in enumerate(written)
        if each.extra_mib > most * each.shard_mib
    )
    texts = [
        f"{each.extra_mib:.0f} MiB for {each.shard_mib:.0f}, {each.extra_mib / each.shard_mib:.2f} times"
        for each in written
    ]
    return CaseResult(clock.seconds, missed, note=f"took beyond its shards: {'; '.join(texts)}")


def _write_checkpoint(placement: Placement, options: ModelOptions, folder: Path, device: int) -> _Written:
    channels = sorted({(message.source, message.target) for message in messages(placement)})
    transport = connect(placement, channels, device, 300.0, PAIR)
    model = Model(options, placement, transport.shards, groups=transport.groups)
    for weight in model.parameters.values():
        weight.grad = torch.full_like(weight, 1e-3)
    model.step()
    tensors = [*model.parameters.values()]
    tensors += [
        value
        for weight in model.parameters.values()
        for value in model.optimizer.state_of(weight).values()
        if isinstance(value, torch.Tensor)
    ]
    checkpoints = Checkpoints(folder, transport, device)
    _forget_what_was_freed()
    before_mib = rss_mib()
    checkpoints.save(TrainingState(model.parameters, model.optimizer), 1, {})
    checkpoints.wait()
    return _Written(sum(each.nbytes for each in tensors) / MIB, peak_rss_mib() - before_mib)


def _forget_what_was_freed() -> None:
    """Give freed memory back to the kernel, and let it count this process's most memory from here on."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
