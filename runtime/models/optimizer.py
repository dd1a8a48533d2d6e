"""How gradients move parameters: by torch's functions of SGD and AdamW.

SGD and AdamW work element by element, so a shard moves as it would within the whole parameter, given the same
gradients. Where the order of sums changes the gradients' last bits, plain gradient descent passes that on as
it is. AdamW divides by the root of the mean square, and so enlarges it where gradients are small. Let d be
the largest difference of an element's gradients in all steps so far, and v its mean square, bias corrected.
Then one step moves the two parameters apart by at most 9 learning_rate d / (sqrt(v) + EPSILON): the two means
differ by d at most, the two roots too, and no mean is more than 8 roots (for `BETAS`; Cauchy and Schwarz).
Where v is 0, that is up to 9e8 learning_rate d.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from runtime.models.core.options import SGD_RATE, ModelError, ModelOptions
from runtime.models.core.precision import LossScale

BETAS = (0.9, 0.999)
"""Decay of AdamW's means of gradients and of their squares; PyTorch's defaults."""

EPSILON = 1e-8
"""Addend of AdamW to the root of the mean square; PyTorch's default."""

_STATE = {"sgd": {"momentum_buffer"}, "adamw": {"step", "exp_avg", "exp_avg_sq"}}
"""PyTorch's names for the parts of a parameter's state."""


def usual_learning_rate(optimizer: str, num_parameters: int) -> float:
    """Return a learning rate with which a language model of this size trains from its first step on.

    The rate of AdamW falls with the size as in GPT-3: 6e-4 for 125 million parameters, 2e-4 for
    1.3 billion, 1e-4 for 13 billion (Brown et al. 2020, Table 2.1), and is PyTorch's default 0.001 for small
    models. Of the table's rows up to there the power law misses none by more than a third.

    >>> [usual_learning_rate("adamw", round(size * 1e6)) for size in (1, 125, 1300, 13000)]
    [0.001, 0.0006, 0.00024, 9.4e-05]
    """
    if optimizer == "sgd":
        return SGD_RATE
    return min(0.001, float(f"{6e-4 * (1.25e8 / max(num_parameters, 1)) ** 0.4:.2g}"))


class Optimizer:
    """The optimizer of some parameters, whose order is always the same.

    It moves as torch's classes, which import torch's compiler when the first is built: seconds in a process.

    Attributes:
        loss_scale: Factor of losses in fp16, or None.
    """

    def __init__(self, options: ModelOptions, parameters: Sequence[Tensor]) -> None:
        self._options, self._parameters = options, list(parameters)
        self._state: dict[Tensor, dict[str, Any]] = {}
        self.loss_scale = LossScale() if options.precision == "fp16" else None

    @torch.no_grad()
    def step(self, among: Iterable[Tensor] | None = None) -> None:
        """Move every parameter that has a gradient, or of these alone, and forget the gradients."""
        chosen = {id(weight) for weight in (self._parameters if among is None else among)}
        for weight in self._parameters:
            if weight.grad is not None and id(weight) in chosen:
                self._move(weight, weight.grad.to_dense())  # that of an embedding with sparse=True
                weight.grad = None

    def _move(self, weight: Tensor, gradient: Tensor) -> None:
        options, one = self._options, ([weight], [gradient])
        rates: dict[str, Any] = {"lr": options.learning_rate, "weight_decay": options.weight_decay}
        if options.optimizer == "sgd":
            buffers = [self._state.get(weight, {}).get("momentum_buffer")]
            rates |= {"momentum": options.momentum, "dampening": 0.0, "nesterov": False}
            sgd(*one, buffers, foreach=False, maximize=False, **rates)
            if buffers[0] is not None:
                self._state[weight] = {"momentum_buffer": buffers[0]}
            return
        if weight not in self._state:
            zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self._state[weight] = {"step": torch.tensor(0.0)} | zeros
        step, mean, square = (self._state[weight][name] for name in ("step", "exp_avg", "exp_avg_sq"))
        rates |= {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPSILON, "amsgrad": False}
        adamw(*one, [mean], [square], [], [step], foreach=False, maximize=False, **rates)

    def replace(self, before: Tensor, weight: Tensor) -> None:
        """Go on with another tensor in the place of a parameter, with its state."""
        self._parameters = [weight if parameter is before else parameter for parameter in self._parameters]
        if before in self._state:
            self._state[weight] = self._state.pop(before)

    def state_of(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter by PyTorch's names, as ``exp_avg``; empty where there is none.

        The tensors are the optimizer's own, on their device.
        """
        return dict(self._state.get(weight, {}))

    def load_state_of(self, weight: Tensor, state: Mapping[str, Tensor | float]) -> None:
        """Take over a copy of the state of a parameter, as `state_of` returns it.

        With ZeRO a copy of a parameter that another device moves is passed over.

        Raises:
            ModelError: It is the state of another optimizer.
        """
        if all(parameter is not weight for parameter in self._parameters):
            return
        names = _STATE[self._options.optimizer]
        if state and set(state) != names:
            raise ModelError(
                f"{self._options.optimizer} has the state {', '.join(sorted(names))}, not "
                f"{', '.join(state)}; use the optimizer that made it",
                "optimizer",
            )
        self._state.pop(weight, None)
        if state:
            copies = {name: torch.as_tensor(value).detach().clone() for name, value in state.items()}
            self._state[weight] = {
                name: copy.to(weight.device if copy.dim() else "cpu") for name, copy in copies.items()
            }

    def shared_state(self) -> dict[str, float]:
        """Return the state that all parameters and processes share; empty where nothing is to be kept."""
        scale = self.loss_scale
        return {} if scale is None else {"loss_scale": scale.value, "good_updates": scale.good_updates}

    def load_shared_state(self, state: Mapping[str, float]) -> None:
        """Take over the shared state."""
        if self.loss_scale is not None and "loss_scale" in state:
            self.loss_scale.value = state["loss_scale"]
            self.loss_scale.good_updates = int(state["good_updates"])
