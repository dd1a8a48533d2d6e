"""What autograd saves of a block, put on the host between forward and backward.

Autograd's hooks hand over each tensor that a forward saves, and ask for it in the backward. What the block
keeps anyway, its inputs and its weights, stays where it is. Of everything else the memory is copied to the
host once the forward is over, each piece once, however many tensors share it, and back before the backward.
On a GPU the host's memory is pinned and the copies are work of the stream that the block computes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


class OffloadError(RuntimeError):
    """A tensor that the backward needs was changed after the forward had saved it."""


class _View(NamedTuple):
    """How a tensor lies in memory that it shares with others.

    Attributes:
        address: Of the memory while the forward ran.
        dtype: Type of its elements.
        size: Its shape.
        stride: Elements between neighbours, along each dimension.
        offset: Elements before its first.
    """

    address: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class Offloaded:
    """What autograd saved of one forward block and micro-batch.

    Args:
        kept: What the block keeps on the device anyway.
    """

    def __init__(self, kept: Iterable[Tensor]) -> None:
        """Begin with nothing saved."""
        self._kept = {tensor.untyped_storage().data_ptr() for tensor in kept}
        self._pieces: dict[int, Tensor] = {}
        self._saved: list[tuple[Tensor, int]] = []
        self._on_host: dict[int, Tensor] = {}
        self._devices: dict[int, torch.device] = {}

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Take what autograd saves meanwhile, and then put it on the host.

        Raises:
            OffloadError: Something was changed after it had been saved.
        """
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield
        for tensor, version in self._saved:
            if tensor._version != version:
                raise OffloadError(
                    f"a tensor of shape {tuple(tensor.shape)} was changed in place after it had been saved "
                    "for the backward; compute a new one"
                )
        self._saved = []
        self._on_host = {address: _to_host(piece) for address, piece in self._pieces.items()}
        self._devices = {address: piece.device for address, piece in self._pieces.items()}
        self._pieces = {}

    @property
    def host_bytes(self) -> int:
        """Bytes that it holds on the host."""
        return sum(piece.nbytes for piece in self._on_host.values())

    def bring_back(self) -> None:
        """Put all of it on the device again."""
        for address, piece in self._on_host.items():
            self._pieces[address] = piece.to(self._devices[address], non_blocking=True, copy=True)
        self._on_host = {}

    def _pack(self, tensor: Tensor) -> Tensor | _View:
        """Return what stands for a tensor until the backward."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return tensor.detach()
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address in self._kept:
            return tensor if tensor.is_leaf else tensor.detach()  # itself, it would keep its own graph alive
        if address not in self._pieces:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            self._pieces[address] = whole.set_(storage, 0, (storage.nbytes(),), (1,))
        self._saved.append((tensor.detach(), tensor._version))
        return _View(address, tensor.dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def _unpack(self, saved: Tensor | _View) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        piece = self._pieces[saved.address]
        found = torch.empty(0, dtype=saved.dtype, device=piece.device)
        return found.set_(piece.untyped_storage(), saved.offset, saved.size, saved.stride)


def _to_host(piece: Tensor) -> Tensor:
    """Return a copy on the host, pinned where a GPU copies it."""
    copy = torch.empty(piece.shape, dtype=piece.dtype, pin_memory=piece.is_cuda)
    return copy.copy_(piece, non_blocking=True)
