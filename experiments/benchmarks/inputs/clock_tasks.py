"""Schedules whose clocks are to be chosen, with measured and made-up profiles of their blocks.

The measured profiles are those of GPT-3 175B that Perseus's authors publish, 8 stages in 1F1B, at a tenth of
the real times, and BERT of lowtime's own example, which has noise and clocks of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.benchmarks.frame import SHARED_DATA
from experiments.benchmarks.inputs.made_placements import made_placement
from placements import Kind, OperatingPoint, Placement, Profile
from placements.gpus import GPUS
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus
from schedsearch.energy import ClockProblem, Frontier, compute_frontier
from schedsearch.schedule import Schedule

_PERSEUS = SHARED_DATA / "perseus"

_PROFILES = {"A100": "gpt3-175b+a100_sxm_bf16", "A40": "gpt3-175b+a40_bf16"}
"""Profiles of the artifact, by GPU; it has the blocking power of `placements.gpus` too."""


@dataclass(frozen=True)
class ClockTask:
    """A valid schedule whose clocks are to be chosen, and the profile of its blocks."""

    schedule: Schedule
    profile: Profile

    @cached_property
    def problem(self) -> ClockProblem:
        """Graph and cost curves."""
        return ClockProblem(self.schedule, self.profile)

    def frontier(self, deadlines_ms: Sequence[float] = (), num_plans: int = 400, **options: Any) -> Frontier:
        """Return our frontier, with plans for some deadlines besides."""
        return compute_frontier(self.schedule, self.profile, num_plans, deadlines_ms, **options)


def clock_task(micro_batches: int, gpu: str = "", bert: bool = False, **made: Any) -> ClockTask:
    """Return 1F1B of GPT-3 on a GPU, of BERT, or of a made-up model."""
    if not gpu and not bert:
        return made_up(micro_batches=micro_batches, **made)
    name = "bert_pp4_lowtime_example" if bert else f"stage_profile/{_PROFILES[gpu]}"
    power_w = GPUS["a40" if bert else gpu.lower()].blocking_power_w
    profile = Profile.from_csv(_PERSEUS / f"{name}.csv", device=gpu, blocking_power_w=power_w)
    return ClockTask(one_f_one_b(profile.times_for(v_shape(4 if bert else 8)), micro_batches), profile)


def made_up(*, micro_batches: int, clocks: int, seed: int, noise: float, **made: Any) -> ClockTask:
    """Return 1F1B, or 1F1B+ where devices share blocks, on a made-up profile; see `made_placement`."""
    placement = made_placement(**made)
    is_shared = any(len(block.devices) > 1 for block in placement.blocks)
    schedule = (one_f_one_b_plus if is_shared else one_f_one_b)(placement, micro_batches)
    return ClockTask(schedule, synthetic_profile(placement, clocks, seed, noise))


def synthetic_profile(placement: Placement, num_clocks: int, seed: int, noise: float) -> Profile:
    """Return a profile as measured ones are: part of the time goes with 1/clock, and power rises steeply.

    Args:
        placement: Whose blocks are given costs; backwards take longer.
        num_clocks: Evenly spaced from 600 to 1410 MHz.
        seed: Seed of the generator.
        noise: Standard deviation of each time and power, as a share of it.
    """
    random = np.random.default_rng(seed)
    clock_mhz = np.linspace(600, 1410, num_clocks).astype(np.int64)
    relative = clock_mhz / clock_mhz[-1]
    points = {}
    for block in placement.blocks:
        at_maximum_ms = random.uniform(48, 54) * (1.9 if block.kind is Kind.B else 1.0)
        time_ms = at_maximum_ms * (0.35 + 0.65 / relative) * random.normal(1, noise, num_clocks)
        power_w = (90 + 210 * relative**2.6) * random.normal(1, noise, num_clocks)
        costs = zip(clock_mhz.tolist(), time_ms.tolist(), (time_ms * power_w).tolist(), strict=True)
        points[block.name] = tuple(OperatingPoint(*cost) for cost in costs)
    return Profile(f"synthetic {seed}", points, 60.0)
