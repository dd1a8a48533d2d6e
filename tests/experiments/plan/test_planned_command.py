"""Commands on a planner's plan."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import hydra
import pytest
from places import ROOT

from experiments.config.declaring import tell_hydra
from experiments.config.option_list import CONFIG
from experiments.run.options import RunCommandOptions
from experiments.run.run_options import what_is_run
from experiments.search.options import NUM_MICRO_BATCHES, read_options
from placements import Kind
from placements.gpus import GPUS
from placements.planners.hybrid.placing.gpt import gpt_model, one_node
from placements.planners.hybrid.plan import Plan
from placements.trainers.galvatron import galvatron_plan
from runtime.codegen.script import read_script
from runtime.models import ModelOptions, body_of
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

EXAMPLE = "examples/galvatron_plan.json"
PLANNED = ["placement=galvatron", f"placement.path={EXAMPLE}", "search.work_limit=2.5"]


def test_a_plan_is_searched(command, tmp_path: Path) -> None:
    done = command("search", *PLANNED)
    assert done.returncode == 0, done.stderr
    said = "4 stages of 2 GPUs with 2,2,2,2 layers, 4 forward blocks; 8 micro-batches of 2 samples; "
    assert done.stdout.startswith(f"galvatron_plan.json: {said}runtime.recompute=[F0]\n")
    schedule = validate(read_schedule(tmp_path / "out/schedule.json"))
    assert (schedule.num_micro_batches, schedule.placement.gpus) == (8, (2, 2, 2, 2))
    assert [schedule.placement.by_name[f"F{i}"].data_parallel for i in range(4)] == [1, 1, 2, 2]
    done = command("search", *PLANNED, "search.num_micro_batches=12", "schedule=one_f_one_b")
    assert "12 micro-batches of 2 samples; runtime.recompute=[F0]; not its chunks 8\n" in done.stdout
    assert json.loads((tmp_path / "out/schedule.json").read_text())["num_micro_batches"] == 12


def test_a_plan_has_a_frontier_that_counts_all_gpus(command, tmp_path: Path) -> None:
    done = command("frontier", *PLANNED, "energy.num_plans=3", "energy.baselines=[]")
    assert done.returncode == 0, done.stderr
    frontier = json.loads((tmp_path / "out/frontier.json").read_text())
    assert (frontier["num_devices"], frontier["num_gpus"]) == (4, 8)
    assert set(frontier["plans"][0]["clock_mhz"]) >= {"F0", "B3", "O3"}


def options(*overrides: str) -> RunCommandOptions:
    tell_hydra("run")
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIG)):
        return read_options(hydra.compose("run", list(overrides)), RunCommandOptions)


def test_what_a_plan_decides_is_its_own_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    planned = options(*PLANNED)
    assert (planned.search.num_micro_batches, planned.runtime.recompute) == (8, ("F0",))
    assert planned.runtime.micro_batch_size == 2
    given = options(*PLANNED, "search.num_micro_batches=3", "runtime.recompute=[]")
    assert (given.search.num_micro_batches, given.runtime.recompute) == (3, ())
    other = options("placement=v_shape")
    assert (other.search.num_micro_batches, other.runtime.recompute) == (NUM_MICRO_BATCHES, ())


PLAN = {
    "pp_deg": 2,
    "pp_division": "4,1",
    "tp_sizes_enc": "1,2,2,2,2",
    "dp_types_enc": "1,0,0,0,0",
    "checkpoint": "0,0,0,1,0",
    "global_bsz": 12,
    "chunks": 3,
    "vtp": 2,
    "world_size": 4,
}
"""Stages of four layers and one. The first, on two GPUs, has three blocks: one layer in two groups with
ZeRO-3, two that are cut, and one that is computed again."""


@pytest.fixture
def run_plan(command, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a plan with a small model in one process."""

    def run(plan: dict[str, object], *more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        return command(
            *("run", "placement=galvatron", f"placement.path={tmp_path / 'plan.json'}", *more),
            *("energy.num_plans=2", "energy.baselines=[]", "search.work_limit=2.5"),
            *("runtime.hidden_size=8", "runtime.sequence_length=6", "runtime.iterations=2"),
            "runtime.launcher=in_process",
        )

    return run


def layers_run(out: Path) -> list[dict[str, set[str]]]:
    """Return for each GPU the transformer layers whose parameters each of its forward blocks holds."""
    layers = []
    for path in sorted((out / "scripts").glob("device_*.py")):
        script = read_script(path)
        body = body_of(script.model, script.placement)
        blocks = [block.name for block in script.placement.on(len(layers)) if block.kind is Kind.F]
        names = {block: [weight.name for weight in body.parameters(block)] for block in blocks}
        layers.append({b: {n.partition(".")[0] for n in names[b] if n.startswith("layer")} for b in blocks})
    return layers


def test_a_plan_runs_with_its_uneven_stages_and_strategies(run_plan, tmp_path: Path) -> None:
    done = run_plan(PLAN)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "run: runtime.layers_per_block={F0: 1, F1: 2, F2: 1, F3: 1}, as planned" in said
    assert any(line.startswith("run: without the plan's ZeRO of F0: plain data parallel") for line in said)
    cut = "cut over 1 and 2 GPUs, as the layers beside them, and not as planned (vtp 2, vsp 0)"
    assert f"run: embedding and output layer are {cut}" in said
    out = tmp_path / "out"
    first = {"F0": {"layer0"}, "F1": {"layer1", "layer2"}, "F2": {"layer3"}}
    assert layers_run(out) == [first, first, {"F3": {"layer4"}}, {"F3": {"layer4"}}]
    script = read_script(out / "scripts/device_0.py")
    again = {run.block for run in script.calls.runs if run.mode == "recompute"}
    assert (again, script.model.micro_batch_size) == ({"F2"}, 4)
    groups = {name: script.placement.by_name[name].data_parallel for name in first}
    assert groups == {"F0": 2, "F1": 1, "F2": 1}
    ends = [body_of(script.model, script.placement).parameters(name) for name in ("F0", "F3")]
    assert [[weight.name for weight in end if ".tokens" in weight.name] for end in ends] == [
        ["embedding.tokens"],
        ["output.tokens"],
    ]
    data = json.loads((out / "measurement.json").read_text())
    assert data["bitwise_equal"] is True and data["iterations"] == 2
    assert max(data["max_loss_error"], data["max_gradient_error"], data["max_parameter_error"]) <= 1e-12


def test_other_layers_than_the_plans(run_plan, tmp_path: Path) -> None:
    """A number is shared in the plan's proportions, counts are taken as they are; both are said."""
    plain = PLAN | {"dp_types_enc": "0,0,0,0,0", "tp_sizes_enc": "2,2,2,2,2"}
    done = run_plan(plain, "runtime.num_layers=7")
    assert done.returncode == 0, done.stderr
    said = "layers and not the plan's 5 in {F0: 3, F1: 1, F2: 1}"
    assert f"run: runtime.layers_per_block={{F0: 4, F1: 2, F2: 1}}, 7 {said}\n" in done.stdout
    assert "ZeRO" not in done.stdout and "vtp" not in done.stdout
    counts = {name: len(layers) for gpu in layers_run(tmp_path / "out") for name, layers in gpu.items()}
    assert counts == {"F0": 4, "F1": 2, "F2": 1}
    done = run_plan(plain, "runtime.layers_per_block={F0: 1, F1: 1, F2: 2}")
    assert done.returncode == 0, done.stderr
    assert f"run: runtime.layers_per_block={{F0: 1, F1: 1, F2: 2}}, 4 {said}\n" in done.stdout
    assert layers_run(tmp_path / "out")[2] == {"F2": {"layer2", "layer3"}}


V_SHAPE = ["placement=v_shape", "placement.num_devices=2"]
WRONG_LAYERS = [
    (
        [*V_SHAPE, "runtime.layers_per_block={F0: 1}"],
        "runtime.layers_per_block: lacks F1; give each of F0, F1",
    ),
    (
        [*V_SHAPE, "runtime.layers_per_block={F0: 1, F1: 3}", "runtime.num_layers=8"],
        "runtime.layers_per_block: gives v_shape 4 layers, where num_layers makes it 8; change one",
    ),
    (
        [*V_SHAPE, "runtime.layers_per_block={F0: 0, F1: 3}"],
        "runtime.layers_per_block.F0: 0 is not a whole number of 1 or more",
    ),
    ([*V_SHAPE, "runtime.layers_per_block=4"], "runtime.layers_per_block: 4 is not a mapping"),
    (
        [*V_SHAPE, "runtime.layers_per_block={F0: 1, F1: 3}", "runtime.model=synthetic"],
        "runtime.layers_per_block: synthetic has no transformer layers to share; leave it out (null)",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG_LAYERS, ids=[message for _, message in WRONG_LAYERS])
def test_wrong_layers(overrides: list[str], message: str, refused, tmp_path: Path) -> None:
    assert message in refused("run", *overrides)
    assert not list((tmp_path / "out").glob("*.json"))


def test_wrong_layers_of_a_plan_stop_before_the_search(run_plan, tmp_path: Path) -> None:
    done = run_plan(PLAN, "runtime.num_layers=3")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "runtime.num_layers: 3 is fewer than the 4 parts that share them; give at least 4, or null" in (
        done.stderr
    )
    assert not list((tmp_path / "out").glob("*.json"))


def plan_of(fields: dict[str, object]) -> Plan:
    return galvatron_plan(
        fields, lambda count: gpt_model(count, 64, 2, 64, 16), lambda number: one_node(GPUS["a100"], number)
    )


def left_out(**fields: object) -> list[str]:
    """Return the lines about a run of the plan with other fields, after the line about its layers."""
    plan = plan_of(PLAN | fields)
    first, *others = what_is_run(plan, ModelOptions("gpt", layers_per_block=plan.block_layers))
    assert first.endswith("as planned")
    return others


def test_what_a_run_leaves_out_of_a_plan() -> None:
    """ZeRO does nothing where one GPU has all samples; embeddings with ZeRO are named too."""
    tensor = "2,2,2,2,2"
    assert left_out(tp_sizes_enc=tensor, dp_types_enc="1,1,1,1,1") == []
    zero, cut = left_out(default_dp_type="zero2", vtp=1, embed_sdp=1)
    assert zero.startswith(
        "run: without the plan's ZeRO of F0, embedding and output layer: plain data parallel"
    )
    assert cut.endswith("not as planned (vtp 1, vsp 0)")
    (line,) = left_out(tp_sizes_enc=tensor, dp_types_enc="0,0,0,0,0", vsp=1)
    assert line.endswith("not as planned (vtp 2, vsp 1)")
    first, second = what_is_run(plan_of(PLAN), ModelOptions("synthetic"))
    assert first == "run: synthetic has none of the plan's layers, only its blocks and their groups"
    assert "ZeRO of F0" in second


WRONG = [
    (["placement=galvatron"], "placement.path: has no value"),
    (["placement=galvatron", "placement.path=none.json"], "none.json: cannot be read (No such file"),
    (
        [*PLANNED, "placement.world_size=16"],
        f"{EXAMPLE}: world_size: 8 is not the 16 of placement.world_size",
    ),
    ([*PLANNED, "placement.num_layers=9"], "num_layers: 9 is not the 8 layers of the plan"),
    ([*PLANNED, "placement.overlap_slowdown=0.5"], "overlap_slowdown: 0.5 is not from 1"),
    ([*PLANNED, "search.memory=9000"], "memory[3]: 9000 MiB is too small for one micro-batch"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input(overrides: list[str], message: str, refused, tmp_path: Path) -> None:
    assert message in refused("search", *overrides)
    assert not list((tmp_path / "out").glob("*.json"))
