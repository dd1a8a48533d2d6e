"""Data-parallel groups from the command line: which blocks get how many, and a run on their GPUs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.config.options import OptionError
from experiments.search.kinds.kind import with_data_parallel
from placements import Block, Kind, Placement, Profile
from placements.placement_file import read_placement
from placements.shapes import m_shape, v_shape
from schedsearch.schedule_file import read_schedule

ON_GPUS = replace(v_shape(2), num_gpus=(2, 4))


def groups_of(placement: Placement) -> dict[str, int]:
    return {block.name: block.data_parallel for block in placement.blocks}


def test_one_number_is_for_blocks_over_several_devices_too_but_not_for_optimizers() -> None:
    shape = replace(m_shape(2), num_gpus=(2, 2))
    step = Block("O", Kind.O, (0,), 1, after=("B0",))
    groups = groups_of(with_data_parallel(replace(shape, blocks=(*shape.blocks, step)), 2))
    assert groups.pop("O") == 1 and set(groups.values()) == {2}


def test_a_number_that_does_not_divide_the_gpus_is_refused() -> None:
    assert with_data_parallel(ON_GPUS, None) == ON_GPUS
    with pytest.raises(OptionError) as caught:
        with_data_parallel(ON_GPUS, 3)
    message = "placement.blocks[0] (F0).data_parallel: 3 does not divide its 2 GPUs; give a divisor"
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["placement.data_parallel=0"], "placement.data_parallel: 0 is not a whole number of 1 or more"),
        (
            ["placement.data_parallel=4"],
            "placement.blocks[0] (F0).data_parallel: 4 does not divide its 2 GPUs",
        ),
        (
            ["placement.data_parallel=2", "runtime.micro_batch_size=3"],
            "runtime.micro_batch_size: 3 samples have",
        ),
    ],
)
def test_groups_that_cannot_run_stop_before_the_search(
    options: list[str], message: str, refused, tmp_path: Path
) -> None:
    assert message in refused("run", "placement=v_shape", "placement.num_gpus=2", *options)
    assert not list((tmp_path / "out").glob("*.json"))


def test_a_run_on_groups_of_gpus_uses_what_was_planned(ran, tmp_path: Path) -> None:
    """One stage on two GPUs and one on four, each in two groups; clocks repeat, for one micro-batch more."""
    small = ["runtime.hidden_size=16", "runtime.sequence_length=8", "runtime.iterations=2"]
    chosen = ["placement.num_gpus=[2,4]", "placement.data_parallel=2", "energy.periodic=1"]
    ran(
        *("run", "placement=v_shape", "placement.num_devices=2", *chosen, *small),
        *("schedule=one_f_one_b", "search.num_micro_batches=6", "runtime.num_micro_batches=7"),
        *("runtime.launcher=in_process", "runtime.simulated_gpus=true"),
    )
    out = tmp_path / "out"
    data = json.loads((out / "measurement.json").read_text())
    assert data["bitwise_equal"] is True
    assert max(data["max_loss_error"], data["max_gradient_error"], data["max_parameter_error"]) <= 1e-12
    assert len(data["clock_requests"]) == len(list((out / "scripts").glob("device_*.py"))) == 6
    assert data["clock_requests"]["2"] == data["clock_requests"]["5"] != []
    simulated = json.loads((out / "simulated.json").read_text())
    assert simulated["time_ms"] == pytest.approx(simulated["planned_time_ms"], rel=1e-9)
    assert simulated["energy_mj"] == pytest.approx(simulated["planned_energy_mj"], rel=1e-9)
    placement = read_schedule(out / "schedule.json").placement
    assert placement == replace(read_placement(out / "placement.yaml"), memory=placement.memory)
    assert (placement.num_gpus, groups_of(placement)["B1"]) == ((2, 4), 2)
    header = (out / "scripts/device_3.py").read_text()
    assert header.startswith(
        '"""Device 3 of 6, a GPU of the schedule\'s device 1, of v_shape: 6 micro-batches (or'
    )
    assert "  > 1 | " in header


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["placement.num_gpus=[1,2,2,1]"], "placement.num_gpus: [1, 2, 2, 1] is not a whole number or null"),
        (["placement.num_gpus=2", "placement.data_parallel=2"], "placement.data_parallel: 2 is not 1, and"),
        (["placement.num_gpus=3"], "placement.num_gpus: 3 in 1 data-parallel groups are 3 GPUs that share"),
    ],
)
def test_a_gpt_is_costed_with_the_gpus_of_a_device_or_refused(
    options: list[str], message: str, refused
) -> None:
    """They once changed neither its times nor its memory, as if each device were one GPU."""
    assert message in refused("search", "placement=gpt", *options)


def test_the_clock_changes_less_of_a_layer_that_several_gpus_share(ran, tmp_path: Path) -> None:
    """The power model gives the time of sums the share of copies, not the share of products."""
    options = ["placement.num_gpus=4", "placement.vocab_size=50000", "schedule=gpipe"]
    ran("frontier", *options, "search.num_micro_batches=1", "energy.num_plans=2")
    profile = Profile.from_csv(tmp_path / "out" / "profile.csv", blocking_power_w=80.0)
    slowest = {name: points[0].time_ms / points[-1].time_ms for name, points in profile.points.items()}
    assert slowest["E"] < slowest["F0"] < slowest["H"]
    assert read_schedule(tmp_path / "out" / "schedule.json").placement.num_gpus == (4, 4, 4, 4)
