from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from places import SHARED_DATA

from placements import Profile, ProfileError
from placements.gpus import A40, A100_SXM_80GB, GPUS
from placements.hardware import Gpu, modelled_profile
from placements.shapes import v_shape

STAGE_PROFILES = SHARED_DATA / "perseus" / "stage_profile"


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_slower_clocks_take_longer_at_less_power(gpu: Gpu) -> None:
    points = gpu.operating_points(10.0)
    assert [point.clock_mhz for point in points] == sorted(set(gpu.clocks_mhz))
    assert points[-1].time_ms == pytest.approx(10.0)
    for slow, fast in pairwise(points):
        assert slow.time_ms >= fast.time_ms
        assert slow.energy_mj / slow.time_ms <= fast.energy_mj / fast.time_ms + 1e-9
    assert min(point.energy_mj / point.time_ms for point in points) > gpu.blocking_power_w


def test_clock_ranges() -> None:
    clocks = GPUS["a100"].clocks_mhz
    assert (clocks[0], clocks[-1], len(clocks)) == (210, 1410, 81)
    assert GPUS["v100"].clocks_mhz[-3:] == (1515, 1522, 1530)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_products_of_smaller_numbers_are_faster(gpu: Gpu) -> None:
    peaks = (gpu.peak_fp32_tflops, gpu.peak_tf32_tflops, gpu.peak_tflops, gpu.peak_fp8_tflops)
    known = [peak for peak in (*peaks, gpu.peak_fp4_tflops) if peak is not None]
    assert known == sorted(known)
    assert len({gpu.name for gpu in GPUS.values()}) == len(GPUS)


def test_only_the_share_that_depends_on_the_clock_slows_down() -> None:
    assert {point.time_ms for point in A100_SXM_80GB.operating_points(3.0, compute_share=0.0)} == {3.0}
    slowest = A100_SXM_80GB.operating_points(3.0, compute_share=1.0)[0]
    assert slowest.time_ms == pytest.approx(3.0 * A100_SXM_80GB.power.sustained_clock_mhz / 210)


def test_a_modelled_profile_keeps_the_placements_times() -> None:
    placement = replace(v_shape(2), tick_ms=0.5)
    profile = modelled_profile(placement, A40, {"F0": 0.0})
    profile.require(placement)
    assert profile.blocking_power_w == 70.38
    for block in placement.blocks:
        assert profile.fastest(block.name).time_ms == pytest.approx(0.5 * block.time)
    assert profile.points["F0"][0].time_ms == pytest.approx(0.5)
    assert profile.points["F1"][0].time_ms > 0.6


def test_says_what_is_wrong() -> None:
    with pytest.raises(ProfileError, match="compute_share: 1.5 is not between 0 and 1"):
        modelled_profile(v_shape(2), A40, 1.5)
    with pytest.raises(ProfileError, match="compute_share: v_shape has no block 'X'"):
        modelled_profile(v_shape(2), A40, {"X": 0.5})
    with pytest.raises(ProfileError, match="time_ms: 0 is not a time above 0"):
        A40.operating_points(0)


@pytest.mark.parametrize(
    ("gpu", "name", "most"),
    [(A100_SXM_80GB, "a100_sxm_bf16", 0.015), (A40, "a40_bf16", 0.045)],
    ids=["a100", "a40"],
)
def test_the_model_is_as_close_to_the_measurement_as_it_says(gpu: Gpu, name: str, most: float) -> None:
    path = STAGE_PROFILES / f"gpt3-175b+{name}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    errors = []
    for points in Profile.from_csv(path, blocking_power_w=gpu.blocking_power_w).points.values():
        model = {point.clock_mhz: point for point in gpu.operating_points(points[-1].time_ms)}
        errors += [model[point.clock_mhz].energy_mj / point.energy_mj - 1 for point in points]
    assert np.sqrt(np.mean(np.square(errors))) < most
