"""The runtime: memory of processes, and the time until they reach each other.

Models are the options of `runtime.models`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from experiments.benchmarks.inputs.processes import on_devices
from placements import Placement
from placements.shapes import m_shape, v_shape
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.models import ModelOptions, body_of
from runtime.program.deadlock import check
from runtime.program.instructions import Programs
from runtime.program.lower import lower, messages
from runtime.transport.communicators import Channel, communicators
from runtime.transport.process_groups import connect
from schedsearch.baselines import one_f_one_b

_MIB = 2**20

_COPIES = {"sgd": 2, "adamw": 4}
"""Tensors of a parameter's size that each optimizer has: the weight, its gradient, and its own state."""

ModelData = Mapping[str, Any]


def _run(programs: Programs, model: ModelData, processes: int, options: RunOptions) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        generate(programs, {}, model, Path(name))
        return launch(Path(name), processes, options)


def resident(
    *, model: ModelData, num_stages: int, micro_batches: int, launcher: str = "torchrun"
) -> dict[str, Any]:
    """Run 1F1B without a comparison, and hold the memory of each process against its weights and activations.

    That is weights, gradients, the optimizer's state and activations, in float32. ``least`` and ``most`` are
    ratios of what a process took.
    """
    placement = v_shape(num_stages)
    options = ModelOptions.from_dict(model)
    body = body_of(options, placement)
    how = RunOptions(2, 590.0, launcher=launcher, device="cpu", verify="none", trace=True)
    run = _run(check(lower(one_f_one_b(placement, micro_batches))), model, num_stages, how)
    took, must = [], []
    for device in range(num_stages):
        parameters = {
            each.name: each.numel
            for block in placement.on(device)
            for each in (body.parameters(block.name) if block.name.startswith("F") else ())
        }
        held = max(sample.value for record in run.records[device] for sample in record.held_bytes)
        must.append((4 * sum(parameters.values()) * _COPIES[options.optimizer] + held) / _MIB)
        took.append(run.peak_rss_mib[device] - run.rss_after_import_mib[device])
    ratios = [one / other for one, other in zip(took, must, strict=True)]
    figures = {"least": min(ratios), "most": max(ratios)}
    return figures | {"min_took_mib": min(took), "max_took_mib": max(took), "max_must_mib": max(must)}


def connecting(*, num_devices: int, by: str) -> dict[str, Any]:
    """Connect forked processes of an M-shape, by direction or by pair, with a channel for each message.

    ``slowest_s`` is of the slowest process, warmed up, over gloo.
    """
    placement = m_shape(num_devices)
    channels = _channels(placement)
    times_s = on_devices(num_devices, partial(_connect_s, placement, channels, by))
    slowest_s = max(wall_s for wall_s, _ in times_s)
    figures = {"communicators": len(communicators(placement, channels, by)), "slowest_s": slowest_s}
    return figures | {"processors_s": sum(processor_s for _, processor_s in times_s)}


def _channels(placement: Placement) -> list[Channel]:
    return sorted({(message.source, message.target) for message in messages(placement)})


def _connect_s(placement: Placement, channels: list[Channel], by: str, device: int) -> tuple[float, float]:
    """Return the time of a process's communicators, in seconds of the clock and of the processor."""
    start_s, processor_s = time.perf_counter(), time.process_time()
    connect(placement, channels, device, 300.0, by).barrier()
    return time.perf_counter() - start_s, time.process_time() - processor_s
