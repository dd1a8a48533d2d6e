"""Measurements of the best layout beside a published one."""

from __future__ import annotations

from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import timed
from placements.layouts.layer_file import ModelLayers
from placements.layouts.layout import PipelineLayout
from placements.layouts.megatron_arguments import MegatronPipeline
from schedsearch.layouts.layouts import layout


def beside_published(published: PipelineLayout, layers: ModelLayers, num_micro_batches: int) -> CaseResult:
    """Measure how much faster the best layout is, by the schedules of both, and what none beats."""
    found, seconds = timed(
        lambda: layout(
            layers,
            published.num_devices,
            num_micro_batches,
            published.num_chunks,
            given={"published": MegatronPipeline(published)},
        )
    )
    (row,), theirs = found.rows, found.given["published"]
    assert row.iteration_ms is not None and row.bound_ms is not None and theirs.iteration_ms is not None
    saved = 1 - row.iteration_ms / theirs.iteration_ms
    even = "" if row.even_ms is None else f", even {row.even_ms:,.1f} ms"
    memory = f"{row.peak_memory_mib:,.0f} and {theirs.peak_memory_mib:,.0f} MiB"
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({"slower than published": row.iteration_ms > theirs.iteration_ms}),
        status=row.status,
        note=(
            f"{saved:.2%} less: {row.iteration_ms:,.1f} ms, published {theirs.iteration_ms:,.1f} ms{even}, "
            f"bound {row.bound_ms:,.1f} ms; {memory}; {row.layout}"
        ),
    )
