"""PipeDream without a flush, with and without replicas: known figures, versions, the steady state."""

from __future__ import annotations

import pytest
from told import told

from placements import PlacementError
from placements.planners.replicated import replicated_stages
from placements.shapes import v_shape, x_shape
from schedsearch.baselines import (
    UnsuitablePlacementError,
    num_admitted,
    one_f_one_b,
    pipedream,
    pipedream_repetend,
)
from schedsearch.metrics import peak_memory, steady_period
from schedsearch.validate import validate

BALANCED = [(1, 1, 1, 1), (2, 1), (15, 1), (3, 2), (2, 1, 1), (12, 3, 1), (4,)]
"""Replicas of each stage, whose work is in proportion."""


@pytest.mark.parametrize(("times", "period"), [((1, 2), 3), ((3, 7), 10)])
@pytest.mark.parametrize("devices", [1, 4])
def test_without_replicas_it_is_1f1b_and_its_steady_state_has_no_bubble(
    devices: int, times: tuple[int, int], period: int
) -> None:
    placement = v_shape(devices, *times)
    assert pipedream(placement, 9) == one_f_one_b(placement, 9)
    found = pipedream_repetend(placement)
    assert (found.period, found.bubble_rate) == (period, 0)
    assert found.peak_memory == tuple(range(devices, 0, -1))
    assert num_admitted(placement) == devices
    assert validate(found.unroll(20)).makespan == (20 + devices - 1) * period


@pytest.mark.parametrize("replicas", BALANCED)
def test_a_balanced_pipeline_never_idles_in_its_steady_state(replicas: tuple[int, ...]) -> None:
    placement = replicated_stages(replicas, replicas, [2 * each for each in replicas])
    found = pipedream_repetend(placement)
    inputs = len(placement.blocks) // (2 * len(replicas))
    assert found.bubble_rate == 0
    assert found.period == 3 * inputs
    assert steady_period(validate(pipedream(placement, 12))) == found.period
    workers = sum(replicas)
    assert num_admitted(placement) == -(-workers // replicas[0])
    assert found.peak_memory[0] == num_admitted(placement)


def test_the_example_of_the_dissertation() -> None:
    """Fig. 2.7: the first stage twice as long, on two workers that take odd and even inputs."""
    placement = replicated_stages((2, 1), (2, 1), (4, 2))
    schedule = validate(pipedream(placement, 4))
    assert num_admitted(placement) == 2
    assert schedule.order(0)[:4] == (("F0_0", 0), ("F0_0", 1), ("B0_0", 0), ("F0_0", 2))
    assert schedule.order(2)[:4] == (("F1_0", 0), ("B1_0", 0), ("F1_1", 0), ("B1_1", 0))
    assert peak_memory(schedule).tolist() == [2, 2, 1]


def test_other_placements_are_refused() -> None:
    with pytest.raises(UnsuitablePlacementError, match="PipeDream needs a V-shape"):
        pipedream(x_shape(4), 8)
    for replicas, times in [((), ()), ((1, 0), (1, 1)), ((1, 1), (1,))]:
        with told(PlacementError, match="^replicas: "):
            replicated_stages(replicas, times, times)
