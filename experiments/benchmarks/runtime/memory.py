"""What the processes of a run take of the machine's memory, beside what they must hold.

A process must hold its weights, their gradients, the optimizer's state and the schedule's activations.
Nothing is compared, so nothing else is to be held. A checkpoint that is written beside the training takes a
copy of its shard for a while.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from experiments.benchmarks.results import CaseResult
from experiments.benchmarks.runtime.processes import on_devices
from placements import Placement
from placements.models.layers import SINGLE
from placements.models.memory import state_items
from placements.models.parallel import SharingLevel
from placements.shapes import v_shape
from runtime.checkpoints.saving import Checkpoints
from runtime.checkpoints.training_state import TrainingState
from runtime.codegen.codegen import generate
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.models import Model, ModelOptions, body_of
from runtime.models.sharded_weights import sharded_parameters
from runtime.profiling.process_memory import peak_rss_mib, rss_mib
from runtime.program.deadlock import check
from runtime.program.lower import keeping_weights, lower, messages
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

    The model is in float32. Memory may differ by the tolerance, as a share of what a process must hold.
    """
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
    return CaseResult(missed=tuple(missed), note=f"took, of what it must hold: {', '.join(notes)}")


def sharing(
    num_gpus: int, model: Mapping[str, object], *, tolerance: float, gathered_runs: int = 1
) -> CaseResult:
    """Run one stage in data-parallel groups of one GPU, and hold its memory against what a plan says.

    A plan counts weights, gradients and AdamW's states by the stage of ZeRO. On top come activations and what
    is gathered, which are counted in the run, and below ZeRO-3 the row in which gradients are summed. Memory
    may be more by the tolerance.
    """
    options = ModelOptions.from_dict(model)
    chain = replace(v_shape(1), num_gpus=(num_gpus,))
    chain = replace(chain, blocks=tuple(replace(each, data_parallel=num_gpus) for each in chain.blocks))
    programs = lower(one_f_one_b(chain, 4))
    body = body_of(options, programs.placement)
    sharded = sharded_parameters(options, body, programs.placement)
    programs = keeping_weights(programs, sharded, gathered_runs)
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        generate(check(programs), {}, model, Path(name))
        run = launch(name, num_gpus, RunOptions(2, 590.0, device="cpu", verify="none", trace=True))
    count = sum({each.name: each.numel for each in body.parameters("F0")}.values())
    items = state_items(SINGLE, count, SharingLevel(num_gpus, 1), options.zero, has_one_micro_batch=False)
    states = sum(item.num_bytes for item in items)
    held = max(sample.value for record in run.records[0] for sample in record.held_bytes)
    row = 0 if options.zero == 3 else SINGLE.gradient_bytes * count
    planned = (states + row + run.peak_gathered_bytes[0] + held) / MIB
    took = run.peak_rss_mib[0] - run.rss_after_import_mib[0]
    missed = (f"{took:.0f} MiB for {planned:.0f}",) if took > planned * (1 + tolerance) else ()
    text = f"{states / MIB:.0f} of states, {run.peak_gathered_bytes[0] / MIB:.0f} gathered"
    return CaseResult(missed=missed, note=f"took {took:.0f} of {planned:.0f} MiB, {text}")


def checkpointed(placement: Placement, model: Mapping[str, object], *, most: float) -> CaseResult:
    """Write a checkpoint beside the training, after one update, and hold its memory against its shard.

    A process may take ``most`` times its shard.
    """
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        write = partial(_write_checkpoint, placement, ModelOptions.from_dict(model), Path(name))
        written = on_devices(placement.num_devices, write)
    missed = tuple(
        f"device {device}: {extra:.0f} MiB is more than {most:g} times {shard:.0f}"
        for device, (shard, extra) in enumerate(written)
        if extra > most * shard
    )
    texts = [f"{extra:.0f} MiB for {shard:.0f}, {extra / shard:.2f} times" for shard, extra in written]
    return CaseResult(missed=missed, note=f"took beyond its shards: {'; '.join(texts)}")


def _write_checkpoint(
    placement: Placement, options: ModelOptions, folder: Path, device: int
) -> tuple[float, float]:
    """Return the MiB written of a device, and the most that its process had beyond what it had before."""
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
    return sum(each.nbytes for each in tensors) / MIB, peak_rss_mib() - before_mib


def _forget_what_was_freed() -> None:
    """Give freed memory back to the kernel, and let it count this process's most memory from here on."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
