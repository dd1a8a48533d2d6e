"""The power of devices that are GPUs of several kinds, against each GPU's own model counted one by one."""

from __future__ import annotations

import pytest

from placements.gpus import A100_SXM_80GB, V100_SXM_32GB
from placements.hardware import Gpu, modelled_profile
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import compute_frontier
from schedsearch.metrics import bubble_rate
from schedsearch.planning.power import mixed_profile


def test_one_kind_is_modelled_as_before() -> None:
    placement = v_shape(2)
    assert mixed_profile(placement, [{A100_SXM_80GB: 4}, {A100_SXM_80GB: 4}]) == modelled_profile(
        placement, A100_SXM_80GB
    )


@pytest.mark.parametrize("gpus", [(A100_SXM_80GB, V100_SXM_32GB), (V100_SXM_32GB, A100_SXM_80GB)])
def test_each_device_computes_and_waits_by_its_own_model(gpus: tuple[Gpu, Gpu]) -> None:
    placement = v_shape(2)
    schedule = one_f_one_b(placement, 4)
    profile = mixed_profile(placement, [{gpus[0]: 1}, {gpus[1]: 1}])
    span_ms = placement.ms(schedule.makespan)
    wanted_mj = 0.0
    for device, gpu in enumerate(gpus):
        blocks = [placement.by_name[name] for name, _ in schedule.order(device)]
        busy_ms = sum(placement.ms(block.time) for block in blocks)
        wanted_mj += sum(gpu.operating_points(placement.ms(block.time))[-1].energy_mj for block in blocks)
        wanted_mj += (span_ms - busy_ms) * gpu.blocking_power_w
    frontier = compute_frontier(schedule, profile, num_plans=2)
    assert frontier.all_maximum.energy_mj == pytest.approx(wanted_mj)
    assert bubble_rate(schedule) > 0


def test_a_block_on_both_kinds_has_their_mean_energy() -> None:
    placement = m_shape(2)
    profile = mixed_profile(placement, [{A100_SXM_80GB: 1}, {V100_SXM_32GB: 3}])
    name = next(block.name for block in placement.blocks if len(block.devices) == 2)
    time_ms = placement.ms(placement.by_name[name].time)
    fast, slow = (gpu.operating_points(time_ms)[-1] for gpu in (A100_SXM_80GB, V100_SXM_32GB))
    assert [point.clock_mhz for point in profile.points[name]] == sorted(set(V100_SXM_32GB.clocks_mhz))
    # The A100 needs no more than its highest clock, which is above its sustained one.
    assert profile.fastest(name).energy_mj <= (fast.energy_mj + 3 * slow.energy_mj) / 4
    assert profile.fastest(name).energy_mj >= (0.9 * fast.energy_mj + 3 * slow.energy_mj) / 4
