"""Commands on a planner's plan."""

from __future__ import annotations

import json
from pathlib import Path

import hydra
import pytest
from commands import one_line_error

from experiments.command import CONFIG
from experiments.options import NUM_MICRO_BATCHES, Options, read_options
from placements.planners.galvatron_file import read_galvatron
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/galvatron_plan.json"
PLANNED = ["placement=galvatron", f"placement.path={EXAMPLE}"]


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


def test_layers_are_divided_anew(command, tmp_path: Path) -> None:
    """With a large output layer the last stage has fewer layers; the plan that was used is written."""
    large = [*PLANNED, "placement.vocab_size=500000"]
    done = command("search", *large, "placement.balance=largest")
    assert "4 stages of 2 GPUs with 2,2,3,1 layers, 4 forward blocks" in done.stdout
    assert "runtime.recompute=[F0]; not its pp_division 2,2,2,2\n" in done.stdout
    balanced = json.loads((tmp_path / "out/schedule.json").read_text())["period"]
    written = tmp_path / "plan.json"
    (tmp_path / "out/galvatron_config.json").rename(written)
    assert read_galvatron(written).stage_layers == (2, 2, 3, 1)
    command("search", "placement=galvatron", f"placement.path={written}", large[-1])
    assert json.loads((tmp_path / "out/schedule.json").read_text())["period"] == balanced
    command("search", *large)
    assert json.loads((tmp_path / "out/schedule.json").read_text())["period"] > balanced


def options(*overrides: str) -> Options:
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONFIG)):
        return read_options(hydra.compose("config", list(overrides)))


def test_what_a_plan_decides_is_its_own_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    planned = options(*PLANNED)
    assert (planned.search.num_micro_batches, planned.runtime.recompute) == (8, ["F0"])
    given = options(*PLANNED, "search.num_micro_batches=3", "runtime.recompute=[]")
    assert (given.search.num_micro_batches, given.runtime.recompute) == (3, [])
    other = options("placement=v_shape")
    assert (other.search.num_micro_batches, other.runtime.recompute) == (NUM_MICRO_BATCHES, [])


WRONG = [
    (["placement=galvatron"], "placement.path: has no value"),
    (["placement=galvatron", "placement.path=none.json"], "none.json: cannot be read (No such file"),
    ([*PLANNED, "placement.planner=galvatrom"], "placement.planner: 'galvatrom' is not known; did you mean"),
    (
        [*PLANNED, "placement.world_size=16"],
        f"{EXAMPLE}: world_size: 8 is not the 16 of placement.world_size",
    ),
    ([*PLANNED, "placement.world_size=many"], "placement.world_size: 'many' is not a whole number"),
    ([*PLANNED, "placement.num_layers=9"], "num_layers: 9 is not the 8 layers of the plan"),
    ([*PLANNED, "placement.num_heads=7"], "num_heads: 7 does not divide hidden_size 4096"),
    ([*PLANNED, "placement.overlap_slowdown=0.5"], "overlap_slowdown: 0.5 is not from 1"),
    ([*PLANNED, "search.memory=9000"], "memory[3]: 9000 is too small for one micro-batch"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input(overrides: list[str], message: str, command, tmp_path: Path) -> None:
    assert message in one_line_error(command("search", *overrides))
    assert not list((tmp_path / "out").glob("*.json"))
