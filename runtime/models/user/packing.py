"""Several tensors as one of the model's type, because a block hands over one tensor to another.

Where all have as many samples, which are dimension 0, so has the one: it can be cut into shares of them.
Floats and complex numbers of no more digits than the model's type travel as such numbers, and their gradients
come back. Whole numbers, truth values (masks, positions) and floats of more digits travel as they are in
memory: their bytes are read as if they were numbers of the model's type, filled up with zeros, and read back
at the other end.

One of several tensors may have no gradient. Then negative zeros stand for it: they change no sum, and stay
when they are added up, cut or put together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from runtime.models.core.options import ModelError
from runtime.program.tensor_spec import TensorSpec

Forms = tuple[TensorSpec, ...]
"""Forms of the tensors that a block hands over."""


def forms_of(tensors: Sequence[Tensor]) -> Forms:
    """Return the forms of tensors."""
    return tuple(TensorSpec.of(tensor.dtype, tensor.shape) for tensor in tensors)


def packed(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return a single tensor of a type as it is; else several ones beside each other, by sample or flat."""
    if len(tensors) == 1 and tensors[0].dtype == dtype:
        return tensors[0]
    by_sample = have_samples(forms_of(tensors))
    num_rows = len(tensors[0]) if by_sample else 1
    rows: Tensor = _Joined.apply(*(_as_numbers(tensor, num_rows, dtype) for tensor in tensors))  # type: ignore[no-untyped-call]
    return rows if by_sample else rows.flatten()


def packed_shape(forms: Forms, dtype: torch.dtype) -> tuple[int, ...]:
    """Return the shape of `packed` tensors of these forms."""
    if len(forms) == 1 and _dtype(forms[0]) == dtype:
        return forms[0].shape
    width = sum(_widths(forms, dtype))
    return (forms[0].shape[0], width) if have_samples(forms) else (width,)


def unpacked(value: Tensor, forms: Forms) -> list[Tensor]:
    """Return the tensors again that `packed` made one of.

    Args:
        value: Value of all samples, or of a share of them.
        forms: Forms of the tensors for all samples.

    >>> forms = forms_of([torch.ones(1, 2), torch.zeros(3)])
    >>> [part.tolist() for part in unpacked(packed([torch.ones(1, 2), torch.zeros(3)], torch.float32), forms)]
    [[[1.0, 1.0]], [0.0, 0.0, 0.0]]
    >>> pair = [torch.ones(2, 1), torch.tensor([True, False])]
    >>> [part.tolist() for part in unpacked(packed(pair, torch.float32)[:1], forms_of(pair))]
    [[[1.0]], [True]]
    """
    if len(forms) == 1 and _dtype(forms[0]) == value.dtype:
        return [value]
    by_sample = have_samples(forms)
    rows = value.reshape(len(value) if by_sample else 1, -1)
    if (width := sum(_widths(forms, value.dtype))) < 0:  # so many for each token
        forms = tuple(form.with_tokens(-rows.shape[1] // width) for form in forms)
    parts = _Parted.apply(rows, _widths(forms, value.dtype))  # type: ignore[no-untyped-call]
    return [_as_before(part, form, by_sample) for part, form in zip(parts, forms, strict=True)]


def have_samples(forms: Forms) -> bool:
    """Tell whether tensors of these forms have as many samples each: dimension 0."""
    return all(form.shape and form.shape[0] == forms[0].shape[0] for form in forms)


def _dtype(form: TensorSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, form.dtype)
    return dtype


def _numbers(element: torch.dtype, dtype: torch.dtype) -> int:
    """Return how many numbers of a type an element takes if it travels as numbers; 0 if as bytes."""
    fits = element.is_floating_point or element.is_complex
    return (1 + element.is_complex) * (fits and torch.promote_types(element.to_real(), dtype) == dtype)


def _widths(forms: Forms, dtype: torch.dtype) -> list[int]:
    """Return how many numbers of a type the tensors take in each row."""
    sizes = [math.prod(form.shape[int(have_samples(forms)) :]) for form in forms]
    return [
        size * (_numbers(_dtype(form), dtype) or 0) or -(-size * _dtype(form).itemsize // dtype.itemsize)
        for form, size in zip(forms, sizes, strict=True)
    ]


def _as_numbers(tensor: Tensor, num_rows: int, dtype: torch.dtype) -> Tensor:
    if _numbers(tensor.dtype, dtype):
        tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        return tensor.reshape(num_rows, -1).to(dtype)
    if tensor.requires_grad:
        raise ModelError(
            f"module: a gradient of {tensor.dtype} cannot be handed over in {dtype}; hand the tensor over "
            "without one (detach it), or compute it again in the block that needs it"
        )
    data = tensor.reshape(num_rows, -1).resolve_conj().contiguous().view(torch.uint8)
    return torch.nn.functional.pad(data, (0, -data.shape[1] % dtype.itemsize)).view(dtype)


def _as_before(part: Tensor, form: TensorSpec, by_sample: bool) -> Tensor:
    shape = (len(part), *form.shape[1:]) if by_sample else form.shape
    dtype = _dtype(form)
    if not _numbers(dtype, part.dtype):
        num_bytes = math.prod(shape) // max(len(part), 1) * dtype.itemsize
        part = part.detach().contiguous().view(torch.uint8)[:, :num_bytes].contiguous().view(dtype)
    elif dtype.is_complex:
        part = torch.view_as_complex(part.to(dtype.to_real()).reshape(*shape, 2).contiguous())
    return part.to(dtype).reshape(shape)


def absent_as(tensor: Tensor) -> Tensor:
    """Return a stand-in for a missing gradient of a tensor."""
    return torch.full_like(tensor, -0.0, memory_format=torch.contiguous_format)


def is_absent(gradient: Tensor) -> bool:
    """Tell whether a gradient stands for none; the host waits for a GPU that computes it.

    >>> is_absent(absent_as(torch.ones(2))), is_absent(torch.zeros(2))
    (True, False)
    """
    first = gradient[(0,) * gradient.dim()] if gradient.numel() else None
    if first is None or float(first) != 0 or not bool(torch.signbit(first)):
        return False
    return bool((torch.signbit(gradient) & (gradient == 0)).all())


class _Joined(torch.autograd.Function):
    """Rows beside each other; stand-ins for missing gradients end here."""

    @staticmethod
    def forward(context: Any, *rows: Tensor) -> Tensor:
        context.widths = [row.shape[1] for row in rows]
        return torch.cat(rows, 1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        parts = torch.split(gradient, context.widths, 1)
        return tuple(None if not part.is_cuda and is_absent(part) else part for part in parts)


class _Parted(torch.autograd.Function):
    """Rows cut into parts; those without a gradient get a stand-in."""

    @staticmethod
    def forward(context: Any, rows: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
        context.set_materialize_grads(False)
        parts = torch.split(rows, list(widths), 1)
        context.absent = [absent_as(part.new_empty(1, 1)).expand_as(part) for part in parts]
        return parts

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        if all(gradient is None for gradient in gradients):
            return None, None
        pairs = zip(gradients, context.absent, strict=True)
        return torch.cat([absent if gradient is None else gradient for gradient, absent in pairs], 1), None
