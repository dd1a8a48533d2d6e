"""2BW's planner by hand and against all configurations."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.planners.pipedream.two_bw import BlockProfile, EqualServers, TwoBwPlan, two_bw_plans

MIB = 2**20
PROFILE = BlockProfile(8, {1: 3.0, 2: 4.0}, {1: 6.0, 2: 8.0}, 16.0 * MIB, 4.0 * MIB, 1.0 * MIB)
CLUSTER = EqualServers(8, 4, 100.0, 1.0, 200.0)


def plan_of(profile: BlockProfile, cluster: EqualServers, batch_size: int, *key: object) -> TwoBwPlan:
    plans = two_bw_plans(profile, cluster, batch_size)
    matches = [p for p in plans if key == (p.data_parallel, p.num_stages, p.micro_batch_size, p.recompute)]
    assert len(matches) == 1
    return matches[0]


def test_a_configuration_by_hand() -> None:
    """Two pipelines of four stages with two blocks each, on two servers."""
    plan = plan_of(PROFILE, CLUSTER, 64, 2, 4, 2, False)
    handed_ms = 2 * (2 * 2 * MIB) / 1e6
    assert plan.time_ms == pytest.approx(2 * 12.0 + handed_ms)
    assert plan.memory_mib == 2 * 128 / 4 + 4 * (2 * 32 / 4) + 4 * 2
    assert plan.accumulation == 4
    assert plan.batch_size == 64
    assert plan.samples_per_s == pytest.approx(2 * 2 / plan.time_ms * 1e3)
    assert CLUSTER.in_pipeline_ms(1e8, 2, 2) == 1.0, "both pipelines of two stages are in a server"
    recomputed = plan_of(PROFILE, CLUSTER, 64, 2, 4, 2, True)
    assert recomputed.time_ms == pytest.approx(2 * 12.0 * 4 / 3 + handed_ms)
    assert recomputed.memory_mib == 2 * 128 / 4 + 2 * 32 / 4 + 4 * 2


def test_what_does_not_fit_says_why_and_comes_last() -> None:
    plans = two_bw_plans(PROFILE, CLUSTER, 8)
    usable = [not plan.reason for plan in plans]
    assert usable == sorted(usable, reverse=True)
    assert usable[0]
    assert plan_of(PROFILE, CLUSTER, 8, 1, 2, 2, False).reason == ""
    reason = plan_of(PROFILE, CLUSTER, 8, 2, 4, 2, False).reason
    assert reason == "a batch has at least 16 samples, but batch_size is 8"
    small = replace(CLUSTER, memory_mib=137.0)
    assert plan_of(PROFILE, small, 8, 1, 2, 2, False).reason == "needs 196 MiB of 137"
    assert plan_of(PROFILE, small, 8, 1, 4, 2, False).reason == ""
    assert {p.num_stages for p in plans} == {1, 2, 4, 8}, "stages have equal numbers of blocks"


PROFILES = st.builds(
    lambda blocks, times, figures: BlockProfile(
        blocks,
        {size: forward for size, (forward, _) in times.items()},
        {size: backward for size, (_, backward) in times.items()},
        *(MIB * figure for figure in figures),
    ),
    st.sampled_from([1, 4, 6, 12]),
    st.dictionaries(
        st.sampled_from([1, 2, 4, 8]), st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1
    ),
    st.tuples(*[st.integers(0, 50)] * 3),
)
CLUSTERS = st.builds(
    EqualServers,
    st.integers(1, 8),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([10.0, 100.0]),
    st.sampled_from([0.1, 1.0]),
    st.sampled_from([50.0, 300.0, 2000.0]),
)


@given(PROFILES, CLUSTERS, st.integers(1, 64))
def test_the_first_plan_is_the_best_of_all(
    profile: BlockProfile, cluster: EqualServers, batch_size: int
) -> None:
    """The closed forms once more, each written as in the dissertation."""
    best = 0.0
    degrees = range(1, cluster.num_gpus + 1)
    for d, p, b, r in itertools.product(degrees, degrees, profile.forward_ms, (False, True)):
        if d * p > cluster.num_gpus or profile.num_blocks % p or d * p * b > batch_size:
            continue
        weights = profile.num_blocks * profile.parameter_bytes
        total, stage_input = profile.num_blocks * b * profile.activation_bytes, b * profile.input_bytes
        versions = 1 if p == 1 else 2
        memory = versions * weights / p + (total / p if r else p * total / p) + p * stage_input
        if memory > cluster.memory_mib * MIB:
            continue
        high, low = cluster.in_server_gb_per_s * 1e6, cluster.between_servers_gb_per_s * 1e6
        compute = profile.num_blocks / p * (profile.forward_ms[b] + profile.backward_ms[b])
        inside = (
            2 * (stage_input + stage_input) * (p > 1) / (high if d * p <= cluster.gpus_per_server else low)
        )
        across = 2 * (d - 1) / d * weights / p / (high if d < cluster.gpus_per_server else low)
        m = batch_size / (d * b)
        t = max((4 / 3 if r else 1) * compute + inside, across / m)
        best = max(best, d * b / t)
    plans = two_bw_plans(profile, cluster, batch_size)
    usable = [plan for plan in plans if not plan.reason]
    assert bool(usable) == (best > 0)
    if usable:
        assert usable[0].samples_per_s == pytest.approx(1e3 * best)
        assert all(plan.batch_size <= batch_size for plan in usable)
        assert [-p.samples_per_s for p in usable] == sorted(-p.samples_per_s for p in usable)
