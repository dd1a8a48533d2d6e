"""Micro-batches by turns: the published values of zero bubble's automatic schedules, and the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import with_transfer

from placements import Placement
from placements.shapes import v_shape
from schedsearch.baselines import zb_h1
from schedsearch.device_span import device_spans
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.searches.search import search
from schedsearch.starts.turns import in_turns
from schedsearch.validate import validate


def measured(num_devices: int, times: tuple[int, int, int], transfer: int, rounds: int) -> Placement:
    """Return a V-shape with times in us and memory for `rounds` x devices activations of GPT-6.2B."""
    forward, back, weight = times
    placement = v_shape(
        num_devices,
        forward,
        split_backward=True,
        input_time=back,
        weight_time=weight,
        stage_memory=37,
        input_release=21,
    )
    return with_transfer(placement, transfer).with_memory(37 * num_devices * rounds)


@pytest.mark.parametrize(
    ("num_devices", "number", "times", "transfer", "rounds", "published"),
    [
        (8, 24, (29718, 29444, 19927), 527, 1, 0.1323),
        (8, 24, (29718, 29444, 19927), 527, 2, 0.0029),
        (8, 64, (29935, 29621, 19388), 535, 2, 0.0010),
        (16, 48, (11347, 11248, 8132), 377, 2, 0.0066),
    ],
)
def test_the_best_is_as_published(
    num_devices: int, number: int, times: tuple[int, int, int], transfer: int, rounds: int, published: float
) -> None:
    """ZB-1p and ZB-2p, rows of GPT-6.2B and GPT-14.6B (zero-bubble-pipeline-parallelism, efficiency.py)."""
    placement = measured(num_devices, times, transfer, rounds)
    made = [validate(schedule) for schedule in in_turns(placement, number)]
    assert len(made) == 2
    least = min(int(device_spans(schedule).max()) for schedule in made)
    assert round(1 - number * sum(times) / least, 4) == published


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 7), st.integers(0, 6))
def test_every_choice_keeps_the_rules(data: st.DataObject, devices: int, number: int, spare: int) -> None:
    """Stages of any times, under the memory that one micro-batch needs and some spare."""
    placement = v_shape(devices, split_backward=True, stage_memory=3, input_release=1)
    times = data.draw(st.lists(st.integers(1, 5), min_size=3 * devices, max_size=3 * devices))
    blocks = [replace(b, time=time) for b, time in zip(placement.blocks, times, strict=True)]
    transfer = [(name, b.name, 2) for b in blocks for name in b.after]
    placement = replace(placement, blocks=tuple(blocks), transfer=tuple(transfer)).with_memory(
        [minimum_memory(placement, device) + spare for device in range(devices)]
    )
    for schedule in in_turns(placement, number):
        validate(schedule)


def test_a_search_is_never_worse() -> None:
    """Of the device span with twice 1F1B's memory; of the memory of 1F1B ZB-H1 is the least."""
    placement = measured(16, (11347, 11248, 8132), 377, 2)
    answer = search(placement, 48, objectives=["device_span"], work_limit=2.5)
    assert answer.schedule is not None
    least = min(int(device_spans(schedule).max()) for schedule in in_turns(placement, 48))
    assert device_spans(answer.schedule).max() <= least
    tight = measured(16, (11347, 11248, 8132), 377, 1)
    answer = search(tight, 48, objectives=["device_span"], work_limit=5)
    assert answer.schedule is not None
    assert answer.device_span_bound == device_spans(answer.schedule).max() == zb_h1(tight, 48).makespan
