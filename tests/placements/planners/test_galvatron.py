"""Plans of Galvatron: figures by hand, files there and back, what is refused, and plans that it ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT, SHARED_DATA
from schedsearch.core.answer import Status
from schedsearch.procedures.search import search
from schedsearch.proof.memory_need import require_capacity
from told import told

from placements import Kind, Placement, PlacementError
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.models.gpt.gpt_placement import GptConfig, gpt_v_shape
from placements.models.gpt.workload import Workload
from placements.models.parallel import LayerStrategy
from placements.models.rates import Rates
from placements.planners.galvatron import (
    layers_per_block,
    plan_compute_shares,
    plan_placement,
    recomputed_blocks,
)
from placements.planners.galvatron_file import galvatron_from_dict, galvatron_to_dict, read_galvatron
from placements.planners.parallel_plan import ParallelPlan, PlanError
from schedsearch.baselines import HAND_MADE
from schedsearch.validate import InvalidScheduleError, validate

SHIPPED = SHARED_DATA / "galvatron"
EXAMPLE = ROOT / "examples" / "galvatron_plan.json"

A100 = GPUS["a100"]
COUNTING = Rates(
    replace(A100, peak_tflops=1e-9, memory_bandwidth_gb_s=1e-6, link_bandwidth_gb_s=1e-6), 1.0, 1.0, 1.0, 1.0
)
"""A GPU that takes a millisecond for each operation, each byte of memory and each byte of a link."""

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


def mixed(width: int, rates: Rates = COUNTING) -> Placement:
    """Return the mixed plan for a model with heads of a quarter, and sequences of the whole or half width."""
    plan = galvatron_from_dict(MIXED)
    return plan_placement(plan, work(plan, width, rates), tick_ms=1.0 if rates is COUNTING else None)


def work(plan: ParallelPlan, width: int, rates: Rates = COUNTING) -> Workload:
    sequence = width if width > 100 else width // 2
    config = GptConfig(len(plan.layers), width, 4, 16, sequence, plan.micro_batch_size)
    return Workload(config, rates, plan.num_micro_batches)


def test_blocks_are_those_of_the_strategies() -> None:
    placement = mixed(8)
    found = {block.name: (block.kind, block.devices, block.data_parallel) for block in placement.blocks}
    assert found == {
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
    assert recomputed_blocks(galvatron_from_dict(MIXED)) == ("F0",)
    whole = MIXED | {"pp_division": "1,4", "checkpoint": "1,0,0,0,0"}
    whole |= {"tp_sizes_enc": "2,4,1,1,1", "dp_types_enc": "0,0,1,0,1"}
    assert layers_per_block(galvatron_from_dict(whole)) == {"F0": 1, "F1": 1, "F2": 3}
    assert placement.by_gpu.by_name["F1"].devices == (0, 1, 2, 3)


def test_times_by_hand() -> None:
    """Hidden size 8, sequences of 4, micro-batches of 4 samples, so 256 bytes between two layers.

    A layer is 13312 operations for 2 samples and has 872 parameters.
    """
    placement = mixed(8)
    assert {block.name: block.time for block in placement.blocks} == {
        # half of 13312, two all-reduces of 128 bytes among two; rows looked up and summed among two
        "F0": 6656 + 256 + (3 * 128 + 128),
        # a quarter of 26624, two all-reduces of 256 bytes among four; half the samples gathered
        "F1": 6656 + 768 + 128,
        # all of 6656, three quarters of the weights gathered; logits of 8 rows; a quarter gathered for them
        "F2": 6656 + 1308 + (1024 + 512) + 64,
        # twice the forward beside two exchanges of weights, slowed down; the output layer, then a sum
        "B2": round(13312 + 0.3 * 2616 + (2048 + 384) + 128),
        "B1": 13312 + 768,
        # three forwards, all-reduces of forward and backward; the gradient of 8 rows
        "B0": 3 * 6656 + 2 * 256 + 8 * 64,
        # gradients exchanged among two, 28 bytes for each of 436, 218 and 96 parameters
        "O0": 872 + 192 + 28 * (436 + 218 + 96),
        # ZeRO-3 has exchanged them already
        "O1": 128 + 28 * (218 + 64),
    }
    assert set(placement.transfer) == {("F1", "F2", 64), ("B2", "B1", 256)}


def test_memory_by_hand() -> None:
    """Hidden size and sequence of 1024, so a sample has 2 MiB between layers, a layer 12 Mi parameters."""
    placement = mixed(1024)
    held = {block.name: (block.memory, block.transient) for block in placement.blocks}
    assert held["F0"] == (4, 0), "two samples of input"
    assert held["B0"] == (-4, 20 + 24), "10 + 24 / 2 bytes of each element, of one layer computed again"
    assert held["F1"] == (40 + 24, 0), "four samples, 24 / 4 bytes"
    assert held["F2"] == (34 + 4 + 1, 18 + 1), "one sample, two at the output layer; weights of the others"
    assert held["B2"] == (-39, 36 + 1), "and gradients"
    assert placement.static_memory == (96 + 48 + 16 + 1, 48 + 1)
    assert placement.memory == (76 * 1024,) * 2, "less the reserve"


@pytest.mark.parametrize(
    ("zero", "num_micro_batches", "static"),
    [
        (0, 1, 16 * 872),
        (2, 1, 2 * 872 + 14 * 218),
        (2, 2, 4 * 872 + 12 * 218),
        (3, 2, 16 * 218),
    ],
)
def test_states_by_zeros_stage(zero: int, num_micro_batches: int, static: float) -> None:
    workload = Workload(GptConfig(1, 8, 4, 16, 4, 4), COUNTING, num_micro_batches)
    assert workload.layer_cost(LayerStrategy(1, 4, zero)).static_bytes == static


def test_stages_of_one_gpu_are_those_of_the_v_shape() -> None:
    config = GptConfig(8, 2048, 16, 50_304, 1024, 4)
    expected = gpt_v_shape(config, A100, 2, tick_ms=0.01)
    alike = []
    for first in range(1, 8):
        fields = {"pp_deg": 2, "world_size": 2, "pp_division": f"{first},{8 - first}", "chunks": 2}
        ones = {"tp_sizes_enc": "1,1,1,1,1,1,1,1", "dp_types_enc": "0,0,0,0,0,0,0,0", "global_bsz": 8}
        plan = galvatron_from_dict(fields | ones)
        found = plan_placement(plan, Workload(config, Rates(A100), 2), tick_ms=0.01)
        assert found.num_gpus == ()
        alike += [first] if found.per_micro_batch.blocks == expected.blocks else []
        assert set(found.transfer) == set(expected.transfer)
    assert len(alike) == 1, "of one division every block is equal"


def test_copies_depend_on_the_clock_less_than_products() -> None:
    plan = read_galvatron(EXAMPLE)
    workload = work(plan, 512, Rates(A100))
    shares = plan_compute_shares(plan, workload)
    placement = plan_placement(plan, workload)
    assert set(shares) == set(placement.by_name)
    own = A100.power.compute_share
    assert shares["O0"] == 0.2 < shares["F1"] < shares["F2"]
    assert shares["F2"] == pytest.approx(own), "no all-reduces with tensor parallel 1"
    assert shares["B0"] < own, "and no lookups"
    modelled_profile(placement, A100, shares)


def test_a_file_there_and_back(tmp_path: Path) -> None:
    plan = read_galvatron(EXAMPLE)
    assert (plan.num_stages, plan.num_gpus, plan.micro_batch_size) == (4, 2, 2)
    data = galvatron_to_dict(plan)
    assert data == json.loads(EXAMPLE.read_text()), "the example has every field"
    for other in (
        galvatron_from_dict(MIXED),
        galvatron_from_dict(MIXED | {"default_dp_type": "zero2", "vsp": 1, "embed_sdp": 1}),
        galvatron_from_dict(MIXED | {"default_dp_type": "zero3", "pipeline_type": "gpipe"}),
    ):
        (tmp_path / "plan.json").write_text(json.dumps(galvatron_to_dict(other)))
        assert read_galvatron(tmp_path / "plan.json") == other


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def but(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: fields | changes


WRONG: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (without("chunks"), "plan: lacks the field 'chunks'; add it"),
    (without("world_size"), "world_size: is missing; give the number of all GPUs, in the file or as "),
    (lambda _: [1], "plan: [1] is not a mapping of pp_deg, tp_sizes_enc, "),
    (but(tp_size=1), "plan: has an unknown field 'tp_size'; the fields are pp_deg, "),
    (but(pp_deg=0), "pp_deg: 0 is not a whole number of 1"),
    (but(pp_deg=3), "pp_deg: 3 does not divide the 8 GPUs"),
    (but(pp_deg=4), "pp_division: has 2 entries for pp_deg 4"),
    (lambda fields: without("pp_division")(fields) | {"pp_deg": 4}, "pp_deg: 4 is more than the 3 layers"),
    (but(tp_sizes_enc=[2, 4, 1]), "tp_sizes_enc: [2, 4, 1] is not text"),
    (but(tp_sizes_enc="2,,1"), "tp_sizes_enc[1]: '' is not a whole number"),
    (but(tp_sizes_enc="2,4,8"), "tp_sizes_enc[2]: 8 does not divide the 4 GPUs of a stage"),
    (but(dp_types_enc="0,0"), "dp_types_enc: has 2 entries, but tp_sizes_enc 3"),
    (but(use_sp="0,1,0"), "use_sp[1]: 4 GPUs share the sequence (Ulysses)"),
    (but(tp_consecutive_flags="0,1,1"), "tp_consecutive_flags[0]: 0 has tensor-parallel GPUs that are not"),
    (but(cp_sizes_enc="1,1,2"), "cp_sizes_enc[2]: 2 is not 1"),
    (but(vtp=3), "vtp: 3 does not divide the 4 GPUs of a stage"),
    (but(pp_division="1,1"), "pp_division: 1,1 sums to 2, but tp_sizes_enc has 3 layers"),
    (but(chunks=3), "chunks: 3 does not divide global_bsz 8"),
    (but(chunks=8), "tp_sizes_enc[0]: leaves 2 data-parallel groups, which do not divide the 1 samples"),
    (but(default_dp_type="fsdp"), "default_dp_type: 'fsdp' is not known; use one of ddp, zero2, zero3"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_file_names_the_field(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(change(MIXED)))
    with told(PlanError, f"{path}: {message}"):
        read_galvatron(path)


def test_two_world_sizes() -> None:
    assert galvatron_from_dict(MIXED, world_size=8).num_gpus == 4
    with pytest.raises(PlanError, match=r"world_size: 8 is not the 16 of placement.world_size"):
        galvatron_from_dict(MIXED, world_size=16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 4}, r"num_layers: 4 is not the 3 layers of the plan"),
        ({"num_heads": 2}, r"tp_sizes_enc\[1\]: 4 does not divide num_heads 2"),
    ],
)
def test_a_plan_of_another_model(changes: dict[str, int], message: str) -> None:
    plan = galvatron_from_dict(MIXED)
    whole = work(plan, 8)
    with pytest.raises(PlanError, match=message):
        plan_placement(plan, replace(whole, config=replace(whole.config, **changes)))


def test_a_slowdown_is_at_most_one_after_the_other() -> None:
    with pytest.raises(PlacementError, match="overlap_slowdown: 2.5 is not from 1"):
        replace(work(galvatron_from_dict(MIXED), 8), overlap_slowdown=2.5)


def test_schedules_by_hand_end_with_the_updates() -> None:
    plan = read_galvatron(EXAMPLE)
    placement = plan_placement(plan, work(plan, 512, Rates(A100)))
    for name in ("one_f_one_b", "gpipe"):
        schedule = validate(HAND_MADE[name](placement, plan.num_micro_batches))
        assert all(schedule.order(device)[-1] == (f"O{device}", 7) for device in range(4))
    with pytest.raises(InvalidScheduleError, match="O0"):
        validate(replace(schedule, blocks=tuple(each for each in schedule.blocks if each[2] != "O0")))


def shipped() -> list[Path]:
    return sorted(SHIPPED.rglob("galvatron_config_*.json"))


@pytest.mark.skipif(not shipped(), reason="the plans that Galvatron ships are not at hand")
@pytest.mark.parametrize("path", shipped(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_plans_are_searched(path: Path) -> None:
    """On the GPUs and models that the names of the files tell."""
    plan = read_galvatron(path, 16 if "16gpus" in path.name else 8)
    assert galvatron_from_dict(galvatron_to_dict(plan)) == plan
    llama = "llama2" in path.name
    width = 4096 if llama else 1280 if "1280hidden" in path.name else 1024
    config = GptConfig(len(plan.layers), width, 32, 32_000, 2048 if llama else 512, plan.micro_batch_size)
    memory_gib = 36 if llama else 24
    placement = plan_placement(plan, Workload(config, Rates(A100), plan.num_micro_batches))
    placement = placement.with_memory(memory_gib * 1024)
    require_capacity(placement)
    result = search(placement, plan.num_micro_batches, work_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.schedule is not None
    validate(result.schedule)
