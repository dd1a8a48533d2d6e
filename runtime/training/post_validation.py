"""Steps without a barrier: each device moves its parameters before it knows the norm of all gradients.

The gradients of a device say already whether the step may be taken as it is, as far as they are known. The
norm of all comes later. Where it demands clipping, or is not a number, the step is taken back, and done again
as with a barrier: parameters and the optimizer's state are then bit for bit those of before it. (Zero Bubble
Pipeline Parallelism, Sec. 4: there stages tell each other the norm so far; here each tells all its own part.)

Until the norm is known it costs a copy of the parameters that are trained, of their optimizer's state and,
where a class of `torch.optim` moves them, of their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from placements import Placement
from runtime.models.model import Model
from runtime.models.optimizer import KeptState
from runtime.training.clipping import EPSILON, norm_of, scale_by_norm
from runtime.training.update import Update

Collecting = Callable[[object], Callable[[], list[Any]]]
"""Begins to collect a value of each device; what it returns waits for all."""


class Validated(NamedTuple):
    """An update whose norm is known.

    Attributes:
        norm: Norm of all gradients; None where nothing is clipped.
        again: Whether some device took its step back, or had not taken it.
        told: What each device told with its part, by device.
    """

    norm: float | None
    again: bool
    told: list[Any]


class _Pending(NamedTuple):
    gradients: list[tuple[Tensor, Tensor]]
    before: KeptState | None
    others: Callable[[], list[Any]]


class EarlyStep:
    """The updates of one device; every device must call each function at the same place.

    Args:
        update: Its updates, which complete the gradients.
        model: Model of the device.
        placement: What runs where.
        collecting: Tells the devices each other's parts while they go on.
    """

    def __init__(self, update: Update, model: Model, placement: Placement, collecting: Collecting) -> None:
        """Begin with no step taken."""
        self._update, self._model, self._placement, self._collecting = update, model, placement, collecting
        self._max_norm = model.options.clip_grad_norm
        self._pending: _Pending | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a step is not validated yet."""
        return self._pending is not None

    def begin(self, told: object) -> None:
        """Tell the own part of the norm, and take the step if that does not forbid it.

        Args:
            told: What the others are to know besides.
        """
        assert self._pending is None
        self._update.complete()
        part, may_step = None, True
        if self._max_norm is not None:
            part = self._update.norm_part()
            may_step = self._max_norm / (norm_of([part], self._placement) + EPSILON) >= 1
        others = self._collecting((part, may_step, told))
        trained = [weight for weight in self._model.parameters.values() if weight.grad is not None]
        gradients = [(weight, weight.grad) for weight in trained if weight.grad is not None]
        before = None
        if may_step:
            before = self._model.optimizer.kept_state(trained)
            if self._model.options.uses_torch_optimizer:  # a class may change them in place
                gradients = [(weight, gradient.clone()) for weight, gradient in gradients]
            self._model.step()
        for weight in trained:
            weight.grad = None
        self._pending = _Pending(gradients, before, others)

    def settle(self, keep: Callable[[], object] = lambda: None) -> Validated:
        """Wait for the norm of all gradients; take the step back if it must be, and do it again.

        Args:
            keep: Called while the parameters have the gradients of the update, clipped as they are.
        """
        assert self._pending is not None
        gradients, before, others = self._pending
        self._pending = None
        collected = others()
        norm, again = None, False
        if self._max_norm is not None:
            norm = norm_of([part for part, _, _ in collected], self._placement)
            again = not self._max_norm / (norm + EPSILON) >= 1 or not all(may for _, may, _ in collected)
        if again and before is not None:
            self._model.optimizer.restore(before)
        for weight, gradient in gradients:
            weight.grad = gradient
        if again and self._max_norm is not None and norm is not None:
            scale_by_norm([weight for weight, _ in gradients], norm, self._max_norm)
        keep()
        if again:
            self._model.step()
        for weight, _ in gradients:
            weight.grad = None
        return Validated(norm, again, [told for _, _, told in collected])
