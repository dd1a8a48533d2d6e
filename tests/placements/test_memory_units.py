"""Memory with its unit, wherever memory is given; and times of a profile that are in another unit."""

from __future__ import annotations

import warnings
from dataclasses import make_dataclass
from typing import Any

import pytest

from experiments.config.options import OptionError, read_fields
from placements.block import PlacementError
from placements.placement_file import placement_from_dict
from placements.profiles.operating_point import OperatingPoint
from placements.profiles.profile import Profile
from placements.shapes import v_shape
from placements.stages.stage_file import StagesError, stages_from_dict, stages_of, with_memory

STAGE = {"forward_ms": 1, "backward_ms": 2, "activation_mib": "100MiB"}


@pytest.mark.parametrize("written", ["24GiB", "24 GiB", "24g", "24576MiB", "24576 mib", 24576, "24.0Gib"])
def test_memory_of_stages_may_have_a_unit(written: object) -> None:
    assert stages_from_dict({"stages": [STAGE], "memory_mib": written}).memory_mib == (24576.0,)
    assert stages_of(1, forward_ms=1, backward_ms=2, memory_mib=[written]).memory_mib == (24576.0,)
    assert with_memory(stages_from_dict({"stages": [STAGE]}), written, "search.memory").memory_mib == (
        24576.0,
    )


def test_a_unit_that_is_none_is_named_with_the_remedy() -> None:
    with pytest.raises(StagesError, match="memory_mib: '24 apples' is not a number .*MiB, or .* as in 24GiB"):
        stages_from_dict({"stages": [STAGE], "memory_mib": "24 apples"})


PLACEMENT: dict[str, Any] = {
    "schema_version": 1,
    "name": "one",
    "num_devices": 1,
    "tick_ms": 1.0,
    "memory": "1GiB",
    "static_memory": ["0.5g"],
    "blocks": [
        {"name": "F0", "kind": "F", "devices": [0], "time": 1, "memory": "64MiB", "transient": "2MiB"},
        {"name": "B0", "kind": "B", "devices": 0, "time": 2, "memory": {0: -64}, "after": ["F0"]},
    ],
}


WITHOUT = {"name": "F0", "kind": "F", "devices": [0], "time": 1, "memory": 1}


def test_memory_of_a_placement_may_have_a_unit_where_its_own_is_known() -> None:
    blocks = [PLACEMENT["blocks"][0], PLACEMENT["blocks"][1] | {"memory": {0: -32}}]
    placement = placement_from_dict(PLACEMENT | {"memory_unit_mib": "2MiB", "blocks": blocks})
    assert (placement.memory, placement.static_memory, placement.memory_unit_mib) == ((512,), (256,), 2)
    assert (placement.blocks[0].memory, placement.blocks[0].transient) == (32, 1)


def test_else_the_message_says_how_to_make_it_known() -> None:
    with pytest.raises(PlacementError, match="^memory: '1GiB' has a unit, but .* 'memory_unit_mib'"):
        placement_from_dict(PLACEMENT | {"static_memory": [0], "blocks": [WITHOUT]})


@pytest.mark.parametrize(("name", "given", "value"), [("a_gib", "24GiB", 24.0), ("a_mib", "1g", 1024.0)])
def test_options_that_end_with_a_unit_take_others(name: str, given: str, value: float) -> None:
    assert getattr(read_fields({name: given}, make_dataclass("A", [(name, float | None)]), ""), name) == value
    with pytest.raises(OptionError, match=f"{name}: '24 apples' is not a number"):
        read_fields({name: "24 apples"}, make_dataclass("A", [(name, float)]), "")


def profile_of(factor: float) -> Profile:
    placement = v_shape(2)
    points = {each.name: (OperatingPoint(1000, each.time * factor, 1.0),) for each in placement.blocks}
    return Profile("GPU", points, 0.0)


@pytest.mark.parametrize(("factor", "remedy"), [(1000, "set time_scale=0.001"), (0.001, "tick_ms of the pl")])
def test_a_profile_in_another_unit_than_the_placement_is_noticed(factor: float, remedy: str) -> None:
    with pytest.warns(UserWarning, match=f"profile: its blocks take .* ms .*, those of v_shape .*{remedy}"):
        profile_of(factor).require(v_shape(2))


@pytest.mark.parametrize("factor", [0.02, 1, 50])
def test_one_of_another_size_is_not(factor: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profile_of(factor).require(v_shape(2))
