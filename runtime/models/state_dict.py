"""The state dict of a whole model in a file, of which each process reads and writes its own tensors alone.

Names are those of the model before it was cut: of a user's module its own (see `runtime.models.user.cut`;
``BLOCK.NAME`` of a block that was cut out of nothing), of our models those of their parameters. A shard of a
tensor-parallel block is its part of the tensor. It knows neither schedules nor the optimizer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.bodies import body_of
from runtime.models.body import Body
from runtime.models.core.options import ModelError, ModelOptions
from runtime.models.model import Model, ParameterShard
from runtime.models.tensor_files import (
    SUFFIX,
    Form,
    Part,
    SafetensorsLayout,
    TensorFile,
    TensorFileError,
    open_tensors,
)


class StateDictError(ModelError):
    """A file of weights does not fit the model; the message names it, a tensor of it, and the remedy."""


def check_state_dict_file(path: str | Path, options: ModelOptions, placement: Placement) -> None:
    """Ensure that a file holds the weights of a model, and nothing else; only its names and shapes are read.

    Raises:
        StateDictError: A tensor is missing, unexpected or of another shape, or the file cannot be read.
        ModelError: The model does not fit the placement.
    """
    body = body_of(options, placement)
    blocks = [block.name for block in placement.topological_order if block.kind is Kind.F]
    with _opened(Path(path)) as (file, where):
        known = _check_has(file.shapes(), body, blocks, where)
        for name in file.shapes():
            if name not in known:
                raise StateDictError(
                    f"{where} has {name!r}, which the model does not; leave it out of the file"
                )


def load_state_dict_file(model: Model, path: str | Path) -> None:
    """Give a process's parameters and buffers the values that a file has for them.

    Args:
        model: Model of the process.
        path: A state dict: of safetensors, or of torch.

    Raises:
        StateDictError: One of them is missing or of another shape, or the file cannot be read.
    """
    with _opened(Path(path)) as (file, where), torch.no_grad():
        shapes = file.shapes()
        _check_has(shapes, model.body, list(model.groups), where)
        names = _state_names(model.body, model.groups)
        for shard, weight in model.parameters.items():
            name = next(each for each in names[shard.name] if each in shapes)
            weight.copy_(file.read(name, _part(shard, shapes[name])))
        for block in model.groups:
            for name, (key, before) in model.body.state_buffers(block).items():
                model.body.load_buffer(key, file.read(name).to(before.dtype).clone())


def check_save_path(path: Path) -> None:
    """Ensure that a state dict can be saved in a file, before anything starts.

    Raises:
        StateDictError: It is of another kind, or its folder is not there.
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

    Every process must call it at the same place, with a file that all of them see.

    Args:
        model: Model of this process.
        path: Path of the file, which appears when it is whole.
        collect: Returns what every process gives to it, after all have (see
            `runtime.transport.protocol.Transport.collect`); by default this is the only process.
        is_first: Whether this process is the first, which makes the file.

    Raises:
        StateDictError: See `check_save_path`; or the file cannot be written.
    """
    path = Path(path)
    check_save_path(path)
    own = _own_tensors(model)
    forms: dict[str, Form] = {}
    for rows in collect({name: tuple(form) for name, (form, _, _) in own.items()}):
        forms |= {name: Form(*form) for name, form in rows.items()}
    layout = SafetensorsLayout(forms)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        _together(collect, path, lambda: layout.create(temporary) if is_first else None)
        _together(collect, path, lambda: _write(temporary, layout, own))
        _together(collect, path, lambda: _rename(temporary, path) if is_first else None)
    finally:
        if is_first:
            temporary.unlink(missing_ok=True)


def _together(collect: Callable[[Any], Sequence[Any]], path: Path, work: Callable[[], None]) -> None:
    """Do something in every process, and fail in all if one fails.

    Raises:
        StateDictError: One failed.
    """
    reason = ""
    try:
        work()
    except OSError as error:
        reason = str(error)
    for each in collect(reason):
        if each:
            raise StateDictError(f"save_weights: {path} cannot be written ({each}); give another file")


_Own = Mapping[str, tuple[Form, Tensor, Part | None]]
"""What a process writes: name -> the form of the whole, its values, and which part they are."""


def _own_tensors(model: Model) -> _Own:
    """Return what this process is the first to hold; replicas of a shard are written once."""
    found: dict[str, tuple[Form, Tensor, Part | None]] = {}
    for block, groups in model.groups.items():
        names = model.body.state_names(block)
        full = {each.name: each.shape for each in model.body.parameters(block)}
        for shard, weight in model.parameters.items():
            is_copy = groups.index > 0 and shard.num_shares == 1
            if shard.name not in full or is_copy or (shard.num_shards == 1 and model.shards[block].index):
                continue
            form = Form(str(weight.dtype).removeprefix("torch."), full[shard.name])
            for name in names[shard.name]:
                found[name] = form, weight, _part(shard, form.shape)
        for name, (key, value) in model.body.state_buffers(block).items() if not groups.index else ():
            form = Form(str(value.dtype).removeprefix("torch."), tuple(value.shape))
            found[name] = form, model.body.buffer_values(key), None
    return found


def _rename(before: Path, path: Path) -> None:
    before.replace(path)


def _write(path: Path, layout: SafetensorsLayout, own: _Own) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        for name, (_, value, part) in own.items():
            layout.write(file, name, value, part)
        os.fsync(file)
    finally:
        os.close(file)


def _part(shard: ParameterShard, shape: Sequence[int]) -> Part | None:
    """Return which part of a tensor a shard is, as `torch.tensor_split` cuts; None for all of it."""
    if shard.num_shards == shard.num_shares == 1:
        return None
    begin, size = 0, shape[shard.dim]
    for index, count in ((shard.shard, shard.num_shards), (shard.share, shard.num_shares)):
        small, larger = divmod(size, count)
        begin, size = begin + index * small + min(index, larger), small + (index < larger)
    return Part(shard.dim, begin, size)


def _state_names(body: Body, blocks: Sequence[str] | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return all names in the state dict of each parameter of some blocks."""
    found: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        for name, others in body.state_names(block).items():
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *others)))
    return found


def _check_has(
    shapes: Mapping[str, tuple[int, ...]], body: Body, blocks: Sequence[str], where: str
) -> set[str]:
    """Ensure that a file has what some blocks need; return all names that they know.

    Raises:
        StateDictError: Something is missing, or of another shape.
    """
    wanted = {each.name: each.shape for block in blocks for each in body.parameters(block)}
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
            raise StateDictError(f"{where} lacks {names[0]!r} of shape {shape}; {remedy}")
        for name in present:
            if shapes[name] != shape:
                raise StateDictError(
                    f"{where}: {name!r} has shape {shapes[name]}, in the model {shape}; give weights of "
                    "a model of these sizes"
                )
    return known


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TensorFile, str]]:
    """Open a file; yield it, and what errors call it.

    Raises:
        StateDictError: It cannot be opened.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_tensors(path))
        except TensorFileError as error:
            raise StateDictError(f"load_weights: {error}") from None
        yield file, f"load_weights: {path}"
