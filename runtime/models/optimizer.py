"""How gradients move parameters: torch's functions of SGD and AdamW, or any class of `torch.optim`.

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
from runtime.models.core.torch_optimizers import (
    TorchOptionError,
    advance,
    build_optimizer,
    build_schedule,
    in_groups,
)

BETAS = (0.9, 0.999)
"""Decay of AdamW's means of gradients and of their squares; PyTorch's defaults."""

EPSILON = 1e-8
"""Addend of AdamW to the root of the mean square; PyTorch's default."""

_STATE = {"sgd": {"momentum_buffer"}, "adamw": {"step", "exp_avg", "exp_avg_sq"}}
"""PyTorch's names for the parts of a parameter's state."""


def usual_learning_rate(optimizer: str, num_parameters: int) -> float:
    """Return a learning rate with which a language model of this size trains from its first step on.

    The rate of AdamW and its like falls with the size as in GPT-3: 6e-4 for 125 million parameters, 2e-4 for
    1.3 billion, 1e-4 for 13 billion (Brown et al. 2020, Table 2.1), and is PyTorch's default 0.001 for small
    models. Of the table's rows up to there the power law misses none by more than a third.

    >>> [usual_learning_rate("adamw", round(size * 1e6)) for size in (1, 125, 1300, 13000)]
    [0.001, 0.0006, 0.00024, 9.4e-05]
    """
    if optimizer.lower() == "sgd":
        return SGD_RATE
    return min(0.001, float(f"{6e-4 * (1.25e8 / max(num_parameters, 1)) ** 0.4:.2g}"))


class _Plain:
    """SGD or AdamW by PyTorch's functions, with the attributes that PyTorch's classes have.

    The classes import PyTorch's compiler when the first is built, which takes seconds in every process.
    """

    def __init__(self, options: ModelOptions, parameters: Sequence[Tensor]) -> None:
        self._options = options
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters)}]
        self.state: dict[Tensor, dict[str, Any]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        options = self._options
        rates: dict[str, Any] = {"lr": options.learning_rate, "weight_decay": options.weight_decay}
        if options.optimizer == "sgd":
            rates |= {"momentum": options.momentum, "dampening": 0.0, "nesterov": False}
        else:
            rates |= {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPSILON, "amsgrad": False}
        for weight in self.param_groups[0]["params"]:
            if weight.grad is None:
                continue
            one = [weight], [weight.grad]
            if options.optimizer == "sgd":
                buffers = [self.state.get(weight, {}).get("momentum_buffer")]
                sgd(*one, buffers, foreach=False, maximize=False, **rates)
                if buffers[0] is not None:
                    self.state[weight] = {"momentum_buffer": buffers[0]}
                continue
            if weight not in self.state:
                zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                self.state[weight] = {"step": torch.tensor(0.0)} | zeros
            step, mean, square = (self.state[weight][name] for name in ("step", "exp_avg", "exp_avg_sq"))
            adamw(*one, [mean], [square], [], [step], foreach=False, maximize=False, **rates)


class Optimizer:
    """The optimizer of some parameters.

    Attributes:
        loss_scale: Factor of losses in fp16, or None.

    The order of the parameters is always the same; their names are for groups of parameters alone.

    Raises:
        ModelError: PyTorch's class refuses the parameters.
    """

    def __init__(
        self, options: ModelOptions, parameters: Sequence[Tensor], names: Sequence[str] | None = None
    ) -> None:
        self._options = options
        self._num_updates = 0
        self.loss_scale = LossScale() if options.precision == "fp16" else None
        self._schedule: torch.optim.lr_scheduler.LRScheduler | None = None
        self._inner: _Plain | torch.optim.Optimizer
        if not options.uses_torch_optimizer:
            self._inner = _Plain(options, parameters)
            return
        members = in_groups(names or [""] * len(parameters), parameters, options.patterns)
        groups = [
            {"params": weights, **group}
            for weights, group in zip(members, options.group_options, strict=True)
        ]
        try:
            self._inner = build_optimizer(options.optimizer, options.torch_options, groups)
            if options.lr_schedule is not None:
                self._schedule = build_schedule(options.lr_schedule, self._inner, options.lr_schedule_options)
        except TorchOptionError as error:
            raise ModelError(error.reason, error.field) from None

    @property
    def _parameters(self) -> list[Tensor]:
        return [weight for group in self._inner.param_groups for weight in group["params"]]

    def step(self, among: Iterable[Tensor] | None = None) -> None:
        """Move every parameter that has a gradient, or of these alone, and forget the gradients."""
        chosen = None if among is None else {id(weight) for weight in among}
        later = []
        for weight in self._parameters:
            if weight.grad is not None and chosen is not None and id(weight) not in chosen:
                later.append((weight, weight.grad))
                weight.grad = None
            elif weight.grad is not None:
                weight.grad = weight.grad.to_dense()  # of an embedding with sparse=True
        self._inner.step()
        for weight in self._parameters:
            weight.grad = None
        for weight, gradient in later:
            weight.grad = gradient
        if self._schedule is not None:
            self._schedule.step()
        self._num_updates += 1

    def replace(self, before: Tensor, weight: Tensor) -> None:
        """Go on with another tensor in the place of a parameter, with its state."""
        for group in self._inner.param_groups:
            group["params"] = [weight if each is before else each for each in group["params"]]
        if before in self._inner.state:
            self._inner.state[weight] = self._inner.state.pop(before)

    def state_of(self, weight: Tensor) -> dict[str, Tensor | float]:
        """Return the state of a parameter by PyTorch's names, as ``exp_avg``; empty where there is none.

        The tensors are the optimizer's own, on their device.
        """
        return dict(self._inner.state.get(weight, {}))

    def load_state_of(self, weight: Tensor, state: Mapping[str, Tensor | float]) -> None:
        """Take over a copy of the state of a parameter, as `state_of` returns it.

        With ZeRO a copy of a parameter that another device moves is passed over.

        Raises:
            ModelError: It is the state of another optimizer.
        """
        if not self.holds(weight):
            return
        taken = {name: self._copied(weight, value) for name, value in state.items()}
        if isinstance(self._inner, _Plain):
            names = _STATE[self._options.optimizer]
            if taken and set(taken) != names:
                raise ModelError(
                    f"{self._options.optimizer} has the state {', '.join(sorted(names))}, not "
                    f"{', '.join(taken)}; use the optimizer that made it",
                    "optimizer",
                )
            taken = {name: torch.as_tensor(value) for name, value in taken.items()}
        self._inner.state[weight] = taken
        if not taken:
            del self._inner.state[weight]

    def shared_state(self) -> dict[str, float]:
        """Return the state that all parameters and processes share; empty where nothing is to be kept."""
        found: dict[str, float] = {}
        if self._schedule is not None:
            found["num_updates"] = self._num_updates
        if self.loss_scale is not None:
            found |= {"loss_scale": self.loss_scale.value, "good_updates": self.loss_scale.good_updates}
        return found

    def load_shared_state(self, state: Mapping[str, float]) -> None:
        """Take over the shared state, in an optimizer that has done no step yet.

        The schedule goes as many updates ahead, so that it may be another one than then.
        """
        self._num_updates = int(state.get("num_updates", 0))
        if self._schedule is not None:
            advance(self._schedule, self._num_updates)
        if self.loss_scale is not None and "loss_scale" in state:
            self.loss_scale.value = state["loss_scale"]
            self.loss_scale.good_updates = int(state["good_updates"])

    def holds(self, weight: Tensor) -> bool:
        """Tell whether it moves a parameter."""
        return any(each is weight for each in self._parameters)

    def _copied(self, weight: Tensor, value: Tensor | float) -> Tensor | float:
        """Return a copy of a part of a parameter's state where its optimizer wants it."""
        if not isinstance(value, Tensor):
            return value
        options = self._options.optimizer_options
        is_here = value.dim() > 0 or options.get("fused") or options.get("capturable")
        return value.detach().clone().to(weight.device if is_here else "cpu")
