"""An update: from the gradients of an iteration to moved parameters, on one device of a run.

- ``complete``: copies added up, an fp16 loss unscaled
- ``clip_grad_norm_``: the norm of all gradients, no more than a limit
- ``step``: parameters moved; with ZeRO, handed to their copies
"""

from __future__ import annotations

from placements import Placement
from runtime.models.blocks import Blocks
from runtime.models.model import Model
from runtime.models.optimizer import Optimizer
from runtime.training.clipping import scale_by_norm, squares, total_norm
from runtime.training.copies import CopySums
from runtime.training.zero import Owners
from runtime.transport.protocol import Transport


class Update:
    """The updates of one device; every device must make its own, and call each function, at the same place.

    Attributes:
        owners: The parameters that this device moves, with ZeRO.
        is_skipped: Whether the update is left out because fp16 overflowed, on whatever device.

    Args:
        blocks: Blocks of the device; they tell when gradients are complete.
        exact: Whether sums are to have the bits of the model in one piece; see `runtime.training.copies`.
    """

    def __init__(
        self, model: Model, blocks: Blocks, placement: Placement, transport: Transport, *, exact: bool = True
    ) -> None:
        """Connect the copies; with ZeRO, let the optimizer hold the parameters that the device owns."""
        self._model, self._placement, self._transport, self._exact = model, placement, transport, exact
        copies = transport.connect_copies(model.teams_of_replicas())
        self._sums = CopySums(model, copies, blocks.store.versions.copies, exact=exact)
        self.owners = Owners(model, copies)
        self.is_skipped = False
        blocks.store.on_complete, blocks.store.on_update = self._sums.complete, self._sums.begin_update
        if model.options.zero:
            model.optimizer = Optimizer(model.options, [*filter(self.owners.owns, model.parameters.values())])

    def complete(self) -> None:
        """Give every copy the sum of the gradients; with fp16 scale all down, or forget them on overflow."""
        self._sums.finish()
        scale = self._model.optimizer.loss_scale
        if scale is not None:
            weights = self._model.parameters.values()
            self.is_skipped = not scale.unscale(weights, lambda here: any(self._transport.collect(here)))

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scale all gradients down so that their norm is no more than a limit; return the norm before.

        A norm that is not a number makes all gradients so, as in PyTorch.
        """
        norm = total_norm(self._transport.collect(squares(self._model, exact=self._exact)), self._placement)
        scale_by_norm(self._model.parameters.values(), norm, max_norm)
        return norm

    def prepare(self) -> None:
        """Complete the gradients, and clip them if the model's options say so."""
        self.complete()
        if self._model.options.clip_grad_norm is not None and not self.is_skipped:
            self.clip_grad_norm_(self._model.options.clip_grad_norm)

    def step(self) -> None:
        """Move the parameters by the model's own optimizer, and forget the gradients."""
        if self.is_skipped:
            return
        self._model.step()
        if self._model.options.zero:
            for weight in self._model.parameters.values():
                weight.grad = None
            self.owners.share_parameters()
