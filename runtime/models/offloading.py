"""Tensors that autograd saves of a block, put on the host between forward and backward.

Autograd's hooks hand over each tensor that a forward saves, and ask for it in the backward. The inputs and
weights of the block, which it keeps anyway, stay where they are (torch's `save_on_cpu` would copy them too,
and shared memory once for each tensor). All other memory is copied to the host as it is when saved, each
piece once, however many tensors share it. On a GPU the host's memory is pinned and the copies are work of the
stream that the block computes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

_Key = tuple[int, int]
"""Address of a piece of memory while the forward runs, and how often it has been written to."""


class Offloaded:
    """Autograd's saved tensors of one forward block and micro-batch, except tensors kept on the device."""

    def __init__(self, kept: Iterable[Tensor]) -> None:
        self._kept = {tensor.untyped_storage().data_ptr() for tensor in kept}
        self._alive: list[Tensor] = []
        self._pieces: dict[_Key, Tensor] = {}
        self._devices: dict[_Key, torch.device] = {}

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Put everything on the host that autograd saves meanwhile."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield
        self._alive = []

    @property
    def host_bytes(self) -> int:
        """Bytes on the host, until they are brought back."""
        return sum(self._pieces[key].nbytes for key in self._devices)

    def bring_back(self) -> None:
        """Put all pieces on their devices again."""
        for key, device in self._devices.items():
            self._pieces[key] = self._pieces[key].to(device, non_blocking=True, copy=True)
        self._devices = {}

    def _pack(self, tensor: Tensor) -> Tensor | Callable[[], Tensor]:
        """Return a stand-in for a tensor until the backward."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return tensor.detach()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._kept:
            return tensor if tensor.is_leaf else tensor.detach()  # itself, it would keep its own graph alive
        key = storage.data_ptr(), tensor._version
        if key not in self._pieces:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            whole.set_(storage, 0, (storage.nbytes(),), (1,))
            self._alive.append(whole)  # until the forward is over no other memory has this address
            host = torch.empty(whole.shape, dtype=whole.dtype, pin_memory=whole.is_cuda)
            self._pieces[key] = host.copy_(whole, non_blocking=True)
            self._devices[key] = tensor.device
        place = int(tensor.storage_offset()), tensor.shape, tensor.stride()
        return partial(self._rebuilt, key, tensor.dtype, *place)

    def _unpack(self, saved: Tensor | Callable[[], Tensor]) -> Tensor:
        return saved if isinstance(saved, Tensor) else saved()

    def _rebuilt(
        self, key: _Key, dtype: torch.dtype, offset: int, size: torch.Size, stride: tuple[int, ...]
    ) -> Tensor:
        piece = self._pieces[key]
        tensor = torch.empty(0, dtype=dtype, device=piece.device)
        return tensor.set_(piece.untyped_storage(), offset, size, stride)
