"""Devices that are threads: who waits for whom, what each returns, and the two collectives under autograd."""

from functools import partial

import pytest
import torch

from runtime.transport.in_memory import Network
from runtime.transport.shards import WHOLE, copy_to_shards, sum_over_shards
from runtime.transport.turns import DeadlockError, StoppedError

TEAM = (0, 1, 2)


def test_turns_go_round() -> None:
    network, said = Network(3), []

    def part(device: int) -> int:
        for step in range(2):
            said.append((step, device))
            assert network.exchange(TEAM, device, (step, device)) == [(step, other) for other in TEAM]
        return 10 * device

    assert network.run([partial(part, device) for device in TEAM]) == [0, 10, 20]
    assert said == [(0, 0), (0, 1), (0, 2), (1, 2), (1, 0), (1, 1)], "the last that comes goes on first"
    assert network.run([lambda: 1] * 3) == [1, 1, 1]


def test_the_error_of_the_first_device_that_fails_is_raised() -> None:
    network, errors = Network(3), []

    def part(device: int) -> None:
        if device == 1:
            raise KeyError("boom")
        try:
            network.exchange(TEAM, device, None)
        except StoppedError as error:
            errors.append(error)
            raise

    with pytest.raises(KeyError, match="boom"):
        network.run([partial(part, device) for device in TEAM])
    assert len(errors) == 2


def test_a_device_that_ends_too_early_leaves_the_others_in_a_deadlock() -> None:
    network = Network(2)
    with pytest.raises(DeadlockError, match="wait for each other"):
        network.run([list, partial(network.exchange, (0, 1), 1, None)])


def test_tensors_of_different_forms_are_not_gathered() -> None:
    network = Network(2)
    values = [torch.zeros(2), torch.zeros(3)]
    with pytest.raises(RuntimeError, match="gather tensors of different forms"):
        network.run([partial(network.gather, (0, 1), device, values[device]) for device in range(2)])


def test_a_layer_cut_by_columns_and_rows_is_the_whole_layer() -> None:
    """The gradients of what is cut are those of its part, and of what is copied those of the whole."""
    network, generator = Network(3), torch.Generator().manual_seed(0)
    hidden, up, down = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, 5), (5, 7), (7, 5))
    )

    def layer(device: int | None) -> list[torch.Tensor]:
        shards = WHOLE if device is None else network.teams([(TEAM, "compute")], device)[TEAM, "compute"]
        leaves = [hidden, shards.of(up, 1), shards.of(down, 0)]
        leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        middle = (copy_to_shards(leaves[0], shards) @ leaves[1]).tanh()
        total = sum_over_shards(middle @ leaves[2], shards)
        return [total, *torch.autograd.grad((total**2).sum(), leaves)]

    whole = layer(None)
    cut = network.run([partial(layer, device) for device in TEAM])
    for found in cut:
        for own, expected in zip(found[:2], whole[:2], strict=True):
            torch.testing.assert_close(own, expected)
    for place, dim in ((2, 1), (3, 0)):
        torch.testing.assert_close(torch.cat([found[place] for found in cut], dim), whole[place])
