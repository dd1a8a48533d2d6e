"""What messages carry: the shape and element type of the tensor that a block hands to another.

On the wire nothing says what a message is. So each device's program does, and both ends are compared
before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Edge = tuple[str, str]
"""(producer, consumer): the block that makes a tensor, and the one that takes it."""


class FormError(ValueError):
    """Data are not a table of forms; the message names the place and the remedy in one line."""


class Form(NamedTuple):
    """The form of a tensor.

    Attributes:
        dtype: Name of its element type, as in torch.
        shape: Its sizes; empty for a scalar.
    """

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, dtype: object, shape: Iterable[int]) -> Form:
        """Return the form of tensors of an element type of torch."""
        return cls(str(dtype).removeprefix("torch."), tuple(shape))

    def __str__(self) -> str:
        """Return it as errors name it."""
        return f"{self.dtype} {self.shape}"


Forms = Mapping[Edge, Form]
"""The form of what each (producer, consumer) hands over, the same for every micro-batch."""


def forms_to_plain(forms: Forms) -> list[dict[str, Any]]:
    """Return forms as plain data: each different one once, with all that have it.

    >>> hidden = Form("float64", (2, 4))
    >>> forms_to_plain({("F0", "F1"): hidden, ("B1", "B0"): hidden})
    [{'dtype': 'float64', 'shape': (2, 4), 'edges': [('F0', 'F1'), ('B1', 'B0')]}]
    """
    edges: dict[Form, list[Edge]] = {}
    for edge, form in forms.items():
        edges.setdefault(form, []).append(edge)
    return [{"dtype": form.dtype, "shape": form.shape, "edges": found} for form, found in edges.items()]


def forms_from_plain(data: object, where: str) -> dict[Edge, Form]:
    """Return the forms of plain data.

    Args:
        data: As `forms_to_plain` returns it; lists may stand for tuples.
        where: What to call the data in an error.

    Raises:
        FormError: They are something else, or name an edge twice.
    """
    if not isinstance(data, (list, tuple)):
        raise FormError(f"{where}: is not a list of forms; give one")
    forms: dict[Edge, Form] = {}
    for index, row in enumerate(data):
        form, edges = _row(row, f"{where}[{index}]")
        for edge in edges:
            if edge in forms:
                raise FormError(f"{where}[{index}]: {edge[0]} -> {edge[1]} has a form already; give one only")
            forms[edge] = form
    return forms


def _row(row: object, where: str) -> tuple[Form, list[Edge]]:
    if not isinstance(row, Mapping) or set(row) != {"dtype", "shape", "edges"}:
        raise FormError(f"{where}: is not a mapping of dtype, shape and edges; give these")
    dtype, shape, edges = row["dtype"], row["shape"], row["edges"]
    if not isinstance(dtype, str):
        raise FormError(f"{where}.dtype: {dtype!r} is not the name of a type; give one such as 'float64'")
    if not isinstance(shape, (list, tuple)) or not all(type(size) is int and size >= 0 for size in shape):
        raise FormError(f"{where}.shape: {shape!r} is not a list of sizes; give whole numbers from 0 on")
    if not isinstance(edges, (list, tuple)) or not all(_is_edge(edge) for edge in edges):
        raise FormError(f"{where}.edges: is not a list of (producer, consumer); give the names of blocks")
    return Form(dtype, tuple(shape)), [(producer, consumer) for producer, consumer in edges]


def _is_edge(edge: object) -> bool:
    return isinstance(edge, (list, tuple)) and [type(name) for name in edge] == [str, str]
