"""Batches of the benchmark: sequences through stages of measured layers, flow shops, tiny random ones."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from experiments.benchmarks.modes.placements import H100_LAYERS
from placements import Block, Kind, Placement
from placements.profiles.length_rules import Coefficients, fitted, value
from placements.shapes import v_shape
from schedsearch.unequal.micro_batches import MicroBatchMemoryRow, MicroBatchRow, UnequalBatch, unequal_batch

_LAYERS = 4
"""Layers of Llama 3 8B on each of 8 GPUs."""

_CAPACITY_MIB = 65536
"""Memory for activations on each GPU: 80 GiB without weights, gradients and optimizer states."""


def sequences(
    seed: int, split: bool, limited: bool = True, number: int = 64, stages: int = 8
) -> UnequalBatch:
    """Return sequences of log-normal lengths, a median of 4500 tokens and at most 32768, one a micro-batch.

    The time of a layer is a quadratic rule of the length through two lengths that were measured on an H100.

    Args:
        seed: Seed of the lengths.
        split: Whether the backward is in two, as ZB-H1 needs it.
        limited: Whether activations must fit; else only what they take is known.
        number: Sequences.
        stages: GPUs, each with `_LAYERS` layers.
    """
    rng = random.Random(seed)
    lengths = [min(32.768, rng.lognormvariate(1.504, 1.0)) for _ in range(number)]
    rules = _rules()
    placement = v_shape(stages, 1, 2, split_backward=split).with_memory(_CAPACITY_MIB if limited else None)
    rows = []
    for n, length in enumerate(lengths):
        ms = {name: _LAYERS * value(rule, length) for name, rule in rules.items()}
        ms["weights"] = ms["backward"] - ms["input_gradient_only"]
        kept = round(ms["kept"])
        name_of = {Kind.F: "forward", Kind.B: "backward", Kind.I: "input_gradient_only", Kind.W: "weights"}
        for block in placement.blocks:
            time_ms = max(0.1, round(ms[name_of[block.kind]], 1))
            held = block.memory_on(block.devices[0])
            memory = kept * (held > 0) - kept * (held < 0)
            rows.append(MicroBatchMemoryRow(n, block.name, time_ms, float(memory)))
    return unequal_batch(placement, rows)


def _rules() -> Mapping[str, Coefficients]:
    """Return what a layer takes in ms, or keeps in MiB, by powers of 1000 tokens."""
    at: dict[str, list[tuple[float, float]]] = {}
    for line in H100_LAYERS.read_text(encoding="utf-8").splitlines():
        cells = line.split(",")
        if cells[0] in ("llama3_8b_s8192", "llama3_8b_s4096"):
            length = float(cells[0].rpartition("_s")[2]) / 1000
            at.setdefault(cells[1], []).append((length, float(cells[2])))
            if cells[:2] == ["llama3_8b_s8192", "forward"]:
                at["kept"] = [(length, float(cells[4]))]
    found = {name: fitted(at[name], (1, 2)) for name in ("forward", "backward", "input_gradient_only")}
    _, linear, square = found["input_gradient_only"]
    square = min(square, found["backward"][2])  # weights have no attention
    return found | {"input_gradient_only": (0.0, linear, square), "kept": fitted(at["kept"], (1,))}


def flow_shop(number: int, seed: int) -> tuple[UnequalBatch, int]:
    """Return a flow shop of two machines with times from 1 to 99, and its optimum by Johnson's rule."""
    rng = random.Random(seed)
    blocks = (Block("F0", Kind.F, (0,), 1), Block("F1", Kind.F, (1,), 1, after=("F0",)))
    times = [(rng.randint(1, 99), rng.randint(1, 99)) for _ in range(number)]
    rows = [MicroBatchRow(n, f"F{i}", float(each[i])) for n, each in enumerate(times) for i in (0, 1)]
    rising = sorted(each for each in times if each[0] <= each[1])
    falling = sorted((each for each in times if each[0] > each[1]), key=lambda each: -each[1])
    first = second = 0
    for one, other in rising + falling:
        first += one
        second = max(first, second) + other
    return unequal_batch(Placement("flow shop", 2, blocks), rows), second


def tiny(seed: int, memory: int | None) -> UnequalBatch:
    """Return two micro-batches of random times on two devices."""
    rng = random.Random(seed)
    placement = v_shape(2, 1, 2).with_memory(memory)
    rows = [
        MicroBatchRow(n, block.name, float(rng.randint(1, 9))) for n in (0, 1) for block in placement.blocks
    ]
    return unequal_batch(placement, rows)


SHOPS = {
    "ft06": 55,
    "ft10": 930,
    "ft20": 1165,
    "la01": 666,
    "la02": 655,
    "la03": 597,
    "la04": 590,
    "la05": 593,
    "la16": 945,
    "car1": 7038,
    "car2": 7166,
    "car3": 7312,
    "car4": 8003,
    "car5": 7702,
    "car6": 8313,
    "car7": 6558,
    "car8": 8264,
    "ta001": 1278,
    "ta002": 1359,
    "ta003": 1081,
    "ta004": 1293,
    "ta005": 1235,
}
"""Makespans of published shops: job shops of Fisher and Thompson (1963) and Lawrence (1984), flow shops of
Carlier (1978) and Taillard (1993). All but Taillard's are optimal; his are optimal where all machines run the
jobs in the same order, which ours need not. Times are in ``shops.csv``, a job a line, or made from a seed.
"""

_TAILLARD = {
    "ta001": 873654221,
    "ta002": 379008056,
    "ta003": 1866992158,
    "ta004": 216771124,
    "ta005": 495070989,
}
"""Published seeds of the times of 20 jobs on 5 machines (Taillard 1993, Sec. 2)."""


def _taillard(seed: int, jobs: int = 20, machines: int = 5) -> list[list[tuple[int, float]]]:
    """Return each job's machines and times from 1 to 99, drawn by Taillard's generator machine by machine."""
    times = []
    for _ in range(jobs * machines):
        seed = 16807 * seed % 2147483647
        times.append(1 + 99 * seed // 2147483647)
    return [[(m, float(times[m * jobs + job])) for m in range(machines)] for job in range(jobs)]


def _jobs(name: str) -> list[list[tuple[int, float]]]:
    """Return each job's machines and times in order."""
    if name in _TAILLARD:
        return _taillard(_TAILLARD[name])
    lines = Path(__file__).with_name("shops.csv").read_text(encoding="utf-8").splitlines()
    each = [[*map(int, line.partition(",")[2].split())] for line in lines if line.startswith(f"{name},")]
    return [[(m, float(time)) for m, time in zip(own[::2], own[1::2], strict=True)] for own in each]


def published_shop(name: str) -> tuple[UnequalBatch, int]:
    """Return a published shop as a batch whose micro-batches are its jobs, and its least makespan.

    A chain of machines has a block for each; where jobs go different ways, one for each machine and place.
    """
    jobs = _jobs(name)
    places, machines = len(jobs[0]), 1 + max(machine for own in jobs for machine, _ in own)
    routes = [{own[place][0] for own in jobs} for place in range(places)]
    names = [[f"F{place}_{machine}" for machine in sorted(route)] for place, route in enumerate(routes)]
    blocks = tuple(
        Block(
            each, Kind.F, (int(each.rpartition("_")[2]),), 1, after=tuple(names[place - 1]) if place else ()
        )
        for place, own in enumerate(names)
        for each in own
    )
    rows = [
        MicroBatchRow(job, each, own[place][1] if each == f"F{place}_{own[place][0]}" else 0.0)
        for job, own in enumerate(jobs)
        for place in range(places)
        for each in names[place]
    ]
    return unequal_batch(Placement(name, machines, blocks), rows), SHOPS[name]
