"""Forms of tensors between blocks, by the sizes of a micro-batch's data, where micro-batches differ.

Most modules return sizes that are linear in the sizes of their data: of a sequence of twice the length, twice
the positions. So few micro-batches are run to find the forms of all: those on a line between two that are
known, or on a plane, need not be. It does not know how blocks are run.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np

from runtime.models.user.packing import Forms
from runtime.program.tensor_spec import TensorSpec

ReadShapes = tuple[tuple[tuple[int, ...], ...], ...]
"""The shapes of the data of a micro-batch, by process."""

_EXACT = 1e-6
"""Difference of a size from a whole number that is rounding."""


class KnownForms:
    """Forms of tensors between blocks, of micro-batches that were run."""

    def __init__(self) -> None:
        self._known: dict[ReadShapes, Mapping[str, Forms]] = {}

    def add(self, read: ReadShapes, forms: Mapping[str, Forms]) -> None:
        """Keep the forms of a micro-batch, by block."""
        self._known[read] = forms

    def of(self, read: ReadShapes) -> Mapping[str, Forms] | None:
        """Return the forms of a micro-batch; None where it has to be run.

        >>> known = KnownForms()
        >>> for length in (4, 6):
        ...     known.add((((2, length),),), {"F0": (TensorSpec("float32", (2, length + 1, 8)),)})
        >>> str(known.of((((2, 9),),))["F0"][0]), known.of((((3, 9),),))
        ('float32 (2, 10, 8)', None)
        """
        if read in self._known:
            return self._known[read]
        forms = {each: own for each, own in self._known.items() if _ranks(each) == _ranks(read)}
        kinds = [[(b, s.dtype, len(s.shape)) for b in own for s in own[b]] for own in forms.values()]
        if len(forms) < 2 or any(own != kinds[0] for own in kinds):
            return None
        given, wanted = np.array([_sizes(each) for each in forms], float).T, np.array(_sizes(read), float)
        parts = np.linalg.pinv(given) @ wanted
        returned = [[n for own in each.values() for s in own for n in s.shape] for each in forms.values()]
        sizes = parts @ np.array(returned, float)
        whole = sizes.round()
        if not np.allclose(given @ parts, wanted, 0, _EXACT) or not np.allclose(sizes, whole, 0, _EXACT):
            return None
        if (whole < 0).any():
            return None
        rest = iter(whole.astype(int).tolist())
        return {
            block: tuple(TensorSpec(spec.dtype, tuple(next(rest) for _ in spec.shape)) for spec in own)
            for block, own in next(iter(forms.values())).items()
        }


def _ranks(read: ReadShapes) -> list[list[int]]:
    return [[len(shape) for shape in shapes] for shapes in read]


def _sizes(read: ReadShapes) -> list[int]:
    return [1, *chain.from_iterable(chain.from_iterable(read))]
