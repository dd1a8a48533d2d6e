"""The activation memory of a device: bytes for its blocks and messages, counted from the tensors themselves.

Counted are what autograd saved between forward and backward, the inputs, outputs and gradients of blocks
under way, and the tensors of messages: posted, made and not used yet, sent and not gone. Memory that several
of them share counts once. Parameters, their gradients and the optimizer's state do not count, nor does what a
block needs only while it runs, or keeps outside of autograd. Constants that autograd saves do, such as masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models import Blocks, Model
from runtime.program.tensor_flow import KEEP


class ActivationMemory:
    """Counts the activation memory of a device.

    What autograd saves of a forward block, beside its inputs and its output, is counted when the block keeps
    it for the first time; other micro-batches of it save as much, for all shapes are the same.
    """

    def __init__(self, placement: Placement, blocks: Blocks, model: Model) -> None:
        self._unknown = {block.name for block in placement.blocks if block.kind is Kind.F}
        self._blocks = blocks
        self._model = model
        self._saved_bytes: dict[str, int] = {}

    @contextmanager
    def counting(self, block: str, arrived: Iterable[Tensor], mode: str = KEEP) -> Iterator[None]:
        """Count what autograd saves of a forward block that has not run so yet, beside what it takes.

        In a mode other than ``keep`` it saves nothing of its own.
        """
        if block not in self._unknown or mode != KEEP:
            yield
            return
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            saved.update(_storages([tensor]))
            return tensor.detach()  # itself, an output would keep alive the graph that keeps it alive

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield
        self._unknown.remove(block)
        known = [*arrived, *self._model.whole_weights()]
        known += [tensor for kept in self._blocks.saved() if kept.block == block for tensor in kept.tensors]
        self._saved_bytes[block] = sum(saved[each] for each in saved.keys() - _storages(known).keys())

    def bytes(self, tensors: Iterable[Tensor]) -> int:
        """Return the bytes kept for the blocks, and in these tensors of messages."""
        kept = list(self._blocks.saved())
        distinct = _storages(chain(tensors, *(each.tensors for each in kept)))
        saved = sum(self._saved_bytes.get(each.block, 0) for each in kept if each.has_graph)
        weights = _storages(self._model.parameters.values())  # a half of a backward keeps them too
        return saved + sum(size for at, size in distinct.items() if at not in weights)


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the size in bytes of every storage, by its address."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}
