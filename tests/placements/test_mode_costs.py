"""What blocks cost in modes and on streams where a profile does not say it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from modes_and_streams import communicating, offloading, recomputing

from placements import OperatingPoint, Placement, Profile, ProfileError
from placements.modes import Choice, Decision
from placements.profiles.mode_costs import with_modes


def profile_of(*names: str) -> Profile:
    """Backwards take twice as long as forwards and draw half as much again, at two clocks."""
    points = {
        name: (OperatingPoint(600, 4.0 * k, 400.0 * k * k), OperatingPoint(1200, 2.0 * k, 500.0 * k * k))
        for name in names
        for k in [2 if name.startswith("B") else 1]
    }
    return Profile("made up", points, 50.0)


def in_mode(placement: Placement, name: str, **changes: int) -> Placement:
    """Return a placement in which each decision has one more choice, which changes a backward's times."""
    own = placement.by_name["B0"]
    choice = Choice(name, (replace(own, **changes),))
    first, *others = placement.decisions
    return replace(placement, decisions=(Decision((*first.choices, choice)), *others))


def test_a_backward_that_computes_again_costs_what_both_cost_at_the_clock() -> None:
    whole = with_modes(profile_of("F0", "F1", "B0", "B1"), recomputing())
    assert whole.points["B0@recompute"] == (
        OperatingPoint(600, 4.0 + 8.0, 400.0 + 1600.0),
        OperatingPoint(1200, 2.0 + 4.0, 500.0 + 2000.0),
    )
    assert whole.points["F0@recompute"] == whole.points["F0"], "it differs in memory alone"
    assert with_modes(whole, recomputing()) is whole


def test_half_of_a_forward_again_costs_half_of_it() -> None:
    whole = with_modes(profile_of("F0", "F1", "B0", "B1"), in_mode(recomputing(), "selective", time=5))
    assert whole.points["B0@selective"][1] == OperatingPoint(1200, 2.0 / 2 + 4.0, 500.0 / 2 + 2000.0)


def test_a_fused_backward_does_less_work_at_the_same_power() -> None:
    whole = with_modes(profile_of("F0", "F1", "B0", "B1"), in_mode(recomputing(), "fused", time=3))
    assert whole.points["B0@fused"][1] == OperatingPoint(1200, 4.0 * 3 / 4, 2000.0 * 3 / 4)


def test_copies_in_a_block_take_as_long_at_every_clock_and_wait() -> None:
    whole = with_modes(profile_of("F0", "F1", "B0", "B1"), in_mode(recomputing(), "offload", time=7))
    assert whole.points["B0@offload"] == (
        OperatingPoint(600, 8.0 + 3.0, 1600.0 + 3.0 * 50),
        OperatingPoint(1200, 4.0 + 3.0, 2000.0 + 3.0 * 50),
    )


def test_rows_of_a_mode_come_before_what_follows_from_others() -> None:
    profile = profile_of("F0", "F1", "B0", "B1")
    own = (OperatingPoint(1200, 5.5, 2400.0),)
    whole = with_modes(replace(profile, points=profile.points | {"B0@recompute": own}), recomputing())
    assert whole.points["B0@recompute"] == own and len(whole.points["B1@recompute"]) == 2


def test_other_streams_take_their_time_and_use_what_waiting_does_unless_it_is_said() -> None:
    whole = with_modes(profile_of("attention", "mlp"), communicating())
    assert whole.points["dispatch"] == (OperatingPoint(1200, 6.0, 6.0 * 50),)
    measured = (OperatingPoint(1200, 6.0, 900.0),)
    profile = profile_of("F0", "B0")
    whole = with_modes(replace(profile, points=profile.points | {"O0": measured}), offloading())
    assert whole.points["O0"] == measured and whole.points["I0"] == (OperatingPoint(1200, 3.0, 150.0),)


def test_forward_and_backward_without_a_common_clock_are_refused_in_one_line() -> None:
    profile = profile_of("F0", "F1", "B0", "B1")
    forward = (OperatingPoint(900, 3.0, 450.0),)
    with pytest.raises(ProfileError, match="no clock in common; give rows of the block B0@recompute"):
        with_modes(replace(profile, points=profile.points | {"F0": forward}), recomputing())


def test_a_profile_without_its_modes_says_what_to_do() -> None:
    with pytest.raises(ProfileError, match="lacks F0@recompute, .*B0@recompute .*and `with_modes`$"):
        profile_of("F0", "F1", "B0", "B1").times_for(recomputing())
    with pytest.raises(ProfileError, match="lacks F1, F1@recompute, B1"):
        with_modes(profile_of("F0", "B0"), recomputing())._require_blocks(recomputing())


def test_a_placement_takes_the_times_of_its_modes_from_a_profile() -> None:
    profile = with_modes(profile_of("F0", "F1", "B0", "B1"), recomputing())
    timed = profile.times_for(recomputing(), tick_ms=0.5)
    assert [timed.by_name[name].time for name in ("F0", "B0")] == [4, 8]
    assert timed.runs["B0@recompute"].time == 12
    assert timed.runs["F0@recompute"].time == 4 and timed.runs["F0@recompute"].memory == 1
    with_copies = with_modes(profile_of("F0", "B0"), offloading()).times_for(offloading(), tick_ms=0.5)
    keep, _ = with_copies.decisions[0].choices
    assert [block.time for block in keep.blocks] == [0, 0] and with_copies.by_name["O0"].time == 6


def test_transfers_of_a_block_are_paid_for_in_each_of_its_modes() -> None:
    placement = replace(recomputing(), transfer=(("B1", "B0", 2),))
    profile = with_modes(profile_of("F0", "F1", "B0", "B1"), placement).with_transfers(placement, 10.0)
    before = with_modes(profile_of("F0", "F1", "B0", "B1"), placement)
    for name in ("B0", "B0@recompute"):
        for paid, free in zip(profile.points[name], before.points[name], strict=True):
            assert paid.energy_mj == free.energy_mj + 20.0
    assert profile.points["F0"] == before.points["F0"]
