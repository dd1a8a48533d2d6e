"""What all blocks hand over, by the sizes of what a micro-batch reads, where micro-batches differ.

Most modules return sizes that are linear in the sizes of what they read: of a sequence of twice the length,
twice the positions. So few micro-batches are run to find the shapes of all: those on a line between two that
are known, or on a plane, need not be. It does not know how blocks are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from runtime.models.user.packing import Forms
from runtime.program.tensor_spec import TensorSpec

ReadShapes = tuple[tuple[tuple[int, ...], ...], ...]
"""The shapes of what a micro-batch reads, by process."""

_EXACT = 1e-6
"""How far a size may be from a whole number."""


class KnownForms:
    """Forms of what blocks hand over, of micro-batches that were run."""

    def __init__(self) -> None:
        """Know none."""
        self._known: dict[ReadShapes, Mapping[str, Forms]] = {}

    def add(self, read: ReadShapes, forms: Mapping[str, Forms]) -> None:
        """Keep what blocks hand over in a micro-batch."""
        self._known[read] = forms

    def of(self, read: ReadShapes) -> Mapping[str, Forms] | None:
        """Return what blocks hand over in a micro-batch; None where it has to be run.

        >>> known = KnownForms()
        >>> for length in (4, 6):
        ...     known.add((((2, length),),), {"F0": (TensorSpec("float32", (2, length + 1, 8)),)})
        >>> str(known.of((((2, 9),),))["F0"][0]), known.of((((3, 9),),))
        ('float32 (2, 10, 8)', None)
        """
        if read in self._known:
            return self._known[read]
        alike = [each for each in self._known if _ranks(each) == _ranks(read)]
        if len(alike) < 2:
            return None
        parts = _weights([_sizes(each) for each in alike], _sizes(read))
        forms = [self._known[each] for each in alike]
        if parts is None or any(_kinds(each) != _kinds(forms[0]) for each in forms):
            return None
        found: dict[str, Forms] = {}
        for block, of_first in forms[0].items():
            shapes = [_mixed([each[block][i].shape for each in forms], parts) for i in range(len(of_first))]
            if None in shapes:
                return None
            found[block] = tuple(
                TensorSpec(form.dtype, shape or ()) for form, shape in zip(of_first, shapes, strict=True)
            )
        return found


def _ranks(read: ReadShapes) -> list[list[int]]:
    return [[len(shape) for shape in shapes] for shapes in read]


def _kinds(forms: Mapping[str, Forms]) -> list[tuple[str, str, int]]:
    return [(block, form.dtype, len(form.shape)) for block in forms for form in forms[block]]


def _sizes(read: ReadShapes) -> list[int]:
    return [1, *chain.from_iterable(chain.from_iterable(read))]


def _weights(known: Sequence[Sequence[int]], wanted: Sequence[int]) -> Tensor | None:
    """Return factors of what is known that add up to what is wanted; None if there are none."""
    table, goal = (torch.tensor(rows, dtype=torch.float64) for rows in (known, [wanted]))
    parts = torch.linalg.pinv(table.T) @ goal.T
    return parts if torch.allclose(table.T @ parts, goal.T, rtol=0, atol=_EXACT) else None


def _mixed(shapes: Sequence[tuple[int, ...]], parts: Tensor) -> tuple[int, ...] | None:
    """Return the sum of shapes, each times its factor; None if that is no shape."""
    sizes = (torch.tensor(shapes, dtype=torch.float64).T @ parts).flatten()
    if bool((sizes < -_EXACT).any()) or not torch.allclose(sizes, sizes.round(), rtol=0, atol=_EXACT):
        return None
    return tuple(int(size) for size in sizes.round())
