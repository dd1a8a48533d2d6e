"""Several tensors as one of the model's type, because a block hands over one tensor to another.

Where all have as many samples, which are dimension 0, so has the one: it can be cut into shares of them.
Whole numbers and truth values (masks, positions) travel as they are in memory: their bytes are read as if
they were numbers of the model's type, filled up with zeros, and read back at the other end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.program.tensor_spec import TensorSpec

Forms = tuple[TensorSpec, ...]
"""The forms of the tensors that a block hands over."""


def forms_of(tensors: Sequence[Tensor]) -> Forms:
    """Return the forms of tensors."""
    return tuple(TensorSpec.of(tensor.dtype, tensor.shape) for tensor in tensors)


def packed(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return a single tensor of a type as it is; else several ones beside each other, by sample or flat."""
    if len(tensors) == 1 and tensors[0].dtype == dtype:
        return tensors[0]
    num_rows = len(tensors[0]) if have_samples(forms_of(tensors)) else 1
    rows = torch.cat([_as_numbers(tensor.reshape(num_rows, -1), dtype) for tensor in tensors], 1)
    return rows if have_samples(forms_of(tensors)) else rows.flatten()


def packed_shape(forms: Forms, dtype: torch.dtype) -> tuple[int, ...]:
    """Return the shape of what `packed` returns for tensors of these forms."""
    if len(forms) == 1 and _dtype(forms[0]) == dtype:
        return forms[0].shape
    width = sum(_widths(forms, dtype))
    return (forms[0].shape[0], width) if have_samples(forms) else (width,)


def unpacked(value: Tensor, forms: Forms) -> list[Tensor]:
    """Return the tensors again that `packed` made one of.

    Args:
        value: Of all samples, or of a share of them.
        forms: Of the tensors for all samples.

    >>> forms = forms_of([torch.ones(1, 2), torch.zeros(3)])
    >>> [part.tolist() for part in unpacked(packed([torch.ones(1, 2), torch.zeros(3)], torch.float32), forms)]
    [[[1.0, 1.0]], [0.0, 0.0, 0.0]]
    >>> pair = [torch.ones(2, 1), torch.tensor([True, False])]
    >>> [part.tolist() for part in unpacked(packed(pair, torch.float32)[:1], forms_of(pair))]
    [[[1.0]], [True]]
    """
    if len(forms) == 1 and _dtype(forms[0]) == value.dtype:
        return [value]
    num_rows = len(value) if have_samples(forms) else 1
    parts = torch.split(value.reshape(num_rows, -1), _widths(forms, value.dtype), 1)
    return [_as_before(part, form, have_samples(forms)) for part, form in zip(parts, forms, strict=True)]


def have_samples(forms: Forms) -> bool:
    """Tell whether tensors of these forms have as many samples each: dimension 0."""
    return all(form.shape and form.shape[0] == forms[0].shape[0] for form in forms)


def _dtype(form: TensorSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, form.dtype)
    return dtype


def _widths(forms: Forms, dtype: torch.dtype) -> list[int]:
    """Return how many numbers of a type the tensors take in each row."""
    first = 1 if have_samples(forms) else 0
    sizes = [math.prod(form.shape[first:]) for form in forms]
    return [
        size if _dtype(form) == dtype else -(-size * _dtype(form).itemsize // dtype.itemsize)
        for form, size in zip(forms, sizes, strict=True)
    ]


def _as_numbers(rows: Tensor, dtype: torch.dtype) -> Tensor:
    if rows.dtype == dtype:
        return rows
    data = rows.contiguous().view(torch.uint8)
    missing = -data.shape[1] % dtype.itemsize
    return torch.nn.functional.pad(data, (0, missing)).view(dtype)


def _as_before(part: Tensor, form: TensorSpec, has_samples: bool) -> Tensor:
    shape = (len(part), *form.shape[1:]) if has_samples else form.shape
    dtype = _dtype(form)
    if part.dtype != dtype:
        num_bytes = math.prod(shape) // max(len(part), 1) * dtype.itemsize
        part = part.detach().contiguous().view(torch.uint8)[:, :num_bytes].contiguous().view(dtype)
    return part.reshape(shape)
