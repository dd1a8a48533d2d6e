"""Galvatron's plans: figures by hand, files there and back, refused files, and its shipped plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line
from places import ROOT, SHARED_DATA

from placements import Kind, Placement
from placements.forms.reading import json_file
from placements.gpus import GPUS
from placements.models.costing.options import USUAL, CostOptions
from placements.planners.hybrid.placing.gpt import gpt_model, one_node
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.plan import Plan, PlanError
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.trainers.galvatron import galvatron_fields, galvatron_plan
from schedsearch.core.answer import Status
from schedsearch.proof.memory_need import require_capacity
from schedsearch.searches.search import search
from schedsearch.validate import validate

SHIPPED = SHARED_DATA / "galvatron"
EXAMPLE = ROOT / "examples" / "galvatron_plan.json"

A100 = GPUS["a100"]
COUNTER = replace(A100, peak_tflops=1e-9, memory_bandwidth_gb_s=1e-6, link_bandwidth_gb_s=1e-6)
"""A GPU that takes a millisecond for each operation, each byte of memory and each byte of a link."""

COUNTING = CostOptions(1.0, 1.0, 1.0)

MIXED: dict[str, Any] = {
    "pp_deg": 2,
    "tp_sizes_enc": "2,4,1",
    "dp_types_enc": "0,0,1",
    "checkpoint": "1,0,0",
    "global_bsz": 8,
    "chunks": 2,
    "pp_division": "2,1",
    "vtp": 2,
    "world_size": 8,
}
"""Two stages of four GPUs: a recomputed layer on 2 x 2, one on 4 x 1; then one on 1 x 4, with ZeRO-3."""


def read(
    data: Any = MIXED, width: int = 1024, gpu: Any = A100, num_layers: int | None = None, **options: Any
) -> Plan:
    """Return a plan for a model with sequences of the whole or half width."""
    sequence = width if width > 100 else width // 2
    if isinstance(data, Path):
        with json_file(data, "a galvatron_config_*.json", PlanError) as field:
            return read(field.value, width, gpu, num_layers, **options)
    return galvatron_plan(
        data,
        lambda count: gpt_model(num_layers or count, width, 4, 16, sequence),
        lambda number: one_node(gpu, number, 1.0),
        **options,
    )


def mixed(width: int) -> Placement:
    plan = read(width=width, gpu=COUNTER)
    return placed(plan, COUNTING, tick_ms=1.0)


def placed(plan: Plan, options: CostOptions = USUAL, tick_ms: float | None = None) -> Placement:
    pieces = chunk_pieces(plan, ShapeCosts(plan.model, options))
    return placement_of_pieces("plan", plan, pieces, [76.0] * plan.num_stages, tick_ms)


def test_blocks_are_those_of_the_strategies() -> None:
    placement = mixed(8)
    blocks = {block.name: (block.kind, block.devices, block.data_parallel) for block in placement.blocks}
    assert blocks == {
        "F0": (Kind.F, (0,), 2),
        "F1": (Kind.F, (0,), 1),
        "F2": (Kind.F, (1,), 4),
        "B2": (Kind.B, (1,), 4),
        "B1": (Kind.B, (0,), 1),
        "B0": (Kind.B, (0,), 2),
        "O0": (Kind.O, (0,), 1),
        "O1": (Kind.O, (1,), 1),
    }
    assert placement.num_gpus == (4, 4)
    assert [placement.by_name[name].after for name in ("B2", "B0", "O0", "O1")] == [
        ("F2",),
        ("B1",),
        ("B0",),
        ("B2",),
    ]
    assert read().recomputed_blocks == ("F0",)
    whole = MIXED | {"pp_division": "1,4", "checkpoint": "1,0,0,0,0"}
    whole |= {"tp_sizes_enc": "2,4,1,1,1", "dp_types_enc": "0,0,1,0,1"}
    assert read(whole).block_layers == {"F0": 1, "F1": 1, "F2": 3}
    assert placement.by_gpu.by_name["F1"].devices == (0, 1, 2, 3)


def test_times_by_hand() -> None:
    """Hidden size 8, sequences of 4, micro-batches of 4 samples, so 256 bytes between two layers.

    A layer is 13312 operations for 2 samples and has 872 parameters.
    """
    placement = mixed(8)
    assert {block.name: block.time for block in placement.blocks} == {
        # half of 13312, two all-reduces of 128 bytes among two; rows looked up and summed among two
        "F0": 6656 + 256 + (3 * 128 + 128),
        # a quarter of 26624, two all-reduces of 256 bytes among four; all but a quarter of these gathered
        "F1": 6656 + 768 + 192,
        # all of 6656, three quarters of the weights gathered; logits of 8 rows; half of 128 bytes gathered
        "F2": 6656 + 1308 + (1024 + 512) + 64,
        # twice the forward beside two exchanges of weights, slowed down; the output layer, then a sum
        "B2": round(13312 + 0.3 * 2616 + (2048 + 384) + 128) + 64,
        "B1": 13312 + 768 + 192,
        # three forwards, all-reduces of forward and backward; the gradient of 8 rows
        "B0": 3 * 6656 + 2 * 256 + 8 * 64,
        # gradients exchanged among two, 28 bytes for each of 436, 218 and 96 parameters
        "O0": 872 + 192 + 28 * (436 + 218 + 96),
        # ZeRO-3 has exchanged them already
        "O1": 128 + 28 * (218 + 64),
    }
    assert set(placement.transfer) == {("F1", "F2", 64), ("B2", "B1", 64)}, "each GPU a part"


def test_a_file_there_and_back(tmp_path: Path) -> None:
    plan = read(EXAMPLE)
    assert (plan.num_stages, plan.num_gpus, plan.micro_batch_size) == (4, 8, 2)
    assert galvatron_fields(plan) == json.loads(EXAMPLE.read_text()), "the example has every field"
    for other in (
        MIXED,
        MIXED | {"default_dp_type": "zero2", "vsp": 1, "embed_sdp": 1},
        MIXED | {"default_dp_type": "zero3", "pipeline_type": "gpipe"},
    ):
        (tmp_path / "plan.json").write_text(json.dumps(galvatron_fields(read(other))))
        assert read(tmp_path / "plan.json") == read(other)


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def but(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: fields | changes


WRONG: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (without("world_size"), "world_size: is missing; give the number of all GPUs, in the file or as "),
    (but(tp_size=1), "plan: has an unknown field 'tp_size'; the fields are pp_deg, "),
    (but(pp_deg=3), "pp_deg: 3 does not divide the 8 GPUs"),
    (but(pp_deg=4), "pp_division: has 2 entries for pp_deg 4"),
    (lambda fields: without("pp_division")(fields) | {"pp_deg": 4}, "pp_deg: 4 is more than the 3 layers"),
    (but(tp_sizes_enc=[2, 4, 1]), "tp_sizes_enc: [2, 4, 1] is not text"),
    (but(tp_sizes_enc="2,,1"), "tp_sizes_enc[1]: '' is not a whole number"),
    (but(tp_sizes_enc="2,4,8"), "tp_sizes_enc[2]: 8 does not divide the 4 GPUs of a stage"),
    (but(dp_types_enc="0,0"), "dp_types_enc: has 2 entries, but tp_sizes_enc 3"),
    (but(use_sp="0,1,0"), "use_sp[1]: 4 GPUs share the sequence (Ulysses)"),
    (but(tp_consecutive_flags="0,1,1"), "tp_consecutive_flags[0]: 0 has tensor-parallel GPUs that are not"),
    (but(cp_sizes_enc="1,1,2"), "cp_sizes_enc[2]: '2' is not 1; give numbers with commas between"),
    (but(pp_division="1,1"), "pp_division: 1,1 sums to 2, but tp_sizes_enc has 3 layers"),
    (but(chunks=3), "chunks: 3 does not divide the 8 samples of global_bsz"),
    (but(chunks=8), "tp_sizes_enc[0]: data-parallel groups: 2 does not divide the 1 samples of"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_file_names_the_field(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(change(MIXED)))
    with raises_line(PlanError, f"{path}: {message}"):
        read(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 4}, r"num_layers: 4 is not the 3 layers of the plan"),
        ({"world_size": 16}, r"world_size: 8 is not the 16 of placement.world_size"),
    ],
)
def test_a_plan_of_another_model_or_cluster(changes: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read(**changes)


def shipped() -> list[Path]:
    return sorted(SHIPPED.rglob("galvatron_config_*.json"))


@pytest.mark.skipif(not shipped(), reason="the plans that Galvatron ships are not at hand")
@pytest.mark.parametrize("path", shipped(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_plans_are_searched(path: Path) -> None:
    """On the GPUs and models that the names of the files tell."""
    llama = "llama2" in path.name
    width = 4096 if llama else 1280 if "1280hidden" in path.name else 1024
    plan = galvatron_plan(
        json.loads(path.read_text()),
        lambda count: gpt_model(count, width, 32, 32_000, 2048 if llama else 512),
        lambda number: one_node(A100, number),
        16 if "16gpus" in path.name else 8,
    )
    assert galvatron_plan(galvatron_fields(plan), lambda _: plan.model, lambda _: plan.cluster) == plan
    placement = placed(plan).with_memory((36 if llama else 24) * 1024)
    require_capacity(placement)
    result = search(placement, plan.num_micro_batches, work_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.schedule is not None
    validate(result.schedule)
