"""Memory of runs that were measured: Megatron-LM's functional tests on H100 and A100, at d98e8a64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placements.cluster import read_cluster
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS
from placements.models.zoo import decoder
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.uniform_run import UniformRun

SMALL = {"hidden_size": 512, "num_heads": 8, "num_layers": 12, "vocab_size": 50304, "sequence_length": 1024}
LARGE = {"hidden_size": 4096, "num_heads": 32, "num_kv_heads": 8, "num_layers": 32, "sequence_length": 8192}
LARGE |= {"vocab_size": 131200, "tied": False}
UNFUSED = SMALL | {"attention": "fused"}
MEGATRON = replace(
    FRAMEWORKS["megatron"],
    has_placeholders=False,
    loss="megatron",
    workspaces="transformer_engine deterministic",
)
LOCAL = replace(FRAMEWORKS["megatron_local"], has_placeholders=False, workspaces="torch deterministic")

MEASURED = {
    "unfused attention": ("h100", UNFUSED, Layout(Degrees(data=8), 4, 1), 4.3795),
    "flash attention by samples": ("a100", SMALL, Layout(Degrees(data=8), 4, 1), 2.5255),
    "cuDNN's attention": ("h100", SMALL, Layout(Degrees(data=8), 4, 1), 2.5069),
    "recomputed": ("h100", SMALL, Layout(Degrees(data=8), 4, 1, 0, "full"), 2.3854),
    "without biases, and a copy of the table": (
        *("h100", SMALL | {"biases": False}),
        *(Layout(Degrees(pipeline=4, data=2), 4, 4, 0), 2.06),
    ),
    "interleaved": ("h100", UNFUSED, Layout(Degrees(pipeline=4, data=2, chunks=3), 4, 4), 3.6717),
    "no Transformer Engine, fp16": (
        *("h100", UNFUSED | {"precision": "half"}),
        *(Layout(Degrees(data=8), 4, 1), 4.2923),
    ),
    "no sequence parallelism": (
        *("h100", LARGE | {"vocab_size": 131584}),
        *(Layout(Degrees(tensor=4, data=2), 2, 2, sequence_parallel=False), 53.2193),
    ),
    "one layer a chunk": ("a100", LARGE, Layout(Degrees(pipeline=4, data=2, chunks=8), 1, 4), 56.3348),
}


@pytest.mark.parametrize("kind", MEASURED)
def test_the_last_stages_memory_is_as_measured(kind: str) -> None:
    gpu, sizes, layout, measured_gib = MEASURED[kind]
    given: dict[str, Any] = {"precision": "bf16", "causal": True} | sizes
    model = decoder("GPT", **given)
    framework = LOCAL if kind.startswith("no Transformer Engine") else MEGATRON
    run = UniformRun(model, read_cluster(f"{gpu}_8"), layout, CostOptions(framework=framework), False)
    assert run.gib_by_stage[-1] == pytest.approx(measured_gib, rel=0.015)
