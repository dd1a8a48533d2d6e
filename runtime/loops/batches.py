"""Batches of a training loop of one's own, cut into micro-batches.

A batch is a pair of inputs and targets, in the forms of `runtime.models.user.reading`; or it is a list with
a tuple (inputs, targets) for each micro-batch. Only processes with a block that reads need one. It does not
know what the blocks compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.core.options import ModelOptions
from runtime.models.user.packing import Forms
from runtime.models.user.reading import INPUTS, TARGETS, Reading, ReadNames, Sample
from runtime.models.user.seeds import digest

Pair = tuple[Any, Any]
"""Inputs and targets of a micro-batch."""


class BatchError(ValueError):
    """A batch that the pipeline's blocks cannot read; the message names the part and the remedy."""


class BatchData:
    """The batch that was taken last, for the blocks of a process that read.

    Attributes:
        varies: Whether tensors may have other shapes in each micro-batch.
        num_graphs: Number of separate graphs of blocks, each of which reads its own micro-batches.
        is_first: Whether a block of this process reads inputs.
        is_last: Whether a block of this process computes a loss, for which it reads targets.
        reads: Whether any does.

    Args:
        device_index: The process's device in the placement.
        model: Options with the seed and the type of all floats.
        weighs: Whether losses have weights: then a process with a loss reads the targets of all losses, of
            which its own is a part.
        names: Names of the arguments of all blocks' modules, as far as `cut` knows them.
    """

    def __init__(
        self,
        placement: Placement,
        device_index: int,
        model: ModelOptions,
        device: torch.device,
        weighs: bool = False,
        names: ReadNames | None = None,
        varies: bool = False,
    ) -> None:
        self.varies, self._forms, self._seed = varies, list[Mapping[str, Forms]](), model.seed
        self._num_shares = {block.name: block.num_shares for block in placement.blocks}
        self._reading = Reading(
            placement, names or {}, model, device, lambda reason: BatchError(f"batch: {reason}")
        )
        self.num_graphs = self._reading.num_graphs
        local = {block.name for block in placement.on(device_index) if block.kind is Kind.F}
        self._begins, ends = (
            [block for block in readers if block in local] for readers in self._reading.blocks.values()
        )
        self._weighed = self._reading.blocks[TARGETS] if weighs and ends else ends
        self.is_first, self.is_last = bool(self._begins), bool(ends)
        self.reads = self.is_first or self.is_last
        self._first: dict[tuple[str, str], list[tuple[int, ...]]] = {}
        self._read: dict[tuple[str, int], Sample] = {}

    def check(self, batch: Any) -> None:
        """Ensure that some block, of this process or of another, reads each name in a batch.

        Raises:
            BatchError: No block does.
        """
        for pair in batch if _has_pairs(batch) else [batch]:
            if isinstance(pair, (tuple, list)) and len(pair) == 2:
                for what, part in zip(self._reading.blocks, pair, strict=True):
                    self._reading.check(part, what)

    def take(self, batch: Any, num_micro_batches: int | None) -> int:
        """Let the blocks read from this batch; return how many micro-batches it has for each of them.

        Args:
            batch: See the module's docstring.
            num_micro_batches: Number that it must have; None for as many as there are samples for.

        Raises:
            BatchError: It cannot be cut so, lacks what a block reads, has what no block reads, or its tensors
                have other shapes than those of the first batch.
        """
        count = None if num_micro_batches is None else num_micro_batches * self.num_graphs
        of_first = (shape[0] for shapes in self._first.values() for shape in shapes if shape)
        pairs = micro_batches(batch, count, next(of_first, None))
        if len(pairs) % self.num_graphs:
            raise BatchError(
                f"batch: has {len(pairs)} micro-batches for {self.num_graphs} separate graphs of blocks; "
                f"give a multiple of {self.num_graphs}"
            )
        number = len(pairs) // self.num_graphs
        self._read, self._forms = {}, []
        for block in dict.fromkeys((*self._begins, *self._weighed)):
            for n in range(number):
                inputs, targets = pairs[n * self.num_graphs + self._reading.graph_of[block]]
                self._read[block, n] = Sample(
                    self._tensors(inputs, block, INPUTS) if block in self._begins else (),
                    self._tensors(targets, block, TARGETS) if block in self._weighed else (),
                    0,
                )
        return number

    def read(self, block: str, iteration: int, micro_batch: int) -> Sample:
        """Return a block's sample of a micro-batch."""
        seed = digest(self._seed, block, iteration, micro_batch)
        forms = self._forms[micro_batch] if self._forms else None
        return self._read.get((block, micro_batch), Sample((), (), 0))._replace(seed=seed, forms=forms)

    def shapes(self, micro_batch: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all that this process reads of a micro-batch."""
        read = (sample for (_, n), sample in self._read.items() if n == micro_batch)
        return tuple(tuple(value.shape) for sample in read for value in (*sample.inputs, *sample.targets))

    def know(self, forms: Sequence[Mapping[str, Forms]]) -> None:
        """Take over the forms that all blocks hand over in each micro-batch of the batch that was taken."""
        self._forms = list(forms)

    def _tensors(self, part: Any, block: str, what: str) -> tuple[Tensor, ...]:
        values = self._reading.tensors(part, block, what)
        shapes = [tuple(value.shape) for value in values]
        first = self._first.setdefault((block, what), shapes)
        if self.varies:
            count = self._num_shares[block]
            if odd := [shape for shape in shapes if not shape or shape[0] % count]:
                raise BatchError(
                    f"batch: the {what} of a micro-batch of {block} are of shape {odd[0]}, which its {count} "
                    f"data-parallel groups cannot share; give a multiple of {count} samples"
                )
        elif shapes != first:
            raise BatchError(
                f"batch: the {what} of a micro-batch of {block} are of shapes {shapes}, and were {first} in "
                "the first step, as its messages are; pad or cut them to these, or use Pipeline(unequal=True)"
            )
        return values


def micro_batches(batch: Any, count: int | None, num_samples: int | None = None) -> list[Pair]:
    """Cut a batch into micro-batches of equal size, along dimension 0 of all its tensors.

    Args:
        batch: See the module's docstring.
        count: How many; None for as many as there are samples for.
        num_samples: Samples of a micro-batch, where `count` is None.

    Raises:
        BatchError: It is of another form, or its samples make no equal micro-batches.

    >>> pairs = micro_batches((torch.arange(4), {"F3": torch.zeros(4, 1)}), 2)
    >>> [(inputs.tolist(), list(targets["F3"].shape)) for inputs, targets in pairs]
    [([0, 1], [2, 1]), ([2, 3], [2, 1])]
    """
    if _has_pairs(batch):
        if count is not None and len(batch) != count:
            raise BatchError(
                f"batch: is a list of {len(batch)} micro-batches instead of {count}; give {count}"
            )
        return list(batch)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        raise BatchError(
            f"batch: is a {type(batch).__name__}{length}; give the pair (inputs, targets), or a list with "
            "such a tuple for each micro-batch"
        )
    sizes = sorted({value.shape[0] if value.dim() else 0 for value in _tensors_in(batch)})
    if len(sizes) != 1:
        raise BatchError(
            f"batch: its tensors have {' and '.join(map(str, sizes)) or 'no'} samples; let dimension 0 of "
            "each be the samples, or give a list with a tuple (inputs, targets) for each micro-batch"
        )
    if count is None:
        count = sizes[0] // num_samples if num_samples and sizes[0] % num_samples == 0 else 0
        if not count:
            raise BatchError(
                f"batch: {sizes[0]} samples make no whole micro-batches of {num_samples}; give a multiple"
            )
    if not sizes[0] or sizes[0] % count:
        raise BatchError(
            f"batch: {sizes[0]} samples make no {count} equal micro-batches; give a multiple of {count}"
        )
    size = sizes[0] // count
    return [(_part(batch[0], n * size, size), _part(batch[1], n * size, size)) for n in range(count)]


def _has_pairs(batch: Any) -> bool:
    """Tell whether a batch is a list with a tuple (inputs, targets) for each micro-batch."""
    is_list = isinstance(batch, list) and bool(batch)
    return is_list and all(isinstance(pair, tuple) and len(pair) == 2 for pair in batch)


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a nest, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, Mapping)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(inner)


def _part(value: Any, first: int, length: int) -> Any:
    """Return a nest with a part of each tensor's samples."""
    if isinstance(value, Tensor):
        return value.narrow(0, first, length)
    if isinstance(value, Mapping):
        return {name: _part(inner, first, length) for name, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_part(inner, first, length) for inner in value)
    return value
