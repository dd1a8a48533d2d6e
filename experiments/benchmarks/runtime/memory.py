"""What the processes of a run take of the machine's memory, beside what they must hold.

A process must hold its weights, their gradients, the optimizer's state and the schedule's activations.
Nothing is compared, so nothing else is to be held.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from experiments.benchmarks.results import CaseResult
from experiments.benchmarks.timing import CpuClock
from placements import Placement
from runtime.codegen.codegen import generate
from runtime.launching.launch import launch
from runtime.models import ModelOptions, body_of
from runtime.program.deadlock import check
from runtime.program.lower import lower
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
            name, placement.num_devices, 2, 590.0, launcher=launcher, device="cpu", verify="none", trace=True
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
