"""Time and memory of each layer of a model, as measured on one type of GPU.

They depend on the size of a micro-batch and on how many GPUs share a layer. The module does not know stages,
replicas or links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import numpy as np

from placements.forms.meaning import Meaning
from placements.forms.reading import json_file

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


class LayerMemory(NamedTuple):
    """Memory of a layer on each of the GPUs that share the layer, for one sequence."""

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


class LayerCost(NamedTuple):
    """Cost of a layer for one micro-batch, on each of the GPUs that share the layer.

    Attributes:
        step_ms: Optimizer step: in proportion to the weights, as memory bounds it.
        accumulation_ms: Time to add its gradients to those of earlier micro-batches, at the optimizer's
            bandwidth: the profiled iterations have one micro-batch and no such sum.
        kept_bytes: Kept until its backward.
        output_bytes: Passed on, and back as its gradient, whole.
    """

    forward_ms: float
    backward_ms: float
    step_ms: float
    accumulation_ms: float
    parameters: int
    kept_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class LayerProfile:
    """Costs of the layers of a model on one type of GPU.

    Layer 0 is the embedding, the last one the final norm or head with the loss, and those between are blocks.

    Attributes:
        gpu: Its name.
        layers: Times of each layer in order, by micro-batch size and the GPUs that share it.
        memory: The memory of each layer in order, by the GPUs that share it.
    """

    gpu: str
    layers: Mapping[tuple[int, int], tuple[LayerSeconds, ...]]
    memory: Mapping[int, tuple[LayerMemory, ...]]

    @property
    def num_layers(self) -> int:
        """Layers of the model, embedding and head included."""
        return len(next(iter(self.memory.values())))

    def cost(self, micro_batch_size: int, tensor_parallel: int, layer: int) -> LayerCost:
        """Return the cost of a layer; a time lies on the line between two measured micro-batch sizes.

        The embedding's backward is at least the time to move its gradients at the optimizer's bandwidth: the
        hooks of the profile do not see it.

        Raises:
            NotProfiledError: The layer, its tensor parallelism or such micro-batches were not measured.
        """
        last, t = self.num_layers - 1, tensor_parallel
        if t not in self.memory:
            known = ", ".join(map(str, sorted(self.memory)))
            raise NotProfiledError(f"tensor parallelism {t} has no memory profile, only {known}")
        if not 0 <= layer <= last:
            raise NotProfiledError(f"layer {layer} is not of the model, whose last is {last}")
        if not (measured := sorted(size for size, shared in self.layers if shared == t)):
            known = ", ".join(map(str, sorted({shared for _, shared in self.layers})))
            raise NotProfiledError(f"tensor parallelism {t} has no times on {self.gpu}, only {known}")
        if not measured[0] <= micro_batch_size <= measured[-1]:
            raise NotProfiledError(
                f"micro-batches of {micro_batch_size} are not within the {measured[0]} to {measured[-1]} "
                f"measured on {self.gpu} with tensor parallelism {t}"
            )
        rows = [(*self.layers[size, t][layer][:2], self.layers[size, t][0].update) for size in measured]
        forward_ms, backward_ms, update_ms = (
            1000 * float(np.interp(micro_batch_size, measured, seconds))
            for seconds in zip(*rows, strict=True)
        )
        weights, kept, output = self.memory[t][layer]
        updated = sum(self.memory[t][i].parameters for i in (0, 1, min(2, last - 1), last))
        byte_ms = update_ms / (_UPDATE_BYTES * updated) if updated else 0.0
        if layer == 0:
            looked_up = _LOOKUP_WEIGHT_BYTES * weights + _LOOKUP_OUTPUT_BYTES * micro_batch_size * output
            backward_ms = max(backward_ms, byte_ms * looked_up)
        step_ms, added_ms = (byte_ms * size * weights for size in (_UPDATE_BYTES, _ACCUMULATED_BYTES))
        kept, output = (FLOAT_BYTES * micro_batch_size * floats for floats in (kept, output))
        return LayerCost(forward_ms, backward_ms, step_ms, added_ms, weights, kept, output)


_Shared = Annotated[int, Meaning("tensor parallelism", min=1)]
_Memory = Mapping[_Shared, Mapping[int, LayerMemory]]
_Times = Mapping[
    Annotated[int, Meaning("micro-batch size", min=1)], Mapping[_Shared, Mapping[int, LayerSeconds]]
]
_Entry = TypeVar("_Entry")


def read_layer_profiles(folder: Path, model: str) -> dict[str, LayerProfile]:
    """Read the costs of a model's layers on each type of GPU.

    Args:
        folder: With ``memory/MODEL.json``, ``{tensor parallelism: {layer: {params_floats, act_mem_floats,
            act_output_floats}}}``, and of each GPU ``profiles/MODEL/GPU.json``, ``{micro-batch size: {tensor
            parallelism: {layer: [forward, backward, update]}}}`` in seconds.
        model: Its name.

    Raises:
        LayerProfileError: A file cannot be read or is wrong, or they have not the same layers.
    """
    memory, profiles = folder / "memory" / f"{model}.json", {}
    with json_file(memory, "memory of layers", LayerProfileError) as data:
        by_shared = replace(data, is_open=True).typed(_Memory)
        count = len(next(iter(by_shared.values()), ()))
        if count < 3:
            raise LayerProfileError(f"has {count} layers; give at least embedding, one block and head")
        held = {shared: _in_order(layers, count, f"{shared}", memory) for shared, layers in by_shared.items()}
    for path in sorted((folder / "profiles" / model).glob("*.json")):
        with json_file(path, "times of layers", LayerProfileError) as data:
            layers = {
                (size, shared): _in_order(by_layer, count, f"{size}.{shared}", memory)
                for size, of_size in data.typed(_Times).items()
                for shared, by_layer in of_size.items()
            }
        profiles[path.stem] = LayerProfile(path.stem, layers, held)
    return profiles


def _in_order(layers: Mapping[int, _Entry], count: int, where: str, memory: Path) -> tuple[_Entry, ...]:
    """Return the entries of layers in order, `count` of them, numbered from 0 without a gap."""
    if missing := sorted(set(range(len(layers))) - layers.keys()):
        raise LayerProfileError(f"{where}: lacks the field '{missing[0]}'; add it")
    if len(layers) != count:
        raise LayerProfileError(f"{where}: has {len(layers)} layers, but {memory} {count}; give the same")
    return tuple(layers[number] for number in range(count))
