"""What autograd saved of a block, on the host and back: each piece of memory once, and the same bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from runtime.models.offloading import Offloaded, OffloadError


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_memory_that_tensors_share_is_copied_once() -> None:
    weight, value = random(4, 12), random(3, 4)

    def forward() -> Tensor:
        one, two, three = (value @ weight).chunk(3, dim=1)
        return (one * two * three).sum()

    (kept,) = torch.autograd.grad(forward(), value)
    saved = Offloaded([weight, value])
    with saved.saving():
        result = forward()
    assert saved.host_bytes == (3 * 12 + 3 * 4) * 8, "the chunks are parts of one product"
    saved.bring_back()
    assert saved.host_bytes == 0
    assert torch.equal(torch.autograd.grad(result, value)[0], kept)


def test_inputs_and_weights_stay_where_they_are() -> None:
    weight, value = random(4, 4), random(3, 4)
    saved = Offloaded([weight, value])
    with saved.saving():
        result = value @ weight
    assert saved.host_bytes == 0
    saved.bring_back()
    result.sum().backward()
    assert value.grad is not None and torch.equal(value.grad, torch.ones(3, 4).double() @ weight.detach().T)


def test_gradients_have_the_same_bits() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 6)).double()
    value = random(5, 6)
    kept = torch.autograd.grad(block(value).square().sum(), [value, *block.parameters()])
    saved = Offloaded([value, *block.parameters()])
    with saved.saving():
        result = block(value).square().sum()
    assert saved.host_bytes > 3 * 5 * 24 * 8
    saved.bring_back()
    away = torch.autograd.grad(result, [value, *block.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(kept, away, strict=True))


def test_what_is_changed_after_it_was_saved_is_noticed() -> None:
    """Autograd itself would notice it in the backward, but not where a copy stands for the tensor."""
    value = random(3)
    saved = Offloaded([value])
    message = r"a tensor of shape \(3,\) was changed in place after it had been saved for the backward; comp"
    with pytest.raises(OffloadError, match=message), saved.saving():
        made = value.exp()
        made.mul_(2)


def test_conjugates_and_sparse_tensors_stay() -> None:
    value = torch.randn(3, 3, dtype=torch.complex128, requires_grad=True)
    sparse = torch.eye(3, dtype=torch.complex128).to_sparse()

    def forward() -> Tensor:
        return (torch.sparse.mm(sparse, value.exp()) @ value.conj().exp().mH).abs().sum()

    (kept,) = torch.autograd.grad(forward(), value)
    saved = Offloaded([value])
    with saved.saving():
        result = forward()
    saved.bring_back()
    (away,) = torch.autograd.grad(result, value)
    assert torch.equal(kept, away)
