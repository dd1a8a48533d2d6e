"""Any placement runs with the synthetic model: its blocks in any order are the model in one piece."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import in_groups, placements

from placements import Kind, Placement
from runtime.models import ModelOptions
from runtime.program.data_parallel import in_shares
from runtime.program.tensor_flow import UnrunnablePlacementError, computes_loss, forward_inputs, pair_backward
from runtime.verify.reference import ReferenceCase, TrainingStep, plain
from runtime.verify.replay import replay
from schedsearch.baselines import gpipe

OPTIONS = ModelOptions("synthetic", hidden_size=4, sequence_length=3, micro_batch_size=12, seed=3)
"""Of as many samples as groups of up to four devices can share equally."""


def runnable(placement: Placement) -> bool:
    try:
        pair_backward(placement)
    except UnrunnablePlacementError:
        return False
    return True


def with_split_backward(placement: Placement) -> Placement:
    """Return the placement with an input half, of the same name, and a weight half of each backward."""
    blocks = []
    for block in placement.blocks:
        if block.kind is Kind.B:
            half = replace(block, kind=Kind.I, memory=0)
            name = block.name.replace("B", "W")
            blocks += [half, replace(block, name=name, kind=Kind.W, after=(block.name,))]
        else:
            blocks.append(block)
    return replace(placement, blocks=tuple(blocks), transfer=())


def largest_error(whole: TrainingStep, cut: TrainingStep) -> float:
    """Return the largest error of a gradient, relative to the largest value of that gradient."""
    full = {shard.name: gradient for shard, gradient in whole.gradients.items()}
    errors = []
    for shard, gradient in cut.gradients.items():
        scale = float(full[shard.name].abs().max())
        errors.append(float((gradient - shard.of(full[shard.name])).abs().max()) / (scale or 1))
    return max(errors, default=0.0)  # no gradient where nothing has a backward


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(st.data())
def test_any_order_of_any_placement_is_the_model_in_one_piece(data: st.DataObject) -> None:
    placement = data.draw(placements(max_devices=4).filter(runnable))
    if data.draw(st.booleans()):
        placement = with_split_backward(placement)
    placement = in_groups(data.draw, placement)
    schedule = gpipe(placement, 2)
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    case = ReferenceCase(OPTIONS, placement, 2, 1)
    (whole,), (cut,) = plain(case), replay(case, orders)
    assert cut.losses == pytest.approx(whole.losses, rel=1e-12)
    assert largest_error(whole, cut) <= 1e-12
    if all(len(block.devices) == 1 for block in placement.blocks) and linear(placement):
        assert all(torch.equal(cut.gradients[shard], whole.gradients[shard]) for shard in cut.gradients)


def linear(placement: Placement) -> bool:
    """Tell whether every block hands its output to one other at most, so that no gradients are summed."""
    fed = [
        name
        for block in placement.blocks
        if block.kind is Kind.F
        for name in forward_inputs(placement, block.name)
    ]
    return len(set(fed)) == len(fed)


def test_the_strategy_makes_what_is_hard() -> None:
    """Several sources, several sinks, skip edges and blocks on several devices, in groups, all occur."""
    seen = {"sources": 1, "sinks": 1, "inputs": 1, "outputs": 1, "devices": 1, "groups of shards": 1}
    seen |= {"shares handed on": 1, "shares exchanged": 1}

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def look(data: st.DataObject) -> None:
        placement = in_groups(data.draw, data.draw(placements(max_devices=4, training=True).filter(runnable)))
        by_name = placement.by_name
        forward = [block for block in placement.blocks if block.kind is Kind.F]
        fed = [name for block in forward for name in forward_inputs(placement, block.name)]
        edges = [
            (by_name[name], block) for block in forward for name in forward_inputs(placement, block.name)
        ]
        counts = {
            "sources": sum(not forward_inputs(placement, block.name) for block in forward),
            "sinks": sum(computes_loss(placement, block.name) for block in forward),
            "inputs": max(len(forward_inputs(placement, block.name)) for block in forward),
            "outputs": max((fed.count(name) for name in fed), default=0),
            "devices": max(len(block.devices) for block in forward),
            "groups of shards": max(min(block.data_parallel, len(block.groups[0])) for block in forward),
            "shares handed on": 1 + any(a.data_parallel > 1 and in_shares(a, b) for a, b in edges),
            "shares exchanged": 1 + any(not in_shares(a, b) for a, b in edges),
        }
        for what, count in counts.items():
            seen[what] = max(seen[what], count)

    look()
    assert min(seen.values()) > 1, seen
