"""Tensor specs of messages: the shape and element type of the tensor that a block hands to another.

On the wire nothing says what a message is. So each device's program does, and both ends are compared
before anything starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from placements.forms.reading import Field

TOKENS = -1
"""A size of a shape: one for each token of a sample of the micro-batch; -2 is two for each, and so on."""

_TOKENS_TEXT = "tokens"

TensorEdge = tuple[str, str]
"""(producer, consumer): the block that makes a tensor, and the one that takes it."""


class TensorSpec(NamedTuple):
    """Shape and element type of a tensor, known before it is there.

    Attributes:
        dtype: Name of its element type, as in torch.
        shape: Its sizes, of which one may be a multiple of `TOKENS`; empty for a scalar.
    """

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, dtype: object, shape: Iterable[int]) -> TensorSpec:
        """Return the spec of tensors of an element type of torch."""
        return cls(str(dtype).removeprefix("torch."), tuple(shape))

    def with_tokens(self, count: int) -> TensorSpec:
        """Return the spec of a micro-batch, given the tokens of its samples."""
        return TensorSpec(self.dtype, tuple(size if size >= 0 else -size * count for size in self.shape))

    @property
    def varies(self) -> bool:
        """Whether its shape depends on the tokens of the micro-batch."""
        return any(size < 0 for size in self.shape)

    def fits(self, dtype: object, shape: Iterable[int]) -> bool:
        """Return whether a tensor, of any number of tokens, has this form."""
        other = TensorSpec.of(dtype, shape)
        return (self.dtype, len(self.shape)) == (other.dtype, len(other.shape)) and all(
            mine == size or (mine < 0 and size % mine == 0)
            for mine, size in zip(self.shape, other.shape, strict=True)
        )

    def num_bytes(self, element_bytes: int, tokens: int) -> int:
        """Return the size of a tensor in bytes."""
        return math.prod(self.with_tokens(tokens).shape) * element_bytes

    def __str__(self) -> str:
        """Return it as errors name it."""
        return f"{self.dtype} {_sizes(self.shape)}".replace("'", "")


TensorSpecs = Mapping[TensorEdge, TensorSpec]
"""The spec of what each (producer, consumer) hands over, the same for every micro-batch."""


def specs_to_plain(specs: TensorSpecs) -> list[dict[str, Any]]:
    """Return specs as plain data: each different one once, with all that have it.

    >>> hidden = TensorSpec("float64", (2, 4))
    >>> specs_to_plain({("F0", "F1"): hidden, ("B1", "B0"): hidden})
    [{'dtype': 'float64', 'shape': (2, 4), 'edges': [('F0', 'F1'), ('B1', 'B0')]}]
    """
    edges: dict[TensorSpec, list[TensorEdge]] = {}
    for edge, spec in specs.items():
        edges.setdefault(spec, []).append(edge)
    return [
        {"dtype": spec.dtype, "shape": _sizes(spec.shape), "edges": group} for spec, group in edges.items()
    ]


def _sizes(shape: tuple[int, ...]) -> tuple[int | str, ...]:
    return tuple(
        size if size >= 0 else _TOKENS_TEXT if size == TOKENS else f"{-size} {_TOKENS_TEXT}" for size in shape
    )


def specs_from_plain(field: Field) -> dict[TensorEdge, TensorSpec]:
    """Return the specs of plain data as of `specs_to_plain`; another form, or an edge twice, is an error."""
    specs: dict[TensorEdge, TensorSpec] = {}
    for row in field.items("a list of forms"):
        row.only(("dtype", "shape", "edges"))
        dtype = row["dtype"].text("the name of a type", "give one such as 'float64'")
        spec = TensorSpec(dtype, tuple(map(_size, row["shape"].items("a list of sizes"))))
        for edge in row["edges"].typed(tuple[tuple[str, str], ...]):
            if edge in specs:
                raise row.mistake(f"{edge[0]} -> {edge[1]} has a form already; give one only")
            specs[edge] = spec
    return specs


def _size(field: Field) -> int:
    match = re.fullmatch(rf"(?:([1-9]\d*) )?{_TOKENS_TEXT}", str(field.value))
    if match:
        return TOKENS * int(match[1] or 1)
    return field.whole("a size", f"give a whole number from 0 on, or {_TOKENS_TEXT!r}", 0)
