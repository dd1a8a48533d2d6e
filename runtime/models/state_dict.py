"""The state dict of a whole model in a file, of which each process reads and writes its own tensors alone.

Names are those of the model before it was cut: of a user's module its own (see `runtime.models.user.cut`;
``BLOCK.NAME`` of a block that was cut out of nothing), of our models those of their parameters. A shard of a
tensor-parallel block is its part of the tensor. Files are of safetensors, of which any part can be read and
written by itself.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor

from placements import Placement
from runtime.models.architectures import body_of
from runtime.models.body import Body
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.model import Model, ParameterShard
from runtime.program.tensor_spec import TensorSpec

SUFFIX = ".safetensors"
"""Suffix of files that are written."""


class StateDictError(ModelError):
    """A file of weights does not fit the model; the message names it, a tensor of it, and the remedy."""


class _OwnTensor(NamedTuple):
    """A tensor that a process writes: the whole, or a part that begins at an index of a dimension."""

    spec: TensorSpec
    values: Tensor
    dim: int = 0
    first: int = 0


def check_state_dict_file(path: str | Path, options: ModelOptions, placement: Placement) -> None:
    """Ensure that a file holds the weights of a model, and nothing else; only its names and shapes are read.

    Raises:
        StateDictError: A tensor is missing, unexpected or of another shape, or the file cannot be read.
        ModelError: The model does not fit the placement.
    """
    body = body_of(options, placement)
    with _opened(Path(path)) as file:
        shapes = _shapes(file)
        known = _check_has(shapes, body, body.names, path)
        for name in shapes:
            if name not in known:
                raise StateDictError(
                    f"load_weights: {path} has {name!r}, which the model does not; leave it out of the file"
                )


def load_state_dict_file(model: Model, path: str | Path) -> None:
    """Give a process's parameters and buffers the values that a file has for them.

    Raises:
        StateDictError: One of them is missing or of another shape, or the file cannot be read.
    """
    with _opened(Path(path)) as file, torch.no_grad():
        shapes = _shapes(file)
        _check_has(shapes, model.body, model.groups, path)
        names = _state_names(model.body, model.groups)
        for shard, weight in model.parameters.items():
            name = next(alias for alias in names[shard.name] if alias in shapes)
            weight.copy_(file.get_slice(name)[_place(shard, shapes[name])])
        for block in model.groups:
            for name, (local, before) in model.body.state_buffers(block).items():
                model.body.load_buffer(block, local, file.get_tensor(name).to(before.dtype), model.device)


def check_save_path(path: Path) -> None:
    """Ensure that a state dict can be saved in a file, before anything starts.

    Raises:
        StateDictError: It has another suffix, or its folder is not there.
    """
    if path.suffix != SUFFIX:
        raise StateDictError(f"save_weights: {path} does not end in {SUFFIX}; give such a file")
    if path.is_dir() or not path.parent.is_dir():
        raise StateDictError(f"save_weights: {path} is not a file in a folder that is there; give one")


def save_state_dict_file(
    model: Model,
    path: str | Path,
    collect: Callable[[Any], Sequence[Any]] = lambda value: [value],
    is_first: bool = True,
) -> None:
    """Write the state dict of the whole model to one file, each process its own part.

    Every process must call it at the same place, with a file that all of them see; the first process makes
    it. It appears when it is whole. A function returns every process's value in all (see
    `runtime.transport.protocol.Transport.collect`); by default this is the only process.

    Raises:
        StateDictError: See `check_save_path`; or the file cannot be written.
    """
    path = Path(path)
    check_save_path(path)
    tensors = _own_tensors(model)
    specs: dict[str, TensorSpec] = {}
    for of_device in collect({name: tensor.spec for name, tensor in tensors.items()}):
        specs |= of_device
    header, starts = _layout(specs)
    temporary = path.with_name(f"{path.name}.tmp")

    def create() -> None:
        with temporary.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + sum(map(_num_bytes, specs.values())))

    def write() -> None:
        with temporary.open("r+b") as file:
            for name, (spec, values, dim, first) in tensors.items():
                rows = values.detach().cpu().contiguous().reshape(math.prod(spec.shape[:dim]), -1)
                stride = math.prod(spec.shape[dim:]) * rows.itemsize
                before = first * math.prod(spec.shape[dim + 1 :]) * rows.itemsize
                for i, row in enumerate(rows):
                    file.seek(starts[name] + i * stride + before)
                    file.write(row.view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())

    def rename() -> None:
        temporary.replace(path)

    try:
        for step, is_ours in ((create, is_first), (write, True), (rename, is_first)):
            reason = ""
            try:
                if is_ours:
                    step()
            except OSError as error:
                reason = str(error)
            if reasons := [fault for fault in collect(reason) if fault]:
                raise StateDictError(
                    f"save_weights: {path} cannot be written ({reasons[0]}); give another file"
                )
    finally:
        if is_first:
            temporary.unlink(missing_ok=True)


def _own_tensors(model: Model) -> dict[str, _OwnTensor]:
    """Return the tensors that this process is the first to hold; replicas of a shard are written once."""
    tensors: dict[str, _OwnTensor] = {}
    for block, groups in model.groups.items():
        names = model.body.state_names(block)
        full = {parameter.name: parameter.shape for parameter in model.body.parameters(block)}
        for shard, weight in model.parameters.items():
            is_copy = groups.index > 0 or (shard.num_shards == 1 and model.shards[block].index > 0)
            if shard.name not in full or is_copy:
                continue
            shape = full[shard.name]
            place = (shard.dim, _place(shard, shape)[-1].start) if shard.num_shards > 1 else ()
            tensor = _OwnTensor(TensorSpec.of(weight.dtype, shape), weight, *place)
            tensors |= dict.fromkeys(names[shard.name], tensor)
        for name, (local, value) in model.body.state_buffers(block).items() if not groups.index else ():
            values = model.body.buffer_values(block, local)
            tensors[name] = _OwnTensor(TensorSpec.of(value.dtype, value.shape), values)
    return tensors


def _layout(specs: Mapping[str, TensorSpec]) -> tuple[bytes, dict[str, int]]:
    """Return the header of a file of safetensors, and the place in the file of each tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    starts, end = {}, 0
    for name, spec in sorted(specs.items()):
        starts[name], end = end, end + _num_bytes(spec)
        dtype = spec.dtype.upper().replace("FLOAT", "F").replace("UINT", "U").replace("INT", "I")
        header[name] = {"dtype": dtype, "shape": list(spec.shape), "data_offsets": [starts[name], end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    before = len(text).to_bytes(8, "little") + text
    return before, {name: len(before) + start for name, start in starts.items()}


def _num_bytes(spec: TensorSpec) -> int:
    return spec.num_bytes(getattr(torch, spec.dtype).itemsize, 0)


def _place(shard: ParameterShard, shape: Sequence[int]) -> tuple[Any, ...]:
    """Return the index of a shard in the whole tensor, as `torch.tensor_split` cuts."""
    if shard.num_shards == 1:
        return (...,)
    rows = shard._replace(dim=0).of(torch.arange(shape[shard.dim]))
    begin = int(rows[0]) if len(rows) else 0
    return (*[slice(None)] * shard.dim, slice(begin, begin + len(rows)))


def _state_names(body: Body, blocks: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return all names in the state dict of each parameter of some blocks."""
    by_parameter: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        for name, others in body.state_names(block).items():
            by_parameter[name] = tuple(dict.fromkeys((*by_parameter.get(name, ()), *others)))
    return by_parameter


def _check_has(
    shapes: Mapping[str, tuple[int, ...]], body: Body, blocks: Iterable[str], path: str | Path
) -> set[str]:
    """Ensure that a file has all tensors of some blocks; return all names that these know.

    Raises:
        StateDictError: A tensor is missing, or of another shape.
    """
    wanted = {parameter.name: parameter.shape for block in blocks for parameter in body.parameters(block)}
    needed = [(names, wanted[name]) for name, names in _state_names(body, blocks).items()]
    for block in blocks:
        needed += [((name,), tuple(of.shape)) for name, (_, of) in body.state_buffers(block).items()]
    known = {name for names, _ in needed for name in names}
    for names, shape in needed:
        present = [name for name in names if name in shapes]
        if not present:
            longer = next((n for n in shapes if n not in known and n.endswith(f".{names[0]}")), None)
            if longer is None:
                remedy = "give the model's whole state dict"
            else:
                remedy = f"it has {longer!r}: take {longer.removesuffix(names[0])!r} off the names"
            raise StateDictError(f"load_weights: {path} lacks {names[0]!r} of shape {shape}; {remedy}")
        for name in present:
            if shapes[name] != shape:
                raise StateDictError(
                    f"load_weights: {path}: {name!r} has shape {shapes[name]}, in the model {shape}; give "
                    "weights of a model of these sizes"
                )
    return known


def _opened(path: Path) -> Any:
    """Open a file, as a context, of whose tensors any part can be read."""
    if not path.is_file():
        raise StateDictError(f"load_weights: {path} is not a file; give a state dict of safetensors")
    try:
        return safetensors.safe_open(path, framework="pt")
    except (OSError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())[:160]
        raise StateDictError(
            f"load_weights: {path} is not a whole file of safetensors ({reason}); save it with "
            "safetensors.torch.save_model"
        ) from None


def _shapes(file: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
