"""How gradients move parameters: gradient descent, with momentum if asked for, or AdamW as PyTorch has them.

Both work element by element, so a shard moves as it would within the whole parameter, given the same
gradients. Where the order of sums changes the gradients' last bits, plain gradient descent passes that on as
it is. AdamW divides by the root of the mean square, and so enlarges it where gradients are small. Let d be
the largest difference of an element's gradients in all steps so far, and v its mean square, bias corrected.
Then one step moves the two parameters apart by at most 9 learning_rate d / (sqrt(v) + EPSILON): the two means
differ by d at most, the two roots too, and no mean is more than 8 roots (for `BETAS`; Cauchy and Schwarz).
Where v is 0, that is up to 9e8 learning_rate d.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from runtime.models.core.options import ModelOptions

BETAS = (0.9, 0.999)
"""Of AdamW: how slowly the means of gradients and of their squares move; PyTorch's defaults."""

EPSILON = 1e-8
"""Of AdamW: added to the root of the mean square; PyTorch's default."""

_STATES = {"sgd": ("momentum_buffer",), "adamw": ("step", "exp_avg", "exp_avg_sq")}
"""What is kept for each parameter, by PyTorch's names."""


class Optimizer:
    """The optimizer of some parameters.

    AdamW calls PyTorch's function rather than its class, because the class imports PyTorch's compiler when
    it is first built, which takes seconds in every process.

    Args:
        options: Say which optimizer, its learning rate and weight decay.
        parameters: In an order that is always the same.
    """

    def __init__(self, options: ModelOptions, parameters: Sequence[Tensor]) -> None:
        """Begin without any steps done."""
        self._options = options
        self._parameters = list(parameters)
        self._state: dict[int, tuple[Tensor, ...]] = {}

    def step(self, among: Iterable[Tensor] | None = None) -> None:
        """Move every parameter that has a gradient, and forget the gradients.

        Args:
            among: The parameters that may be moved; by default all.
        """
        chosen = None if among is None else {id(weight) for weight in among}
        with torch.no_grad():
            for index, weight in enumerate(self._parameters):
                if weight.grad is not None and (chosen is None or id(weight) in chosen):
                    self._move(index, weight, weight.grad)
                    weight.grad = None

    def replace(self, before: Tensor, weight: Tensor) -> None:
        """Go on with another tensor in the place of a parameter, with its state."""
        self._parameters[self._index_of(before)] = weight

    def state_of(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter, by PyTorch's names; empty before its first step."""
        values = self._state.get(self._index_of(weight), ())
        return dict(zip(_STATES[self._options.optimizer], values, strict=False))

    def load_state_of(self, weight: Tensor, state: Mapping[str, Tensor]) -> None:
        """Take over the state of a parameter."""
        index = self._index_of(weight)
        self._state.pop(index, None)
        if state:
            self._state[index] = tuple(state[name] for name in _STATES[self._options.optimizer])

    def _index_of(self, weight: Tensor) -> int:
        return next(i for i, each in enumerate(self._parameters) if each is weight)

    def _move(self, index: int, weight: Tensor, gradient: Tensor) -> None:
        options = self._options
        if options.optimizer == "sgd":
            if options.weight_decay:
                gradient = gradient.add(weight, alpha=options.weight_decay)
            if options.momentum:
                gradient = self._with_momentum(index, gradient)
            weight.sub_(gradient, alpha=options.learning_rate)
            return
        if index not in self._state:
            self._state[index] = torch.tensor(0.0), torch.zeros_like(weight), torch.zeros_like(weight)
        count, mean, square = self._state[index]
        adamw(
            [weight],
            [gradient],
            [mean],
            [square],
            [],
            [count],
            foreach=False,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=options.learning_rate,
            weight_decay=options.weight_decay,
            eps=EPSILON,
            maximize=False,
        )

    def _with_momentum(self, index: int, gradient: Tensor) -> Tensor:
        """Return the sum of a parameter's gradients, earlier ones weighted less (as PyTorch's SGD)."""
        if index not in self._state:
            self._state[index] = (gradient.clone(),)
            return gradient
        (total,) = self._state[index]
        return total.mul_(self._options.momentum).add_(gradient)
