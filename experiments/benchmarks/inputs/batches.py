"""Batches of micro-batches that differ: sequences through stages of measured layers, and published shops."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from experiments.benchmarks.inputs.layers import layer_rows
from placements import Block, Kind, Placement
from placements.profiles.length_rules import Coefficients, fitted, value
from placements.shapes import v_shape
from schedsearch.core.problem import Problem
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch

_LAYERS = 4
"""Layers of Llama 3 8B on each GPU."""

_CAPACITY_MIB = 65536
"""Memory for activations on each GPU: 80 GiB without weights, gradients and optimizer states."""

_OPERATION = {Kind.F: "forward", Kind.B: "backward", Kind.I: "input_gradient_only", Kind.W: "weights"}


def sequences(seed: int, split: bool, limited: bool = True, number: int = 64, stages: int = 8) -> Problem:
    """Return sequences of log-normal lengths, a median of 4500 tokens and at most 32768, one a micro-batch.

    The time of a layer is a quadratic rule of the length through two lengths that were measured on an H100.

    Args:
        seed: Seed of the lengths.
        split: Whether the backward is in two, as ZB-H1 needs it.
        limited: Whether activations must fit; else only what they take is known.
        number: Sequences.
        stages: GPUs, each with `_LAYERS` layers.
    """
    draws = random.Random(seed)
    lengths = [min(32.768, draws.lognormvariate(1.504, 1.0)) for _ in range(number)]
    rules = _rules()
    placement = v_shape(stages, 1, 2, split_backward=split).with_memory(_CAPACITY_MIB if limited else None)
    rows = []
    for n, length in enumerate(lengths):
        ms = {name: _LAYERS * value(rule, length) for name, rule in rules.items()}
        ms["weights"] = ms["backward"] - ms["input_gradient_only"]
        kept = round(ms["kept"])
        for block in placement.blocks:
            time_ms = max(0.1, round(ms[_OPERATION[block.kind]], 1))
            held = block.memory_on(block.devices[0])
            memory = kept * (held > 0) - kept * (held < 0)
            rows.append(MicroBatchRow(n, block.name, time_ms, float(memory)))
    return unequal_batch(placement, rows)


def _rules() -> Mapping[str, Coefficients]:
    """Return the time of a layer in ms, or its memory in MiB, by powers of 1000 tokens."""
    at: dict[str, list[tuple[float, float]]] = {}
    for row in layer_rows():
        if row["layer"] in ("llama3_8b_s8192", "llama3_8b_s4096"):
            length = float(row["layer"].rpartition("_s")[2]) / 1000
            at.setdefault(row["operation"], []).append((length, float(row["ms"])))
            if (row["layer"], row["operation"]) == ("llama3_8b_s8192", "forward"):
                at["kept"] = [(length, float(row["kept_mib"]))]
    rules = {name: fitted(at[name], (1, 2)) for name in ("forward", "backward", "input_gradient_only")}
    _, linear, square = rules["input_gradient_only"]
    square = min(square, rules["backward"][2])  # weights have no attention
    return rules | {"input_gradient_only": (0.0, linear, square), "kept": fitted(at["kept"], (1,))}


def published_shop(name: str) -> Problem:
    """Return a published shop of ``shops.csv`` as a batch whose micro-batches are its jobs.

    Job shops are of Fisher and Thompson (1963) and Lawrence (1984), flow shops of Carlier (1978) and Taillard
    (1993). A chain of machines has a block for each; where jobs go different ways, one for each machine and
    place.
    """
    lines = Path(__file__).with_name("shops.csv").read_text(encoding="utf-8").splitlines()
    numbers = [[*map(int, line.partition(",")[2].split())] for line in lines if line.startswith(f"{name},")]
    jobs = [list(zip(job[::2], map(float, job[1::2]), strict=True)) for job in numbers]
    places, machines = len(jobs[0]), 1 + max(machine for job in jobs for machine, _ in job)
    names = [
        [f"F{place}_{machine}" for machine in sorted({job[place][0] for job in jobs})]
        for place in range(places)
    ]
    blocks = tuple(
        Block(
            each, Kind.F, (int(each.rpartition("_")[2]),), 1, after=tuple(names[place - 1] if place else ())
        )
        for place, here in enumerate(names)
        for each in here
    )
    rows = [
        MicroBatchRow(n, each, job[place][1] if each == f"F{place}_{job[place][0]}" else 0.0)
        for n, job in enumerate(jobs)
        for place in range(places)
        for each in names[place]
    ]
    return unequal_batch(Placement(name, machines, blocks), rows)
