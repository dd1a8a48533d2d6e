"""Checkpoints, read: by as many devices as there are now, each of which reads what overlaps its shards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from runtime.checkpoints.manifest import (
    Manifest,
    changes,
    manifests,
    moves,
    unreadable_manifests,
)
from runtime.checkpoints.training_state import (
    EXTRA,
    OPTIMIZER,
    PARAMETERS,
    RANDOM,
    TensorPlace,
    TrainingState,
    device_key,
    parameter_key,
    places_of,
    set_random_states,
    state_key,
)
from runtime.program.calls import ScriptError
from runtime.transport.protocol import Transport

if TYPE_CHECKING:
    from runtime.checkpoints.shards import ShardReader


@dataclass(frozen=True)
class Resumed:
    """A run that goes on.

    Attributes:
        iterations: Iterations that went into the checkpoint.
        extra: What the caller had added on this device. Where there were as many devices before, each gets
            its own; otherwise each gets that of the first device that had it, entry by entry.
        notes: What the user should know, a line each: what is otherwise than before, and newer checkpoints
            that were passed over.
        is_same: Whether the run goes on to what it would have come to without a stop, but for last bits
            where other devices compute.
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
    most_iterations: int | None = None,
) -> Resumed:
    """Read the newest whole checkpoint; every device must call it at the same place.

    Device 0 says which checkpoints there are. The devices share the work of checking their files.

    Args:
        folder: Folder of the checkpoints.
        state: State of this process. Its parameters, and the optimizer's state of each, are overwritten.
        facts: What is run now; see `runtime.checkpoints.manifest.facts_of`.
        transport: Reaches the other devices.
        device: This one.
        most_iterations: The checkpoint must have fewer; None for any number.

    Raises:
        ScriptError: There is no whole checkpoint, it is of another model, or has too many iterations.
    """
    found_first = (manifests(folder), _unreadable(folder)) if device == 0 else None
    told = transport.collect(found_first)
    (readable, passed_over), num_devices = told[0], len(told)
    places = places_of(state.parameters, transport.collect)
    for manifest in readable:
        wrong = next(filter(None, transport.collect(manifest.wrong_file(device, num_devices))), None)
        if wrong is not None:
            passed_over.append(_passed_over(manifest, wrong))
            continue
        found = _resumed(manifest, facts, most_iterations, passed_over)
        names = {name for each in transport.collect(_names(state)) for name in each}
        if reason := next(filter(None, transport.collect(_why_other(manifest, state, places, names))), None):
            raise ScriptError(f"resume: {manifest.folder} was made with another model ({reason})")
        notes = _load(manifest, state, places)
        extra = _extra(manifest, device, num_devices, transport.device)
        of_optimizer = list(dict.fromkeys(note for each in transport.collect(notes) for note in each))
        return Resumed(
            found.iterations,
            extra,
            (*found.notes, *([f"resume: with another {', '.join(of_optimizer)}"] if of_optimizer else [])),
            found.is_same and not of_optimizer,
        )
    raise _none_in(folder, passed_over)


def check_resume(folder: Path, facts: Mapping[str, Any], most_iterations: int | None = None) -> Resumed:
    """Ensure that a run can go on from the newest whole checkpoint of a folder, before anything is started.

    Args:
        folder: Folder of the checkpoints of one run.
        facts: What is run now; see `runtime.checkpoints.manifest.facts_of`.
        most_iterations: The checkpoint must have fewer; None for any number.

    Raises:
        ScriptError: It cannot, or there is no whole checkpoint.
    """
    passed_over = _unreadable(folder)
    for manifest in manifests(folder):
        wrong = manifest.wrong_file()
        if wrong is None:
            return _resumed(manifest, facts, most_iterations, passed_over)
        passed_over.append(_passed_over(manifest, wrong))
    raise _none_in(folder, passed_over)


def has_whole(folder: Path) -> bool:
    """Tell whether a folder holds a whole checkpoint."""
    return any(manifest.wrong_file() is None for manifest in manifests(folder))


def read_parameters(folder: Path) -> dict[str, Tensor]:
    """Return the whole parameters of the newest whole checkpoint by name, in one process.

    Args:
        folder: Folder of the checkpoints of one run.

    Raises:
        ScriptError: There is no whole checkpoint.
    """
    from runtime.checkpoints.shards import Wanted

    whole = (manifest for manifest in manifests(folder) if manifest.wrong_file() is None)
    manifest = next(whole, None)
    if manifest is None:
        raise _none_in(folder)
    reader, found, wanted = _reader(manifest), {}, []
    for key, each in reader.contents().items():
        kind, _, name = key.partition("/")
        if kind == PARAMETERS and each is not None:
            found[name] = torch.empty(each.size, dtype=each.dtype)
            wanted.append(Wanted(key, TensorPlace((0,) * len(each.size), each.size), found[name]))
    reader.read(wanted, [])
    return found


def _reader(manifest: Manifest) -> ShardReader:
    # PyTorch's module takes half a second to import, which a run that does not resume need not wait for.
    from runtime.checkpoints.shards import ShardReader

    return ShardReader(manifest.folder)


def _resumed(
    manifest: Manifest, facts: Mapping[str, Any], most_iterations: int | None, passed_over: list[str]
) -> Resumed:
    found = changes(manifest, facts)
    if most_iterations is not None and manifest.iterations >= most_iterations:
        raise ScriptError(
            f"resume: {manifest.folder} has {manifest.iterations} iterations done already; "
            f"ask for more than that, not {most_iterations}"
        )
    said = [*found, *moves(manifest, facts)]
    line = [f"from {manifest.folder}, with another {', '.join(said)}"] if said else []
    notes = tuple(f"resume: {note}" for note in (*passed_over, *line))
    return Resumed(manifest.iterations, notes=notes, is_same=not found)


def _passed_over(manifest: Manifest, name: str) -> str:
    part = name.removeprefix("__").partition("_")[0]
    whose = f" of device {part}" if part.isdecimal() else ""
    return f"{manifest.folder} is passed over, its file {name}{whose} is not as it was written"


def _unreadable(folder: Path) -> list[str]:
    paths = unreadable_manifests(folder)
    return [f"{path.parent} is passed over, its file {path.name} cannot be read" for path in paths]


def _none_in(folder: Path, passed_over: Sequence[str] = ()) -> ScriptError:
    """Return the error of a folder, with why the first of its checkpoints is passed over."""
    why = "".join(f": {reason}" for reason in passed_over[:1])
    more = f", and {len(passed_over) - 1} more" if len(passed_over) > 1 else ""
    return ScriptError(
        f"resume: {folder} holds no whole checkpoint{why}{more}; give the checkpoints of an earlier run, or "
        "an empty folder to begin anew"
    )


def _names(state: TrainingState) -> list[str]:
    return [shard.name for shard in state.parameters]


def _why_other(
    manifest: Manifest, state: TrainingState, places: Mapping[str, TensorPlace], names: Collection[str]
) -> str | None:
    """Return why the parameters are not those of a checkpoint, in a few words; None if they are.

    Args:
        manifest: Manifest of the checkpoint.
        state: State of this process.
        places: Where its parameters belong.
        names: Names of the parameters of all processes.
    """
    contents = _reader(manifest).contents()
    kept = {key.removeprefix(f"{PARAMETERS}/") for key in contents if key.startswith(f"{PARAMETERS}/")}
    if kept - set(names):
        return f"it has a parameter {min(kept - set(names))}, which is not there now"
    for shard, weight in state.parameters.items():
        whole = contents.get(parameter_key(shard.name))
        if whole is None and weight.numel():
            return f"it has no parameter {shard.name}"
        if whole is None:
            continue
        if whole.size != places[shard.name].size:
            return f"{shard.name} of {whole.size} instead of {places[shard.name].size}"
        if whole.dtype != weight.dtype:
            return f"{shard.name} of {whole.dtype} instead of {weight.dtype}"
    return None


def _load(manifest: Manifest, state: TrainingState, places: Mapping[str, TensorPlace]) -> list[str]:
    """Overwrite the state; return what the optimizer has been given anew."""
    from runtime.checkpoints.shards import Wanted

    reader = _reader(manifest)
    contents, states = reader.contents(), state.states
    names = _states_by_parameter(contents)
    wanted, plain, found = [], [], {}
    for shard, weight in state.parameters.items():
        if not weight.numel():
            continue
        place = places[shard.name]
        wanted.append(Wanted(parameter_key(shard.name), place, weight))
        found[shard] = tensors = {
            name: _room_for(weight, place, contents[state_key(shard.name, name)])
            for name in names.get(shard.name, ())
            if name
        }
        for name, (own, into) in tensors.items():
            wanted.append(Wanted(state_key(shard.name, name), own, into))
        plain += [state_key(shard.name)] if "" in names.get(shard.name, ()) else []
    read = reader.read(wanted, plain)
    anew: dict[str, None] = {}
    for shard, tensors in found.items():
        weight = state.parameters[shard]
        others = read.get(state_key(shard.name), {"state": {}, "hyper_parameters": {}})
        states.load_state_of(weight, {name: into for name, (_, into) in tensors.items()} | others["state"])
        anew |= dict.fromkeys(states.load_hyper_parameters_of(weight, others["hyper_parameters"]))
    return list(anew)


def _states_by_parameter(contents: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the states of each parameter; that of plain data is empty."""
    found: dict[str, list[str]] = {}
    for key in contents:
        kind, _, rest = key.partition("/")
        if kind == OPTIMIZER:
            name, _, state = rest.rpartition("/")
            found.setdefault(name, []).append(state)
    return found


def _room_for(weight: Tensor, place: TensorPlace, whole: Any) -> tuple[TensorPlace, Tensor]:
    """Return where a process's part of an optimizer's tensor belongs, and memory for it."""
    if whole.size == place.size:
        return place, torch.empty_like(weight, dtype=whole.dtype)
    return TensorPlace((0,) * len(whole.size), whole.size), torch.empty(whole.size, dtype=whole.dtype)


def _extra(manifest: Manifest, device: int, num_devices: int, torch_device: torch.device) -> dict[str, Any]:
    """Return what callers had added, and take over the states of the random generators if they are ours."""
    same = manifest.num_devices == num_devices
    devices = range(manifest.num_devices)
    keys = [device_key(EXTRA, each) for each in devices]
    own = [device_key(RANDOM, device)] if same else []
    read = _reader(manifest).read([], [*keys, *own])
    if own:
        set_random_states(read[own[0]], torch_device)
    found: dict[str, Any] = {}
    for key in reversed(keys):
        found |= read[key]
    return found | (read[keys[device]] if same else {})
