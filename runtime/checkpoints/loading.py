"""Checkpoints, read: by as many devices as there are now, each of which reads the parts of its shards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from runtime.checkpoints.manifest import Manifest, changes, manifests, moves
from runtime.checkpoints.optimizer_states import OptimizerStates
from runtime.checkpoints.training_state import Item, TensorPlace, TrainingState, places_of
from runtime.models.user.seeds import set_random_states
from runtime.program.calls import ScriptError
from runtime.transport.protocol import Transport

if TYPE_CHECKING:
    from runtime.checkpoints.shards import ShardReader


@dataclass(frozen=True)
class Resumed:
    """A run that goes on.

    Attributes:
        iterations: Iterations that went into the checkpoint.
        extra: The caller's additions on this device. Where there were as many devices before, each gets its
            own; otherwise each gets those of the first device that had them, entry by entry.
        notes: News for the user, a line each: options that differ, and newer checkpoints passed over.
        is_same: Whether the run goes on to the result of a run without a stop, but for last bits where other
            devices compute.
    """

    iterations: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_same: bool = True


def load_checkpoint(
    folder: Path,
    state: TrainingState,
    facts: Mapping[str, Any],
    transport: Transport,
    device: int,
    *,
    max_iterations: int | None = None,
) -> Resumed:
    """Read the newest whole checkpoint; every device must call it at the same place.

    Device 0 says which checkpoints there are. The devices share the work of checking their files.

    Args:
        folder: Folder of the checkpoints.
        state: State of this process. Its parameters, and the optimizer's state of each, are overwritten.
        facts: Facts of this run; see `runtime.checkpoints.manifest.facts_of`.
        transport: Reaches the other devices.
        device: This one.
        max_iterations: The checkpoint must have fewer; None for any number.

    Raises:
        ScriptError: There is no whole checkpoint, it is of another model, or has too many iterations.
    """

    def first(values: list[Any]) -> Any:
        return next(filter(None, values), None)

    collected = transport.collect(manifests(folder) if device == 0 else None)
    num_devices, readable, passed_over = len(collected), collected[0][0], list(collected[0][1])
    places = places_of(state.parameters, transport.collect)

    def wrong_file(manifest: Manifest) -> Any:
        return first(transport.collect(manifest.wrong_file(device, num_devices)))

    manifest = _newest_whole(folder, readable, passed_over, wrong_file)
    resumed = _resumed(manifest, facts, max_iterations, passed_over)
    names = set().union(*transport.collect([shard.name for shard in state.parameters]))
    reader = _reader(manifest)
    if reason := first(transport.collect(_why_other(reader, state, places, names))):
        raise ScriptError(f"resume: {manifest.folder} was made with another model ({reason})")
    notes = transport.collect(_load(reader, state, places))
    changed = ", ".join(dict.fromkeys(note for of_device in notes for note in of_device))
    return replace(
        resumed,
        extra=_extra(reader, manifest.num_devices, device, num_devices, transport.device),
        notes=(*resumed.notes, *([f"resume: with another {changed}"] if changed else [])),
        is_same=resumed.is_same and not changed,
    )


def check_resume(folder: Path, facts: Mapping[str, Any], max_iterations: int | None = None) -> Resumed:
    """Ensure that a run can go on from the newest whole checkpoint of a folder, before anything is started.

    The arguments are those of `load_checkpoint`.

    Raises:
        ScriptError: It cannot, or there is no whole checkpoint.
    """
    readable, passed_over = manifests(folder)
    manifest = _newest_whole(folder, readable, passed_over)
    return _resumed(manifest, facts, max_iterations, passed_over)


def has_whole(folder: Path) -> bool:
    """Tell whether a folder holds a whole checkpoint."""
    return any(manifest.wrong_file() is None for manifest in manifests(folder)[0])


def read_parameters(folder: Path) -> dict[str, Tensor]:
    """Return the whole parameters of a folder's newest whole checkpoint by name, in one process.

    Raises:
        ScriptError: There is no whole checkpoint.
    """
    reader, items = _reader(_newest_whole(folder, manifests(folder)[0], [])), []
    for key in reader.contents:
        whole = reader.size_and_dtype(key)
        if key.startswith("parameters/") and whole is not None:
            size, dtype = whole
            items.append(Item(key, torch.empty(size, dtype=dtype), TensorPlace((0,) * len(size), size)))
    reader.read(items)
    return {item.key.removeprefix("parameters/"): item.value for item in items}


def _newest_whole(
    folder: Path,
    readable: Sequence[Manifest],
    passed_over: list[str],
    wrong_file: Callable[[Manifest], str | None] = Manifest.wrong_file,
) -> Manifest:
    """Return the first manifest that has no wrong file; add those before it to the ones passed over."""
    for manifest in readable:
        name = wrong_file(manifest)
        if name is None:
            return manifest
        part = name.removeprefix("__").partition("_")[0]
        whose = f" of device {part}" if part.isdecimal() else ""
        line = f"{manifest.folder} is passed over, its file {name}{whose} is not as it was written"
        passed_over.append(line)
    why = "".join(f": {reason}" for reason in passed_over[:1])
    more = f", and {len(passed_over) - 1} more" if len(passed_over) > 1 else ""
    raise ScriptError(
        f"resume: {folder} holds no whole checkpoint{why}{more}; give the checkpoints of an earlier run, or "
        "an empty folder to begin anew"
    )


def _reader(manifest: Manifest) -> ShardReader:
    # PyTorch's module takes half a second to import, which a run that does not resume need not wait for.
    from runtime.checkpoints.shards import ShardReader

    return ShardReader(manifest.folder)


def _resumed(
    manifest: Manifest, facts: Mapping[str, Any], max_iterations: int | None, passed_over: list[str]
) -> Resumed:
    changed = changes(manifest, facts)
    if max_iterations is not None and manifest.iterations >= max_iterations:
        raise ScriptError(
            f"resume: {manifest.folder} has {manifest.iterations} iterations done already; "
            f"ask for more than that, not {max_iterations}"
        )
    said = [*changed, *moves(manifest, facts)]
    line = [f"from {manifest.folder}, with another {', '.join(said)}"] if said else []
    notes = tuple(f"resume: {note}" for note in (*passed_over, *line))
    return Resumed(manifest.iterations, notes=notes, is_same=not changed)


def _why_other(
    reader: ShardReader, state: TrainingState, places: Mapping[str, TensorPlace], names: Collection[str]
) -> str | None:
    """Return how a checkpoint's parameters first differ from the parameters of all processes."""
    kept = {key.removeprefix("parameters/") for key in reader.contents if key.startswith("parameters/")}
    if kept - set(names):
        return f"it has a parameter {min(kept - set(names))}, which is not there now"
    for shard, weight in state.parameters.items():
        whole = reader.size_and_dtype(f"parameters/{shard.name}")
        if whole is None and weight.numel():
            return f"it has no parameter {shard.name}"
        for then, now in zip(whole or (), (places[shard.name].size, weight.dtype), strict=False):
            if then != now:
                return f"{shard.name} of {then} instead of {now}"
    return None


def _load(reader: ShardReader, state: TrainingState, places: Mapping[str, TensorPlace]) -> list[str]:
    """Overwrite the state; return the optimizer's options that differ, in words."""
    states = OptimizerStates(state.optimizer)
    state_names: dict[str, list[str]] = {}
    for key in reader.contents:
        kind, _, rest = key.partition("/")
        if kind == "optimizer":
            name, _, state_name = rest.rpartition("/")
            state_names.setdefault(name, []).append(state_name)
    items: list[Item] = []
    loaded: list[tuple[Tensor, str, dict[str, Tensor]]] = []
    for shard, weight in state.parameters.items():
        if not weight.numel():
            continue
        place, prefix = places[shard.name], f"optimizer/{shard.name}/"
        items.append(Item(f"parameters/{shard.name}", weight, place))
        tensors = {}
        for name in state_names.get(shard.name, ()):
            whole = reader.size_and_dtype(prefix + name)
            if whole is None:
                items.append(Item(prefix))
                continue
            size, dtype = whole
            if size == place.size:
                where, tensors[name] = place, torch.empty_like(weight, dtype=dtype)
            else:
                where, tensors[name] = TensorPlace((0,) * len(size), size), torch.empty(size, dtype=dtype)
            items.append(Item(prefix + name, tensors[name], where))
        loaded.append((weight, prefix, tensors))
    read = reader.read(items)
    changed: dict[str, None] = {}
    for weight, prefix, tensors in loaded:
        plain = read.get(prefix, {"state": {}, "hyper_parameters": {}})
        states.load_state_of(weight, tensors | plain["state"])
        changed |= dict.fromkeys(states.load_hyper_parameters_of(weight, plain["hyper_parameters"]))
    return list(changed)


def _extra(
    reader: ShardReader, num_before: int, device: int, num_devices: int, torch_device: torch.device
) -> dict[str, Any]:
    """Return the callers' additions, and take over the states of the random generators if they are ours."""
    keys = [f"extra/{number}" for number in range(num_before)]
    is_same = num_before == num_devices
    random = [f"random/{device}"] if is_same else []
    read = reader.read([Item(key) for key in (*keys, *random)])
    for key in random:
        set_random_states(read[key], torch_device)
    extra: dict[str, Any] = {}
    for key in reversed(keys):
        extra |= read[key]
    return extra | (read[keys[device]] if is_same else {})
