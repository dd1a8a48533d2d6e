"""How gradients move parameters: gradient descent, with momentum if asked for, AdamW, or a PyTorch class.

The first two work element by element, so a shard moves as it would within the whole parameter, given the same
gradients. Where the order of sums changes the gradients' last bits, plain gradient descent passes that on as
it is. AdamW divides by the root of the mean square, and so enlarges it where gradients are small. Let d be
the largest difference of an element's gradients in all steps so far, and v its mean square, bias corrected.
Then one step moves the two parameters apart by at most 9 learning_rate d / (sqrt(v) + EPSILON): the two means
differ by d at most, the two roots too, and no mean is more than 8 roots (for `BETAS`; Cauchy and Schwarz).
Where v is 0, that is up to 9e8 learning_rate d.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

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
"""Of AdamW: how slowly the means of gradients and of their squares move; PyTorch's defaults."""

EPSILON = 1e-8
"""Of AdamW: added to the root of the mean square; PyTorch's default."""


ADAMW_RATE = 0.001
"""Learning rate of AdamW for small models: PyTorch's default."""


def usual_learning_rate(optimizer: str, num_parameters: int) -> float:
    """Return a learning rate with which a language model of this size trains from its first step on.

    That of AdamW and its like falls with the size as those of GPT-3 do: 6e-4 for 125 million parameters, 2e-4
    for 1.3 billion, 1e-4 for 13 billion (Brown et al. 2020, Table 2.1). Of the table's rows up to there the
    power law misses none by more than a third.

    Args:
        optimizer: As in `ModelOptions`.
        num_parameters: Number of parameters of the whole model.

    >>> [usual_learning_rate("adamw", round(size * 1e6)) for size in (1, 125, 1300, 13000)]
    [0.001, 0.0006, 0.00024, 9.4e-05]
    """
    if optimizer.lower() == "sgd":
        return SGD_RATE
    return min(ADAMW_RATE, float(f"{6e-4 * (1.25e8 / max(num_parameters, 1)) ** 0.4:.2g}"))


_NAMES = {"sgd": ("momentum_buffer",), "adamw": ("step", "exp_avg", "exp_avg_sq")}
"""The parts of a parameter's state, as PyTorch names them, in the order in which they are kept here."""


class KeptState(NamedTuple):
    """Parameters and what their optimizer knows of them, at one moment.

    Attributes:
        weights: Each parameter, with a copy of its values and of its state.
        num_updates: Number of updates done.
        groups: Options of each group of parameters, of a class of `torch.optim`.
        schedule: State of the schedule of the learning rate.
    """

    weights: list[tuple[Tensor, Tensor, dict[str, Tensor | float]]]
    num_updates: int
    groups: list[dict[str, Any]]
    schedule: dict[str, Any]


class Optimizer:
    """The optimizer of some parameters.

    AdamW calls PyTorch's function rather than its class, because the class imports PyTorch's compiler when
    it is first built, which takes seconds in every process. With more options than those that there is code
    for here, it is PyTorch's class all the same.

    Attributes:
        loss_scale: What losses are multiplied by in fp16, or None.

    Args:
        options: Say which optimizer, its learning rate and weight decay.
        parameters: In an order that is always the same.
        names: Names of the parameters; only groups of parameters need them.

    Raises:
        ModelError: PyTorch's class refuses the parameters.
    """

    def __init__(
        self, options: ModelOptions, parameters: Sequence[Tensor], names: Sequence[str] | None = None
    ) -> None:
        """Begin without any steps done."""
        self._options = options
        self._parameters = list(parameters)
        self._state: dict[int, tuple[Tensor, ...]] = {}
        self._num_updates = 0
        self.loss_scale = LossScale() if options.precision == "fp16" else None
        self._torch: torch.optim.Optimizer | None = None
        self._schedule: torch.optim.lr_scheduler.LRScheduler | None = None
        if options.uses_torch_optimizer:
            self._build_torch(names or [""] * len(parameters))

    def _build_torch(self, names: Sequence[str]) -> None:
        options = self._options
        members = in_groups(names, self._parameters, options.patterns)
        groups = [
            {"params": weights, **group}
            for weights, group in zip(members, options.group_options, strict=True)
        ]
        try:
            self._torch = build_optimizer(options.optimizer, options.torch_options, groups)
            if options.lr_schedule is not None:
                self._schedule = build_schedule(options.lr_schedule, self._torch, options.lr_schedule_options)
        except TorchOptionError as error:
            raise ModelError(error.reason, error.field) from None

    def step(self, among: Iterable[Tensor] | None = None) -> None:
        """Move every parameter that has a gradient, and forget the gradients.

        Args:
            among: The parameters that may be moved; by default all.
        """
        chosen = None if among is None else {id(weight) for weight in among}
        moved = [
            (index, weight)
            for index, weight in enumerate(self._parameters)
            if weight.grad is not None and (chosen is None or id(weight) in chosen)
        ]
        for _, weight in moved:
            assert weight.grad is not None
            weight.grad = weight.grad.to_dense()  # of an embedding with sparse=True
        if self._torch is not None:
            self._step_torch([weight for _, weight in moved])
        else:
            with torch.no_grad():
                for index, weight in moved:
                    assert weight.grad is not None
                    self._move(index, weight, weight.grad)
        for _, weight in moved:
            weight.grad = None
        self._num_updates += 1

    def _step_torch(self, moved: Sequence[Tensor]) -> None:
        """Let PyTorch's class move some parameters and no others."""
        assert self._torch is not None
        chosen = {id(weight) for weight in moved}
        others = [(weight, weight.grad) for weight in self._parameters if id(weight) not in chosen]
        for weight, _ in others:
            weight.grad = None
        self._torch.step()
        for weight, gradient in others:
            weight.grad = gradient
        if self._schedule is not None:
            self._schedule.step()

    def replace(self, before: Tensor, weight: Tensor) -> None:
        """Go on with another tensor in the place of a parameter, with its state."""
        index = self._index(before)
        self._parameters[index] = weight
        if self._torch is not None:
            for group in self._torch.param_groups:
                group["params"] = [weight if each is before else each for each in group["params"]]
            if before in self._torch.state:
                self._torch.state[weight] = self._torch.state.pop(before)

    def state_of(self, weight: Tensor) -> dict[str, Tensor | float]:
        """Return the state of a parameter by PyTorch's names, as ``exp_avg``; empty where there is none.

        The tensors are the optimizer's own, on their device.
        """
        if not self.holds(weight):
            return {}
        if self._torch is not None:
            return dict(self._torch.state.get(weight, {}))
        index = self._index(weight)
        values = self._state.get(index, ())
        return dict(zip(_NAMES[self._options.optimizer], values, strict=False))

    def load_state_of(self, weight: Tensor, state: Mapping[str, Tensor | float]) -> None:
        """Take over the state of a parameter, as `state_of` returns it; it is copied.

        With ZeRO a copy of a parameter that another device moves is passed over.

        Raises:
            ModelError: It is the state of another optimizer.
        """
        if not self.holds(weight):
            return
        taken = {name: self._copied(weight, value) for name, value in state.items()}
        if self._torch is not None:
            self._torch.state[weight] = taken
            return
        index, names = self._index(weight), _NAMES[self._options.optimizer]
        self._state.pop(index, None)
        if taken:
            if set(taken) != set(names):
                raise ModelError(
                    f"{self._options.optimizer} has the state {', '.join(names)}, not "
                    f"{', '.join(taken)}; use the optimizer that made it",
                    "optimizer",
                )
            self._state[index] = tuple(torch.as_tensor(taken[name]) for name in names)

    def kept_state(self, weights: Sequence[Tensor]) -> KeptState:
        """Return copies of some parameters and of all that a step changes."""
        rows = []
        for weight in weights:
            state = {name: self._copied(weight, value) for name, value in self.state_of(weight).items()}
            rows.append((weight, weight.detach().clone(), state))
        groups = [] if self._torch is None else self._torch.param_groups
        options = [
            {name: deepcopy(value) for name, value in group.items() if name != "params"} for group in groups
        ]
        schedule = {} if self._schedule is None else deepcopy(self._schedule.state_dict())
        return KeptState(rows, self._num_updates, options, schedule)

    def restore(self, kept: KeptState) -> None:
        """Take back the steps since a state was kept, to the same bits."""
        with torch.no_grad():
            for weight, values, state in kept.weights:
                weight.copy_(values)
                self.load_state_of(weight, state)
        self._num_updates = kept.num_updates
        groups = [] if self._torch is None else self._torch.param_groups
        for group, options in zip(groups, kept.groups, strict=True):
            group.update(options)
        if self._schedule is not None:
            self._schedule.load_state_dict(kept.schedule)

    def shared_state(self) -> dict[str, float]:
        """Return what is the same for all parameters and processes; empty where nothing is to be kept."""
        found: dict[str, float] = {}
        if self._schedule is not None:
            found["num_updates"] = self._num_updates
        if self.loss_scale is not None:
            found |= {"loss_scale": self.loss_scale.value, "good_updates": self.loss_scale.good_updates}
        return found

    def load_shared_state(self, state: Mapping[str, float]) -> None:
        """Take over what `shared_state` returned, in an optimizer that has done no step yet.

        The schedule goes as many updates ahead, so that it may be another one than then.
        """
        self._num_updates = int(state.get("num_updates", 0))
        if self._schedule is not None:
            advance(self._schedule, self._num_updates)
        if self.loss_scale is not None and "loss_scale" in state:
            self.loss_scale.value = state["loss_scale"]
            self.loss_scale.good_updates = int(state["good_updates"])

    def _copied(self, weight: Tensor, value: Tensor | float) -> Tensor | float:
        """Return a copy of a part of a parameter's state where its optimizer wants it."""
        if not isinstance(value, Tensor):
            return value
        options = self._options.optimizer_options
        is_here = value.dim() > 0 or options.get("fused") or options.get("capturable")
        return value.detach().clone().to(weight.device if is_here else "cpu")

    def holds(self, weight: Tensor) -> bool:
        """Tell whether it moves a parameter."""
        return any(each is weight for each in self._parameters)

    def _index(self, weight: Tensor) -> int:
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
