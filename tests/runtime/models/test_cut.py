"""A cut model is the model: the same results, bit for bit, whatever captured it."""

from collections.abc import Callable, Sequence

import pytest
import torch
from one_line_errors import raises_line
from torch import Tensor, nn

from runtime.models import ModelError, cut


class Skipping(nn.Module):
    """A skip connection over a cut, an input read twice, and a weight used in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.third = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.tensor(0.25))

    def forward(self, values: Tensor) -> Tensor:
        first = self.first(values) * self.scale
        second = self.second(first)
        third = self.third(second + first) * self.scale + self.shift
        result: Tensor = third + values
        return result


def chained(blocks: Sequence[nn.Module], *values: Tensor) -> Tensor:
    handed: tuple[Tensor, ...] = values
    for block in blocks:
        returned = block(*handed)
        handed = returned if isinstance(returned, tuple) else (returned,)
    (result,) = handed
    return result


VALUES = torch.arange(12.0).view(3, 4) / 7
CAPTURES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "module": lambda model: model,
    "fx": torch.fx.symbolic_trace,
    "export": lambda model: torch.export.export(model, (VALUES,)),  # type: ignore[dict-item, return-value]
}


@pytest.mark.parametrize(
    ("capture", "at"),
    [
        ("module", []),
        ("module", ["third"]),
        ("module", ["second", "third"]),
        ("fx", ["second.1"]),
        ("export", ["second", "third"]),
    ],
)
def test_blocks_in_a_chain_are_the_model(capture: str, at: list[str]) -> None:
    model = Skipping()
    blocks = cut(CAPTURES[capture](model), at)
    assert len(blocks) == len(at) + 1
    expected = model(VALUES)
    assert torch.equal(chained(blocks, VALUES), expected)
    expected.square().sum().backward()
    gradients = {id(value): value.grad for value in model.parameters()}
    if capture == "module":
        ids = {id(value) for block in blocks for value in block.parameters()}
        assert ids == gradients.keys(), "the blocks have the model's own parameters, each"


def test_what_is_handed_over_is_what_later_blocks_need() -> None:
    first, second, third = cut(Skipping(), at=["second", "third"])
    handed = first(VALUES)
    assert len(handed) == 2 and torch.equal(handed[0], VALUES)
    assert len(second(*handed)) == 2, "the input for the end, and the sum"
    assert third(*second(*handed)).shape == (3, 4)
    shared = {id(value) for value in first.parameters()} & {id(value) for value in third.parameters()}
    assert len(shared) == 1, "the scale"


class Branching(nn.Module):
    """A module whose branch depends on its values, which no graph can hold."""

    def forward(self, values: Tensor) -> Tensor:
        return values if values.sum() > 0 else -values


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: cut(Skipping(), ["fourth"]), "no submodule 'fourth' is run; use some of first, second"),
        (lambda: cut(Skipping(), ["third", "second"]), "not in the order in which they run; sort them"),
        (lambda: cut(Skipping(), ["first"]), "first runs first, so nothing is left for the first block"),
        (lambda: cut(nn.Sequential(nn.ReLU()), ["2"]), "no submodule '2' is run; use some of 0"),
        (lambda: cut(nn.Sequential(nn.ReLU(), nn.ReLU()), ["1", "1"]), "1, 1 are not in the order"),
        (lambda: cut(Branching(), ["a"]), "torch.fx cannot trace Branching .*; give an example of its arg"),
        (lambda: cut(Branching(), ["a"], example=(VALUES,)), "torch.export cannot capture Branching"),
        (lambda: cut(Skipping(), ["third"], targets=["labels"]), "takes no 'labels'; use targets among val"),
        (lambda: cut(Skipping(), "third"), "^cut: at and targets are lists"),
        (lambda: cut(Skipping(), ["third"], targets="values"), "^cut: at and targets are lists"),
        (lambda: cut(Skipping(), ["third"], example=VALUES), "^cut: at and targets are"),  # type: ignore[arg-type]
    ],
)
def test_a_cut_that_cannot_be_made_is_refused(made: Callable[[], object], message: str) -> None:
    with raises_line(ModelError, match=message):
        made()


class WithoutGradient(nn.Module):
    """Makes tensors in regions without gradients, one in another, and in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("rates", 1.0 / torch.arange(1.0, 5.0), persistent=False)

    @torch.no_grad()
    def turned(self, values: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            ramp = torch.arange(4, dtype=torch.float32, device=values.device) * self.rates
        return torch.cos(ramp).to(values.dtype)

    def forward(self, values: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            ramp = torch.arange(4, dtype=values.dtype, device=values.device) / 4
        mean = values.detach().float().mean(0).to(values.dtype)
        values = self.second(self.first(values) + ramp).tanh() * self.turned(values)
        return {"values": self.third(values * ramp + mean + torch.zeros(4, device=values.device))}


def test_tensors_made_without_gradient_are_on_the_device_of_the_inputs() -> None:
    model = WithoutGradient()
    blocks = cut(model, at=["second", "third"], example=(VALUES,))
    assert torch.equal(chained(blocks, VALUES), model(VALUES)["values"])
    moved = chained([block.to("meta") for block in blocks], VALUES.to("meta"))
    assert moved.device.type == "meta"


def test_devices_that_a_trace_reads_are_not_handed_over() -> None:
    class Late(WithoutGradient):
        def forward(self, values: Tensor) -> Tensor:  # type: ignore[override]
            second = self.second(self.first(values))
            result: Tensor = self.third(second + torch.ones(4, device=values.device)) + torch.zeros(
                4, device="cpu"
            )
            return result

    model = Late()
    blocks = cut(model, at=["third"])
    assert torch.equal(chained(blocks, VALUES), model(VALUES))
    assert chained([block.to("meta") for block in blocks], VALUES.to("meta")).device.type == "meta"
