"""Versions of weights: the closed forms of the dissertation, and a check that sees each one off by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line_errors import raises_line
from weight_versions import device_orders, versions_of

from placements.shapes import k_shape, loop_shape, v_shape, wave_shape, x_shape
from schedsearch.baselines import chimera, gpipe, interleaved_one_f_one_b, one_f_one_b, zb_h1, zb_v
from schedsearch.schedule import Instance, Schedule
from schedsearch.semantics.check import WrongVersionError, check_versions
from schedsearch.semantics.versions import (
    Updates,
    WeightMode,
    WeightVersionError,
    WeightVersions,
    find_versions,
)

TIMES = [(1, 2), (3, 2)]
DEPTHS = [1, 2, 3, 8]


def checked(schedule: Schedule, mode: str, micro_batches_per_update: int = 1) -> WeightVersions:
    versions = versions_of(schedule, mode, micro_batches_per_update)
    return check_versions(schedule.placement.per_micro_batch, device_orders(schedule), versions)


def peaks(schedule: Schedule, versions: WeightVersions) -> list[int]:
    return list(versions.peak_held(schedule.placement, device_orders(schedule)).values())


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("times", TIMES)
def test_weight_stashing_has_the_closed_form_of_the_dissertation(depth: int, times: tuple[int, int]) -> None:
    schedule = one_f_one_b(v_shape(depth, *times), 3 * depth)
    versions = checked(schedule, "weight_stashing")
    for stage in range(1, depth + 1):
        for k in range(1, 3 * depth + 1):  # both from 1 on, as in the dissertation
            version = max(0, k - 1 - (depth - stage))
            assert versions.reads[f"F{stage - 1}", k - 1] == version
            assert versions.reads[f"B{stage - 1}", k - 1] == version
            assert versions.makes[f"F{stage - 1}", k - 1] == k
    assert peaks(schedule, versions) == [depth - stage + 1 for stage in range(1, depth + 1)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_vertical_sync_reads_one_version_on_all_stages_and_holds_as_many_as_stages(depth: int) -> None:
    schedule = one_f_one_b(v_shape(depth, 1, 2), 3 * depth)
    versions = checked(schedule, "vertical_sync")
    for (_, n), version in versions.reads.items():
        assert version == max(0, n + 1 - depth)
    assert peaks(schedule, versions) == [depth] * depth


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("more", [-1, 0, 1, 5])
def test_double_buffering_reads_the_version_before_and_holds_two(depth: int, more: int) -> None:
    per_update = max(depth + more, 1)
    schedule = one_f_one_b(v_shape(depth, 1, 2), 4 * per_update)
    versions = checked(schedule, "double_buffering", per_update)
    for (_, n), version in versions.reads.items():
        assert version == max((n + 1 - 1) // per_update - 1, 0)
    assert peaks(schedule, versions) == [2] * depth


@pytest.mark.parametrize("depth", [3, 4, 8])
def test_double_buffering_of_fewer_than_the_stages_but_one_is_refused(depth: int) -> None:
    schedule = one_f_one_b(v_shape(depth, 1, 2), 4 * (depth - 2))
    with raises_line(WeightVersionError, match="raise micro_batches_per_update"):
        versions_of(schedule, "double_buffering", depth - 2)


def test_a_flush_has_one_version_and_one_update() -> None:
    schedule = gpipe(v_shape(4, 1, 2), 8)
    versions = checked(schedule, "flush")
    assert set(versions.reads.values()) == {0} and set(versions.makes.values()) == {1}
    assert peaks(schedule, versions) == [1] * 4


@pytest.mark.parametrize("mode", ["weight_stashing", "vertical_sync", "double_buffering"])
@pytest.mark.parametrize(
    "schedule",
    [
        one_f_one_b(v_shape(4, 1, 2), 12),
        zb_h1(v_shape(4, split_backward=True), 12),
        zb_v(wave_shape(3, split_backward=True), 12),
        interleaved_one_f_one_b(loop_shape(2), 12),
        chimera(x_shape(4), 12),
    ],
    ids=lambda schedule: schedule.placement.name,
)
def test_any_version_that_is_off_by_one_is_seen(mode: str, schedule: Schedule) -> None:
    per_update = 6 if mode == "double_buffering" else 1
    versions = checked(schedule, mode, per_update)
    orders = device_orders(schedule)
    for instance in versions.reads:
        for wrong in (-1, 1):
            reads = {**versions.reads, instance: versions.reads[instance] + wrong}
            with pytest.raises(WrongVersionError):
                check_versions(schedule.placement, orders, replace(versions, reads=reads))
    for instance in versions.makes:
        makes = {**versions.makes, instance: versions.makes[instance] + 1}
        with pytest.raises(WrongVersionError):
            check_versions(schedule.placement, orders, replace(versions, makes=makes))
    both = {(name, n): version + 1 for (name, n), version in versions.reads.items()}
    with pytest.raises(WrongVersionError):
        check_versions(schedule.placement, orders, replace(versions, reads=both))


@pytest.mark.parametrize("mode", ["weight_stashing", "vertical_sync", "double_buffering"])
def test_a_micro_batch_that_reads_an_older_version_forward_and_backward_is_seen(mode: str) -> None:
    schedule = one_f_one_b(v_shape(3, 1, 2), 12)
    versions = checked(schedule, mode, 3 if mode == "double_buffering" else 1)
    stale = {
        (name, n): version - (n == 11 and name.endswith("1")) for (name, n), version in versions.reads.items()
    }
    with pytest.raises(WrongVersionError, match="of micro-batch 11 reads version"):
        check_versions(schedule.placement, device_orders(schedule), replace(versions, reads=stale))


@given(st.integers(1, 5), st.integers(1, 12), st.sampled_from(["weight_stashing", "vertical_sync"]))
def test_versions_that_are_held_are_those_of_a_run_step_by_step(depth: int, number: int, mode: str) -> None:
    schedule = one_f_one_b(v_shape(depth, 1, 2), number)
    versions = checked(schedule, mode)
    orders = device_orders(schedule)
    for device in range(depth):
        expected = held_by_reference_counts(orders[device], versions, f"F{device}", f"B{device}")
        assert versions.held(schedule.placement, orders[device], versions.stages[device]) == expected


def held_by_reference_counts(
    order: tuple[Instance, ...], versions: WeightVersions, forward: str, backward: str
) -> list[int]:
    """Keep versions in a dictionary as a run would, and look how many are in it."""
    numbers = range(len(order) // 2)
    kept, done, counts = {0}, set(), []
    for name, n in order:
        if name == backward:
            done.add(n)
            kept.add(len(done))
            newest = max(kept)
            still = {versions.reads[forward, k] for k in numbers if k not in done}
            kept = {version for version in kept if version in still or version == newest}
        counts.append(len(kept))
    return counts


def test_two_inputs_of_a_graph_go_by_the_older_version_of_the_two() -> None:
    placement = k_shape(2)
    orders = [[("F0", 0), ("J", 0), ("JB", 0), ("B0", 0), ("F0", 1), ("J", 1), ("JB", 1), ("B0", 1)]]
    orders += [[("F1", 0), ("J", 0), ("JB", 0), ("F1", 1), ("B1", 0), ("J", 1), ("JB", 1), ("B1", 1)]]
    pairs = {"JB": "J", "B0": "F0", "B1": "F1"}
    versions = find_versions(placement, orders, 2, Updates(WeightMode.VERTICAL_SYNC), pairs)
    assert {versions.reads[name, 1] for name in ("F0", "F1", "J", "JB", "B0", "B1")} == {0}
    check_versions(placement, orders, versions)
    stashed = find_versions(placement, orders, 2, Updates(WeightMode.WEIGHT_STASHING), pairs)
    assert [stashed.reads[name, 1] for name in ("F0", "F1", "J")] == [1, 0, 1]


def test_what_cannot_be_is_refused_in_one_line() -> None:
    backward_turned = Schedule(
        v_shape(1, 1, 1),
        2,
        ((0, 0, "F0"), (1, 1, "F0"), (2, 1, "B0"), (3, 0, "B0")),  # type: ignore[arg-type]
    )
    wrong = [
        (backward_turned, "weight_stashing", 1, "in the order of the micro-batches"),
        (one_f_one_b(v_shape(2), 5), "weight_stashing", 2, "2 is not a divisor of the 5 inputs of F0"),
        (one_f_one_b(v_shape(2), 5), "weight_stashing", 0, "0 is not a divisor"),
    ]
    for schedule, mode, per_update, reason in wrong:
        with raises_line(WeightVersionError, match=reason):
            versions_of(schedule, mode, per_update)
