"""What messages carry: the shape and element type of the tensor that a block hands to another.

On the wire nothing says what a message is. So each device's program does, and both ends are compared
before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Edge = tuple[str, str]
"""(producer, consumer): the block that makes a tensor, and the one that takes it."""


class TensorSpecError(ValueError):
    """Data are not a table of forms; the message names the place and the remedy in one line."""


class TensorSpec(NamedTuple):
    """What is known of a tensor before it is there.

    Attributes:
        dtype: Name of its element type, as in torch.
        shape: Its sizes; empty for a scalar.
    """

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, dtype: object, shape: Iterable[int]) -> TensorSpec:
        """Return the spec of tensors of an element type of torch."""
        return cls(str(dtype).removeprefix("torch."), tuple(shape))

    def __str__(self) -> str:
        """Return it as errors name it."""
        return f"{self.dtype} {self.shape}"


TensorSpecs = Mapping[Edge, TensorSpec]
"""The spec of what each (producer, consumer) hands over, the same for every micro-batch."""


def specs_to_plain(specs: TensorSpecs) -> list[dict[str, Any]]:
    """Return specs as plain data: each different one once, with all that have it.

    >>> hidden = TensorSpec("float64", (2, 4))
    >>> specs_to_plain({("F0", "F1"): hidden, ("B1", "B0"): hidden})
    [{'dtype': 'float64', 'shape': (2, 4), 'edges': [('F0', 'F1'), ('B1', 'B0')]}]
    """
    edges: dict[TensorSpec, list[Edge]] = {}
    for edge, spec in specs.items():
        edges.setdefault(spec, []).append(edge)
    return [{"dtype": spec.dtype, "shape": spec.shape, "edges": found} for spec, found in edges.items()]


def specs_from_plain(data: object, where: str) -> dict[Edge, TensorSpec]:
    """Return the specs of plain data.

    Args:
        data: As `specs_to_plain` returns it; lists may stand for tuples.
        where: What to call the data in an error.

    Raises:
        TensorSpecError: They are something else, or name an edge twice.
    """
    if not isinstance(data, (list, tuple)):
        raise TensorSpecError(f"{where}: is not a list of forms; give one")
    specs: dict[Edge, TensorSpec] = {}
    for index, row in enumerate(data):
        spec, edges = _row(row, f"{where}[{index}]")
        for edge in edges:
            if edge in specs:
                raise TensorSpecError(
                    f"{where}[{index}]: {edge[0]} -> {edge[1]} has a form already; give one only"
                )
            specs[edge] = spec
    return specs


def _row(row: object, where: str) -> tuple[TensorSpec, list[Edge]]:
    if not isinstance(row, Mapping) or set(row) != {"dtype", "shape", "edges"}:
        raise TensorSpecError(f"{where}: is not a mapping of dtype, shape and edges; give these")
    dtype, shape, edges = row["dtype"], row["shape"], row["edges"]
    if not isinstance(dtype, str):
        raise TensorSpecError(
            f"{where}.dtype: {dtype!r} is not the name of a type; give one such as 'float64'"
        )
    if not isinstance(shape, (list, tuple)) or not all(type(size) is int and size >= 0 for size in shape):
        raise TensorSpecError(
            f"{where}.shape: {shape!r} is not a list of sizes; give whole numbers from 0 on"
        )
    if not isinstance(edges, (list, tuple)) or not all(_is_edge(edge) for edge in edges):
        raise TensorSpecError(
            f"{where}.edges: is not a list of (producer, consumer); give the names of blocks"
        )
    return TensorSpec(dtype, tuple(shape)), [(producer, consumer) for producer, consumer in edges]


def _is_edge(edge: object) -> bool:
    return isinstance(edge, (list, tuple)) and [type(name) for name in edge] == [str, str]
