"""Devices of a data-parallel job that are lost: rerouting beside the rule, dropping and other stages."""

from __future__ import annotations

import random
from collections.abc import Sequence

from experiments.benchmarks.results import CaseResult
from placements.shapes import v_shape
from schedsearch.replanning.replan import replan
from schedsearch.replanning.replicated_job import Copy, ReplicatedJob

REPLICAS = 8


def drawn_losses(stages: int, number: int, seed: int = 0) -> list[Copy]:
    """Return copies that are lost one after the other, drawn at random."""
    copies = [(device, copy) for device in range(stages) for copy in range(REPLICAS)]
    return random.Random(seed).sample(copies, number)


def lost(stages: int, micro_batches: int, copies: Sequence[Copy], work: float) -> CaseResult:
    """Reroute micro-batches of lost copies; all blocks take 20 ms, a stage's backward is split.

    Args:
        stages: Stages of each of the pipelines; a device holds the activations of two micro-batches more.
        micro_batches: Micro-batches of each pipeline.
        copies: The lost devices, each with its pipeline.
        work: Units of work of the search.
    """
    pipeline = v_shape(stages, 20, split_backward=True, input_time=20, weight_time=20).with_memory(stages + 2)
    found = replan(ReplicatedJob(pipeline, REPLICAS, micro_batches, frozenset(copies)), work_limit=work)
    rows = {row.way: row for row in found.rows}
    rule, ours = rows["rule"].throughput or 0, rows["rerouted"].throughput or 0
    shares = [
        f"{way} {100 * row.throughput:.1f} %"
        for way, row in rows.items()
        if row.throughput and way != "before"
    ]
    return CaseResult(
        missed=()
        if ours >= rule > 0
        else (f"{100 * ours:.1f} % of the throughput, the rule {100 * rule:.1f} %",),
        makespan=round(rows["rerouted"].iteration_ms or 0),
        makespan_bound=round(rows["rerouted"].bound_ms or 0),
        note=f"before {rows['before'].iteration_ms:g} ms; then {', '.join(shares)}",
    )
