"""Versions of weights on a device: a new one where micro-batches still read the old, and updates in between.

With a flush there is one version, and the update comes after the iteration. Without one an iteration is a
whole run of micro-batches in flight: each of its updates but the last is made here, as soon as its gradients
are complete on a block, and the last one after the iteration, as with a flush. The next iteration begins with
the newest weights. `schedsearch.semantics` says which version a micro-batch reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placements import Placement
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.core.parameters import Weights
from runtime.models.model import Model
from runtime.program.tensor_flow import pair_backward
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import Updates, WeightMode, WeightVersionError, find_versions


@dataclass(frozen=True)
class ReadVersions:
    """Versions of the weights in an iteration.

    Attributes:
        of: For each (forward block, micro-batch) the version that it reads; those left out read version 0.
        micro_batches_per_update: Micro-batches whose gradients, as their mean, make one update; where the
            copies of a stage take turns, so many of each copy.
        copies: For each forward block whose copies take turns their number, where there is no flush.
        local: For each forward block how many micro-batches the device computes; those left out all.
    """

    of: Mapping[Instance, int]
    micro_batches_per_update: int
    copies: Mapping[str, int] = field(default_factory=dict)
    local: Mapping[str, int] = field(default_factory=dict)

    def on(self, placement: Placement, order: Iterable[Instance]) -> ReadVersions:
        """Return the versions on a device that runs these blocks, of which some take turns with others."""
        ran = Counter(name for name, _ in order)
        return replace(self, local={b.name: ran[b.name] for b in placement.blocks if b.in_turns})


def read_versions(
    options: ModelOptions, placement: Placement, num_micro_batches: int, orders: Sequence[Sequence[Instance]]
) -> ReadVersions:
    """Return the versions that are read in an iteration, of each device's order; unused with a flush.

    Raises:
        ModelError: The orders cannot be run so.
    """
    mode = WeightMode(options.weight_versions)
    if mode is WeightMode.FLUSH:
        return ReadVersions({}, num_micro_batches)
    if placement.has_streams:
        raise ModelError(
            f"{mode} updates weights while blocks of other streams may read them; use {WeightMode.FLUSH}, or "
            "blocks of the stream compute alone",
            "weight_versions",
        )
    updates = Updates(mode, options.micro_batches_per_update)
    try:
        versions = find_versions(placement, orders, num_micro_batches, updates, pair_backward(placement))
    except WeightVersionError as error:
        raise ModelError(error.reason, error.field) from None
    forward = {instance: versions.reads[instance] for instance in versions.makes}
    copies = {block.name: block.data_parallel for block in placement.blocks if block.in_turns}
    return ReadVersions(forward, options.micro_batches_per_update, copies)


class WeightStore:
    """The weights of a device's forward blocks, in each version that a micro-batch is still to read.

    Attributes:
        versions: Versions of the present order.
        on_complete: Called with a forward block when it has all its gradients of an iteration.
        on_update: Called with a forward block when its gradients of an update within an iteration are
            complete. It returns a function that waits for other devices' gradients, which is called before
            the update is made, and that before the next run of the block; None where no other has any.

    The model holds the newest. Beside are forward blocks of other streams than ``compute``: `on_complete` is
    not called with them, as another thread would.
    """

    def __init__(
        self, model: Model, versions: ReadVersions, num_micro_batches: int, beside: Container[str] = ()
    ) -> None:
        self._model, self.versions, self._num_micro_batches = model, versions, num_micro_batches
        self._beside = beside
        self._is_flushed = not versions.of and versions.micro_batches_per_update >= num_micro_batches
        self.on_complete: Callable[[str], None] = lambda block: None
        self.on_update: Callable[[str], Callable[[], None] | None] = lambda block: None
        self._due: dict[str, Callable[[], None]] = {}
        self.begin()

    def follow(self, placement: Placement, order: Iterable[Instance]) -> None:
        """Expect another order of the device's blocks from the next iteration on; see `ReadVersions.on`."""
        self.versions = self.versions.on(placement, order)

    def begin(self) -> None:
        """Begin an iteration: the model's weights are version 0."""
        self._newest: Counter[str] = Counter()
        self._num_complete: Counter[str] = Counter()
        self._older: dict[Instance, Weights] = {}
        self._reads_left = Counter((block, version) for (block, _), version in self.versions.of.items())

    def weights(self, block: str, micro_batch: int) -> Weights:
        """Return the weights that a micro-batch reads on a forward block."""
        version = self.versions.of.get((block, micro_batch), 0)
        if self._is_flushed or version == self._newest[block]:
            return self._model.weights(block)
        return self._older[block, version]

    def complete(self, block: str, micro_batch: int) -> None:
        """Take note that a micro-batch's weights have its gradients; make an update if it is due."""
        self._num_complete[block] += 1
        number = self._num_complete[block]
        is_last = number == self.versions.local.get(block, self._num_micro_batches)
        if self._is_flushed:
            if is_last and block not in self._beside:
                self.on_complete(block)
            return
        version = self.versions.of.get((block, micro_batch), 0)
        self._reads_left[block, version] -= 1
        if version != self._newest[block]:
            older = self._older[block, version]
            for name, weight in self._model.weights(block).items():
                addend, older[name].grad = older[name].grad, None
                if addend is not None:
                    weight.grad = addend if weight.grad is None else weight.grad.add_(addend)
            if not self._reads_left[block, version]:
                del self._older[block, version]
        if not is_last and number % self.versions.micro_batches_per_update == 0:
            wait = self.on_update(block)
            if wait is None:
                self._update(block)
            else:
                self._due[block] = wait
        if is_last:
            self.on_complete(block)

    def settle(self, block: str) -> None:
        """Make the update of a forward block for which other devices are to be waited, if one is due."""
        if block in self._due:
            self._due.pop(block)()
            self._update(block)

    def _update(self, block: str) -> None:
        newest = self._newest[block]
        if self._reads_left[block, newest] > 0:
            self._older[block, newest] = self._model.copy_weights(block)
        self._model.step(block)
        self._newest[block] += 1
