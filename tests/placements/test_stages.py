"""Models as chains of stages: read, cut, and placed as the shapes of the papers are."""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line_errors import raises_line

from experiments.config.options import OptionError, read_fields
from placements.block import PlacementError
from placements.forms.meaning import option
from placements.placement_file import placement_from_dict
from placements.profiles.operating_point import OperatingPoint
from placements.profiles.profile import Profile
from placements.shapes import loop_shape, v_shape, wave_shape, x_shape
from placements.stages.stage_chain import Stage, StageChain, StagesError, place
from placements.stages.stage_file import read_stages, stages_from_dict, stages_of, with_memory

STAGE = {"forward_ms": 1, "backward_ms": 3, "activation_mib": 1, "weight_mib": 0}
HALVES = {"forward_ms": 1, "input_gradient_ms": 1, "weight_gradient_ms": 1, "activation_mib": 1}


def chain(stage: dict[str, float], number: int, **more: Any) -> StageChain:
    return stages_from_dict({"stages": [stage] * number, **more})


def test_equal_stages_make_the_shapes_of_the_papers() -> None:
    cases = [
        (place(chain(STAGE, 4), "v_shape"), v_shape(4)),
        (place(chain(HALVES, 4), "v_shape", split_backward=True), v_shape(4, split_backward=True)),
        (place(chain(STAGE, 8, num_devices=4), "loop_shape"), loop_shape(4)),
        (place(chain(STAGE, 8, num_devices=4), "wave_shape"), wave_shape(4)),
        (
            place(chain(HALVES, 8, num_devices=4), "wave_shape", split_backward=True),
            wave_shape(4, split_backward=True),
        ),
        (place(chain(STAGE, 4), "x_shape"), x_shape(4)),
        (place(chain(HALVES, 4), "x_shape", split_backward=True), x_shape(4, split_backward=True)),
    ]
    for placed, shape in cases:
        assert set(placed.placement.blocks) == set(shape.blocks)
        assert (placed.placement.name, placed.placement.tick_ms) == (shape.name, 1.0)


def test_ticks_and_units_are_exact_where_decimals_are() -> None:
    stage = {"forward_ms": 0.7, "backward_ms": 1.25, "activation_mib": 512.5, "weight_mib": 3}
    placed = place(chain(stage, 2, transfer_ms=0.1, memory_mib=[2000, 1500.5]), "v_shape")
    placement = placed.placement
    assert (placement.tick_ms, placement.memory_unit_mib) == (0.01, 0.1)
    assert [placed.placement.ms(placement.by_name[name].time) for name in ("F0", "B0")] == [0.7, 1.25]
    assert set(placement.transfer) == {("F0", "F1", 10), ("B1", "B0", 10)}
    assert [placed.placement.mib(units) for units in placement.memory or ()] == [2000, 1500.5]
    assert [placed.placement.mib(units) for units in placement.static_memory] == [3, 3]
    assert placed.placement.mib(placement.by_name["F1"].memory_on(1)) == 512.5


def test_an_x_shape_holds_the_weights_of_two_stages() -> None:
    stages = [STAGE | {"weight_mib": weight} for weight in (10, 20, 30, 40)]
    placed = place(stages_from_dict({"stages": stages}), "x_shape")
    assert placed.placement.static_memory == (50, 50, 50, 50)
    assert placed.num_samples == 2
    assert placed.placement.by_name["G3"].time == placed.placement.by_name["F0"].time
    stages[0] = stages[0] | {"forward_ms": 5}
    times = place(stages_from_dict({"stages": stages}), "x_shape").placement.by_name
    assert [times[name].time for name in ("F0", "G3", "F3", "G0")] == [5, 5, 1, 1]


def test_stages_are_put_together_and_layers_divided() -> None:
    stage = {"forward_ms": 1, "backward_ms": 2, "activation_mib": 100, "weight_mib": 10}
    placed = place(chain(stage, 2, memory_mib=200), "loop_shape", num_chunks=3)
    block = placed.placement.by_name["F5"]
    assert placed.placement.ms(block.time) == pytest.approx(1 / 3, rel=2e-6)
    assert 100 / 3 <= placed.placement.mib(block.memory_on(1)) <= 100 / 3 * (1 + 2e-6), "never less"
    assert placed.notes == ("each stage cut into 3 equal parts",)
    whole, note = chain(STAGE, 4, num_devices=2).in_chunks(2)
    assert (whole[0].forward_ms, whole[0].backward_ms, whole[0].activation_mib) == (2, 6, 2)
    assert note == "2 stages in each chunk"
    layers = [{"forward_ms": ms, "backward_ms": 2 * ms} for ms in (1, 1, 2, 4)]
    chunks, note = stages_from_dict({"layers": layers, "num_devices": 2}).in_chunks(2)
    assert [chunk.forward_ms for chunk in chunks] == [4, 4]
    assert note == "layers of each chunk: 3,1"
    with pytest.raises(StagesError, match="layers: 4 cannot be made into 8 chunks"):
        stages_from_dict({"layers": layers, "num_devices": 4}).in_chunks(8)
    with raises_line(StagesError, match="stages: 4 cannot be made into 3 chunks; choose another num_devices"):
        chain(STAGE, 4, num_devices=3).in_chunks(3)


def test_a_whole_backward_is_split_evenly(tmp_path: Path) -> None:
    placed = place(chain({"forward_ms": 1, "backward_ms": 20}, 2), "v_shape", split_backward=True)
    assert tuple(placed.placement.by_name[name].time for name in ("I0", "W0")) == (10, 10)
    assert placed.notes == ("input gradient assumed to take 50% of each backward",)
    known = place(chain(HALVES, 2), "v_shape", split_backward=True)
    assert known.notes == ("split backward",)
    assert Stage.merged([Stage(1, 2), Stage(1, 2, 1)]).input_gradient_ms is None
    path = tmp_path / "stages.yaml"
    path.write_text(yaml.safe_dump({"stages": [HALVES] * 2}))
    assert read_stages(path) == chain(HALVES, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "3 is not a mapping of stages, num_devices, memory_mib"),
        ({"blocks": []}, "this is a placement and no stages; use placement=file placement.path=FILE"),
        ({}, "stages: give either 'stages', one for each device, or 'layers'"),
        ({"layers": [STAGE]}, "num_devices: has no value beside layers"),
        (
            {"stages": [STAGE], "memory_mib": "24 apples"},
            "memory_mib: '24 apples' is not a number .*MiB, or .* as in 24GiB",
        ),
        ({"stages": [STAGE], "memory_mib": [1, 2]}, "memory_mib: has 2 numbers for 1 devices; give one each"),
        ({"stages": [STAGE], "power_w": {"running": 9}}, "power_w: lacks the field 'blocking'; add it"),
        (
            {"stages": [STAGE], "power_w": {"running": "300W", "blocking": 75}},
            "power_w.running: '300W' is not a number of 0 or more",
        ),
        (
            {"stages": [{"forward_ms": 1, "input_gradient_ms": 1}]},
            "give either backward_ms, or input_gradient_ms and weight_gradient_ms",
        ),
        (
            {"stages": [STAGE | {"forward_ms": 0}]},
            r"stages\[0\].forward_ms: 0 is not a number above 0; give it in ms",
        ),
    ],
)
def test_wrong_stages_are_named_with_the_remedy(data: object, message: str) -> None:
    with raises_line(StagesError, match=message):
        stages_from_dict(data)


WITH_UNIT = {"forward_ms": 1, "backward_ms": 2, "activation_mib": "100MiB"}


@pytest.mark.parametrize("written", ["24GiB", "24 g", "24576mib", 24576])
def test_memory_of_stages_may_have_a_unit(written: object) -> None:
    assert stages_from_dict({"stages": [WITH_UNIT], "memory_mib": written}).memory_mib == (24576.0,)
    assert stages_of(1, forward_ms=1, backward_ms=2, memory_mib=[written]).memory_mib == (24576.0,)
    assert with_memory(stages_from_dict({"stages": [WITH_UNIT]}), written, "search.memory").memory_mib == (
        24576.0,
    )


PLACEMENT: dict[str, Any] = {
    "schema_version": 1,
    "name": "one",
    "num_devices": 1,
    "tick_ms": 1.0,
    "memory": "1GiB",
    "static_memory": ["0.5g"],
    "blocks": [
        {"name": "F0", "kind": "F", "devices": [0], "time": 1, "memory": "64MiB", "transient": "2MiB"},
        {"name": "B0", "kind": "B", "devices": 0, "time": 2, "memory": {0: -32}, "after": ["F0"]},
    ],
}


WITHOUT = {"name": "F0", "kind": "F", "devices": [0], "time": 1, "memory": 1}


def test_memory_of_a_placement_may_have_a_unit_where_its_own_is_known() -> None:
    placement = placement_from_dict(PLACEMENT | {"memory_unit_mib": "2MiB"})
    assert (placement.memory, placement.static_memory, placement.memory_unit_mib) == ((512,), (256,), 2)
    with pytest.raises(PlacementError, match="^memory: '1GiB' is not a number .* 'memory_unit_mib'"):
        placement_from_dict(PLACEMENT | {"static_memory": [0], "blocks": [WITHOUT]})


@pytest.mark.parametrize(("unit", "given", "value"), [("GiB", "24GiB", 24.0), ("MiB", "1g", 1024.0)])
def test_options_of_memory_take_other_units(unit: str, given: str, value: float) -> None:
    kind = make_dataclass("A", [("a", float | None, option(None, "memory", unit))])
    assert read_fields({"a": given}, kind, "").a == value
    with pytest.raises(OptionError, match="a: '24 apples' is not a number"):
        read_fields({"a": "24 apples"}, kind, "")


@pytest.mark.parametrize(
    ("factor", "hint"), [(1000, "set time_scale=0.001"), (0.001, "correct the times or tick_ms"), (50, "")]
)
def test_a_profile_in_another_unit_than_the_placement_is_noticed(factor: float, hint: str) -> None:
    placement = v_shape(2)
    points = {block.name: (OperatingPoint(1000, block.time * factor, 1.0),) for block in placement.blocks}
    message = Profile("GPU", points, 0.0).doubtful_times(placement, "time_scale")
    assert hint in message and bool(hint) == bool(message)
