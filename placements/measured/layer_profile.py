"""Time and memory of each layer of a model, as measured on one type of GPU.

They depend on the size of a micro-batch and on how many GPUs share a layer. The module does not know stages,
replicas or links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import numpy as np

from placements.meaning import Meaning
from placements.plain_data import json_file

FLOAT_BYTES = 4
"""Size of a weight, a gradient or an activation: 32 bits."""

_UPDATE_BYTES = 28
"""Bytes per weight that an Adam step in 32 bits moves: weight, gradient and two moments read, all but the
gradient written."""

_ACCUMULATED_BYTES = 12
"""Bytes per weight that adding a micro-batch's gradient to those before moves: two read, one written."""

_LOOKUP_WEIGHT_BYTES = 4
"""Bytes per weight of an embedding's backward: the table's gradient set to zero."""

_LOOKUP_OUTPUT_BYTES = 12
"""Bytes per float of its output: the gradient read, and added to a row of the table's."""


class LayerProfileError(ValueError):
    """A file of a profile is wrong; the message names the field, the value and the remedy in one line."""


class NotProfiledError(ValueError):
    """A size, layer or link was not measured; the message says which were."""


@dataclass(frozen=True)
class LayerMemory:
    """Memory of a layer on each GPU that shares it, for one sequence."""

    parameters: Annotated[int, Meaning("weights", "floats", min=0, key="params_floats")]
    activation_floats: Annotated[
        int, Meaning("kept until the backward", "floats", min=0, key="act_mem_floats")
    ]
    output_floats: Annotated[
        int, Meaning("passed on, whole, not a GPU's share", "floats", min=0, key="act_output_floats")
    ]


class LayerSeconds(NamedTuple):
    """Times of a layer as the file has them, in a list."""

    forward: Annotated[float, Meaning("forward of a micro-batch", "s", min=0, max=1e6)]
    backward: Annotated[float, Meaning("its backward", "s", min=0, max=1e6)]
    update: Annotated[float, Meaning("optimizer step of embedding, two blocks and head", "s", min=0, max=1e6)]


Sizes = tuple[int, int]
"""Sequences of a micro-batch, and GPUs that share each layer."""


@dataclass(frozen=True)
class LayerProfile:
    """Costs of the layers of a model on one type of GPU.

    Layer 0 is the embedding, the last one the final norm or head with the loss, and those between are blocks.
    Where a layer, its tensor parallelism or such large micro-batches were not measured, methods raise
    `NotProfiledError`.

    Attributes:
        gpu: Its name.
        layers: The ms of each layer's forward and backward in order, by the sizes that were measured.
        update_ms: One optimizer step of the model that was profiled: embedding, two blocks and head.
        memory: The memory of each layer in order, by the GPUs that share it.
    """

    gpu: str
    layers: Mapping[Sizes, tuple[tuple[float, float], ...]]
    update_ms: Mapping[Sizes, float]
    memory: Mapping[int, tuple[LayerMemory, ...]]

    @property
    def num_layers(self) -> int:
        """Layers of the model, embedding and head included."""
        return len(next(iter(self.memory.values())))

    def is_measured(self, micro_batch_size: int, tensor_parallel: int) -> bool:
        """Return whether times are as measured, and not interpolated."""
        return (micro_batch_size, tensor_parallel) in self.layers

    def times(self, micro_batch_size: int, tensor_parallel: int, layer: int) -> tuple[float, float]:
        """Return forward and backward of a layer for one micro-batch, in ms.

        Between two measured micro-batch sizes a time lies on the line through theirs. The embedding's
        backward is at least the time to move its gradients at the optimizer's bandwidth: the hooks of the
        profile do not see it.
        """
        memory, sizes = self._memory(tensor_parallel, layer), (micro_batch_size, tensor_parallel)
        forward_ms, backward_ms = self._at(*sizes, lambda each: self.layers[each][layer])
        if layer == 0:
            moved = _LOOKUP_WEIGHT_BYTES * memory.parameters
            moved += _LOOKUP_OUTPUT_BYTES * micro_batch_size * memory.output_floats
            backward_ms = max(backward_ms, self._move_ms(*sizes, moved))
        return forward_ms, backward_ms

    def step_ms(self, micro_batch_size: int, tensor_parallel: int, layers: Iterable[int]) -> float:
        """Return the optimizer step of some layers: in proportion to their weights, as memory bounds it."""
        moved = _UPDATE_BYTES * self.parameters(tensor_parallel, layers)
        return self._move_ms(micro_batch_size, tensor_parallel, moved)

    def accumulation_ms(self, micro_batch_size: int, tensor_parallel: int, layers: Iterable[int]) -> float:
        """Return the time to add the gradients of some layers to those of other micro-batches.

        The profile is of iterations of one micro-batch, which have none. It is a matter of memory too, and
        taken at the optimizer's bandwidth.
        """
        moved = _ACCUMULATED_BYTES * self.parameters(tensor_parallel, layers)
        return self._move_ms(micro_batch_size, tensor_parallel, moved)

    def parameters(self, tensor_parallel: int, layers: Iterable[int]) -> int:
        """Return the weights of some layers on each GPU."""
        return sum(self._memory(tensor_parallel, layer).parameters for layer in layers)

    def activation_bytes(self, micro_batch_size: int, tensor_parallel: int, layer: int) -> int:
        """Return what a layer keeps of one micro-batch until its backward, on each GPU."""
        return FLOAT_BYTES * micro_batch_size * self._memory(tensor_parallel, layer).activation_floats

    def output_bytes(self, micro_batch_size: int, tensor_parallel: int, layer: int) -> int:
        """Return what a layer passes on of one micro-batch, and gets back as its gradient, whole."""
        return FLOAT_BYTES * micro_batch_size * self._memory(tensor_parallel, layer).output_floats

    def _memory(self, tensor_parallel: int, layer: int) -> LayerMemory:
        if tensor_parallel not in self.memory:
            known = _listed(self.memory)
            raise NotProfiledError(
                f"tensor parallelism {tensor_parallel} has no memory profile, only {known}"
            )
        if not 0 <= layer < self.num_layers:
            raise NotProfiledError(f"layer {layer} is not of the model, whose last is {self.num_layers - 1}")
        return self.memory[tensor_parallel][layer]

    def _at(
        self, micro_batch_size: int, tensor_parallel: int, times_ms: Callable[[Sizes], Sequence[float]]
    ) -> Sequence[float]:
        """Return times of measured sizes at one in between."""
        measured = sorted(size for size, shared in self.layers if shared == tensor_parallel)
        if not measured:
            known = _listed({shared for _, shared in self.layers})
            raise NotProfiledError(
                f"tensor parallelism {tensor_parallel} has no times on {self.gpu}, only {known}"
            )
        if not measured[0] <= micro_batch_size <= measured[-1]:
            raise NotProfiledError(
                f"micro-batches of {micro_batch_size} are not within the {measured[0]} to {measured[-1]} "
                f"measured on {self.gpu} with tensor parallelism {tensor_parallel}"
            )
        if self.is_measured(micro_batch_size, tensor_parallel):
            return times_ms((micro_batch_size, tensor_parallel))
        columns = zip(*(times_ms((size, tensor_parallel)) for size in measured), strict=True)
        return [float(np.interp(micro_batch_size, measured, column)) for column in columns]

    def _move_ms(self, micro_batch_size: int, tensor_parallel: int, num_bytes: float) -> float:
        """Return the time to move so much at the bandwidth that the optimizer step reached."""
        (update_ms,) = self._at(micro_batch_size, tensor_parallel, lambda each: (self.update_ms[each],))
        last = self.num_layers - 1
        moved = _UPDATE_BYTES * self.parameters(tensor_parallel, (0, 1, min(2, last - 1), last))
        return update_ms * num_bytes / moved if moved else 0.0


_Shared = Annotated[int, Meaning("tensor parallelism", min=1)]
_Memory = Mapping[_Shared, Mapping[int, LayerMemory]]
_Times = Mapping[
    Annotated[int, Meaning("micro-batch size", min=1)], Mapping[_Shared, Mapping[int, LayerSeconds]]
]
_Entry = TypeVar("_Entry")


def read_layer_profile(times: str | Path, memory: str | Path, gpu: str) -> LayerProfile:
    """Read what the layers of a model cost on one type of GPU.

    Args:
        times: A file of ``{micro-batch size: {tensor parallelism: {layer: [forward, backward, update]}}}``
            in seconds.
        memory: A file of ``{tensor parallelism: {layer: {params_floats, act_mem_floats,
            act_output_floats}}}``.
        gpu: Its name.

    Raises:
        LayerProfileError: A file cannot be read or is wrong, or they have not the same layers.
    """
    with json_file(memory, "memory of layers", LayerProfileError) as data:
        by_shared = replace(data, is_open=True).typed(_Memory)
        held = {shared: _in_order(layers, f"{shared}") for shared, layers in by_shared.items()}
        if len({len(layers) for layers in held.values()}) != 1:
            raise LayerProfileError(
                "has not as many layers for each tensor parallelism; give the memory of the same layers"
            )
    num_layers = len(next(iter(held.values())))
    layers, update_ms = {}, {}
    with json_file(times, "times of layers", LayerProfileError) as data:
        for size, of_size in data.typed(_Times).items():
            for shared, by_layer in of_size.items():
                rows = _in_order(by_layer, f"{size}.{shared}")
                if len(rows) != num_layers:
                    raise LayerProfileError(
                        f"{size}.{shared}: has {len(rows)} layers, but {memory} {num_layers}; give the same"
                    )
                layers[size, shared] = tuple((1000 * row.forward, 1000 * row.backward) for row in rows)
                update_ms[size, shared] = 1000 * rows[0].update
    return LayerProfile(gpu, layers, update_ms, held)


def _in_order(layers: Mapping[int, _Entry], where: str) -> tuple[_Entry, ...]:
    """Return the entry of each layer; they are numbered from 0 without a gap."""
    if len(layers) < 3:
        raise LayerProfileError(
            f"{where}: has {len(layers)} layers; give at least embedding, one block and head"
        )
    missing = sorted(set(range(len(layers))) - layers.keys())
    if missing:
        raise LayerProfileError(f"{where}: lacks the field '{missing[0]}'; add it")
    return tuple(layers[number] for number in range(len(layers)))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))
