"""The two halves of a backward: the bits of one backward, no step run twice, and little memory in between."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from runtime.models.split_backward import SplitBackward

WIDTH = 6


class Operators(TorchDispatchMode):
    """Counts the operators that are run."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


class Product(torch.autograd.Function):
    """A product that computes both gradients at once, and counts how often it does."""

    backwards = 0

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(value, weight)
        return value @ weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        Product.backwards += 1
        value, weight = ctx.saved_tensors
        return gradient @ weight.T, value.flatten(0, -2).T @ gradient.flatten(0, -2)


class Doubled(torch.autograd.Function):
    """Twice a tensor; of one argument, as the collectives of shards are."""

    backwards = 0

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return 2 * value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Doubled.backwards += 1
        return 2 * gradient


class Siamese(nn.Module):
    """Two inputs through the same layer, beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.last(torch.cat([self.layer(left), self.layer(right)], -1)).square().mean()


class Custom(nn.Module):
    """Custom functions on the way to the input, on the way to a weight, and where both part."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.rand(WIDTH, WIDTH)) for _ in range(2))
        self.bias = nn.Parameter(torch.rand(WIDTH))

    def forward(self, value: Tensor) -> Tensor:
        value = Doubled.apply(value) @ Doubled.apply(self.first) + self.bias
        return Doubled.apply(Product.apply(torch.relu(value), Doubled.apply(self.second) + 1))


class WithHooks(nn.Module):
    """Scales gradients on the way, as some losses do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, value: Tensor) -> Tensor:
        for layer in self.layers:
            value = torch.tanh(layer(value)) * 1.5
            value.register_hook(lambda gradient: gradient * 0.3)
        inner = self.layers[1](value)
        inner.register_hook(lambda gradient: gradient + 1)
        return inner.sum(0)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.2, batch_first=True)

    def forward(self, value: Tensor) -> Tensor:
        return self.layer(value)  # type: ignore[no-any-return]


class MixedUse(nn.Module):
    """A weight in several ways: cut, transposed, as a bias, and joined with another that is used apart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.rand(WIDTH, WIDTH)), nn.Parameter(torch.rand(WIDTH))
        self.frozen = nn.Parameter(torch.rand(WIDTH, WIDTH), requires_grad=False)

    def forward(self, value: Tensor) -> Tensor:
        weight = functional.normalize(self.weight, dim=1) * self.other
        left, right = (value @ self.frozen @ weight).chunk(2, -1)
        return torch.cat([right, left], -1) @ self.weight.T + self.other + weight[0]


class Alone(nn.Module):
    """No input: a table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, WIDTH)

    def forward(self) -> Tensor:
        return Doubled.apply(self.table(torch.tensor([0, 3, 3, 1])))  # type: ignore[no-any-return]


MODULES = [Siamese, Custom, WithHooks, Transformer, MixedUse, Alone]


def in_one_go(output: Tensor, gradient: Tensor, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    torch.autograd.backward(output, gradient)
    return [value.grad for value in inputs]


def differentiated(
    module: nn.Module, num_inputs: int, split: SplitBackward | None, num_micro_batches: int
) -> tuple[list[Tensor | None], Counter[str]]:
    """Return gradients of all inputs and weights, and the operators of the backwards."""
    gradients: list[Tensor | None] = []
    operators = Operators()
    for micro_batch in range(num_micro_batches):
        torch.manual_seed(micro_batch)
        inputs = [torch.rand(3, 4, WIDTH, dtype=torch.float64).requires_grad_() for _ in range(num_inputs)]
        output = module(*inputs)
        gradient = torch.rand_like(output)
        with operators:
            if split is None:
                gradients += in_one_go(output, gradient, inputs)
                continue
            first, rest = split.input_half(output, gradient, inputs)
            del output
            rest.run()
            gradients += first
    return gradients + [weight.grad for weight in module.parameters()], operators.counts


@pytest.mark.parametrize("build", MODULES)
def test_two_halves_have_the_bits_of_one_backward_and_run_no_step_twice(
    build: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    num_inputs = {Siamese: 2, Alone: 0}.get(build, 1)
    module = build().double()
    expected, operators = differentiated(copy.deepcopy(module), num_inputs, None, 3)
    once = Product.backwards, Doubled.backwards
    gradients, ours = differentiated(module, num_inputs, SplitBackward(), 3)
    assert (Product.backwards, Doubled.backwards) == (2 * once[0], 2 * once[1]) or once == (0, 0)
    Product.backwards = Doubled.backwards = 0
    assert len(gradients) == len(expected)
    for value, other in zip(gradients, expected, strict=True):
        assert (value is None) == (other is None)
        assert value is None or torch.equal(value, other)
    for name in ("mm", "bmm", "addmm", "_softmax_backward_data", "tanh_backward"):
        assert ours[name] == operators[name], name


class SometimesMore(nn.Module):
    """A second branch in some calls only: none, then one, then one that is cut off from its input."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.branch = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, value: Tensor) -> Tensor:
        self.calls += 1
        more = torch.zeros_like(value)
        if self.calls % 4 != 1:
            more = self.branch(value.detach() if self.calls % 4 == 3 else value)
        return self.always(value).tanh() + more


def test_a_graph_of_another_form_is_looked_through_anew() -> None:
    torch.manual_seed(0)
    module = SometimesMore().double()
    expected, _ = differentiated(copy.deepcopy(module), 1, None, 9)
    gradients, _ = differentiated(module, 1, SplitBackward(), 9)
    for value, other in zip(gradients, expected, strict=True):
        assert (value is None) == (other is None)
        assert value is None or torch.equal(value, other)


def test_the_first_half_computes_no_gradient_of_weights() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    value = torch.rand(4, WIDTH, requires_grad=True)
    output = module(value)
    operators = Operators()
    with operators:
        _, rest = SplitBackward().input_half(output, torch.ones_like(output), [value])
    assert operators.counts["mm"] == 2
    assert all(weight.grad is None for weight in module.parameters())
    with operators:
        rest.run()
    assert operators.counts["mm"] == 4


def test_between_the_halves_only_what_the_second_needs_is_kept() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softmax(-1), Sine(), nn.Linear(WIDTH, WIDTH))
    value = torch.rand(500, WIDTH, requires_grad=True)
    output = module(value)
    steps: dict[str, Any] = {type(node).__name__: node for node in _below(output.grad_fn)}
    _, rest = SplitBackward().input_half(output, torch.ones_like(output), [value])
    for name, saved in (("SinBackward0", "_saved_self"), ("SoftmaxBackward0", "_saved_result")):
        with pytest.raises(AssertionError, match="ran again"):
            getattr(steps[name], saved)
    assert steps["AddmmBackward0"]._saved_mat1.shape == (500, WIDTH)
    rest.run()
    assert all(weight.grad is not None for weight in module.parameters())


class Sine(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value.sin()


def _below(node: Any) -> list[Any]:
    nodes = [after for after, _ in node.next_functions if after is not None]
    return nodes + [below for after in nodes for below in _below(after)]
