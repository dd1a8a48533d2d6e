"""Checkpoints: each device writes its own shard, and device 0 a manifest once all shards are there.

Each is on the disk before the next step begins, so the manifest is the last thing to be there, after a power
cut too. A folder without a manifest, or with a shard that is not the one the manifest names, is a torn
checkpoint and never used. Older checkpoints are removed once a newer one is whole. Clocks are no part of a
checkpoint: they change no result, so a run may go on with others.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from placements.files import flush_folder, to_json, write_bytes
from placements.placement_file import placement_to_dict
from runtime.codegen.script import Script
from runtime.execution.run_options import RunOptions
from runtime.models import Model
from runtime.models.core.options import RARE
from runtime.program.calls import ScriptError
from runtime.transport.protocol import Transport

SCHEMA_VERSION = 1
"""Version of the manifest's form."""

_FIELDS = {
    "iterations": int,
    "placement": dict,
    "model": dict,
    "num_micro_batches": int,
    "shards": list,
    "orders": list,
}
"""What a manifest has besides, and of which type."""


def is_due(options: RunOptions, num_done: int) -> bool:
    """Tell whether a checkpoint is to be written after so many iterations."""
    return bool(options.checkpoints and options.checkpoint_every) and num_done % options.checkpoint_every == 0


def save(script: Script, options: RunOptions, transport: Transport, model: Model, num_done: int) -> None:
    """Write a checkpoint and remove what is too old; every device must call it at the same place.

    Args:
        script: Of this device.
        options: Say where to, which device this is, and how many checkpoints to keep.
        transport: Reaches the other devices.
        model: Whose parameters and optimizer state are written.
        num_done: Iterations that went into them.
    """
    assert options.checkpoints is not None
    folder = options.checkpoints / f"iteration_{num_done}"
    if options.device == 0:
        _prepare(folder)
    transport.barrier()
    data = _shard(model)
    write_bytes(_shard_path(folder, options.device), data, durable=True)
    shards = transport.collect((_digest(data), _order(script)))
    if options.device == 0:
        whole = {"schema_version": SCHEMA_VERSION, "iterations": num_done, "torch": torch.__version__}
        parts = {"shards": [shard for shard, _ in shards], "orders": [order for _, order in shards]}
        manifest = to_json(whole | _identity(script) | parts) + "\n"
        write_bytes(folder / "manifest.json", manifest.encode(), durable=True)
        _prune(options.checkpoints, num_done, options.keep_checkpoints)


def _prepare(folder: Path) -> None:
    """Make a checkpoint's folder, without the manifest of a run before, whose shards are replaced now."""
    folder.mkdir(parents=True, exist_ok=True)
    flush_folder(folder.parent)
    (folder / "manifest.json").unlink(missing_ok=True)
    flush_folder(folder)


def _prune(checkpoints: Path, newest: int, num_kept: int) -> None:
    """Remove checkpoints that are older than those to keep, and torn ones among these.

    Args:
        checkpoints: Holds them.
        newest: Iterations of the one that has just become whole; what is newer is of another run, and left.
        num_kept: Whole ones to keep, this one included; 0 for all.
    """
    if not num_kept:
        return
    numbers = [number for number in _numbers(checkpoints, "iteration_*") if number <= newest]
    whole = [number for number in _numbers(checkpoints, "iteration_*/manifest.json") if number <= newest]
    for number in set(numbers) - set(whole[:num_kept]):
        folder = checkpoints / f"iteration_{number}"
        (folder / "manifest.json").unlink(missing_ok=True)  # first: half of a checkpoint is none
        flush_folder(folder)
        shutil.rmtree(folder)


def resume(script: Script, options: RunOptions, transport: Transport, model: Model) -> int:
    """Read the newest whole checkpoint into a model; return how many iterations went into it.

    Every device must call it at the same place. Device 0 says which checkpoints there are; one is whole if
    every device finds its own shard as the manifest names it.

    Raises:
        ScriptError: There is none, it is of another run, or it has all the iterations asked for.
    """
    assert options.resume is not None
    for name in transport.collect(_names(options.resume))[0]:
        folder = options.resume / name
        manifest = _manifest(folder)
        data = _read_shard(folder, options.device, manifest)
        if all(transport.collect(data is not None)):
            assert manifest is not None and data is not None
            refuse_another(manifest, script, options.device, folder)
            _check_iterations(manifest, options.iterations, folder)
            _load(model, data)
            return int(manifest["iterations"])
    raise _none_in(options.resume)


def check_resume(folder: Path, scripts: Sequence[Script], iterations: int) -> None:
    """Ensure that scripts can go on from the newest checkpoint of a folder, before anything is started.

    Args:
        folder: Of the checkpoints of one run.
        scripts: Of all devices.
        iterations: That were asked for in all.

    Raises:
        ScriptError: They cannot, or there is no whole checkpoint.
    """
    for name in _names(folder):
        manifest = _manifest(folder / name)
        shards = [_read_shard(folder / name, device, manifest) for device in range(len(scripts))]
        if manifest is not None and None not in shards:
            for device, script in enumerate(scripts):
                refuse_another(manifest, script, device, folder / name)
            _check_iterations(manifest, iterations, folder / name)
            return
    raise _none_in(folder)


def refuse_another(manifest: Mapping[str, Any], script: Script, device: int, folder: Path) -> None:
    """Ensure that a checkpoint was made by the same scripts, clocks aside.

    Raises:
        ScriptError: It was made with another placement, model, number of micro-batches or plan.
    """
    for name, ours in _identity(script).items():
        theirs = manifest[name]
        if theirs == ours:
            continue
        detail = f"{theirs} instead of {ours}"
        if name == "model":
            keys = sorted(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
            detail = f"{keys[0]} {theirs.get(keys[0])!r} instead of {ours.get(keys[0])!r}"
        if name == "placement":
            detail = f"{theirs.get('name')} instead of {ours['name']}"
            detail = "same name, other blocks" if theirs.get("name") == ours["name"] else detail
        raise ScriptError(f"resume: {folder} was made with another {name.replace('_', ' ')} ({detail})")
    if manifest["orders"][device] != _order(script):
        raise ScriptError(f"resume: {folder} was made with another plan (other order on device {device})")


def has_whole(folder: Path, num_devices: int) -> bool:
    """Tell whether a folder holds a whole checkpoint of so many devices."""
    for name in _names(folder):
        manifest = _manifest(folder / name)
        if None not in [_read_shard(folder / name, device, manifest) for device in range(num_devices)]:
            return True
    return False


def _names(folder: Path) -> list[str]:
    """Return the folders of checkpoints that have a manifest, the newest first."""
    return [f"iteration_{number}" for number in _numbers(folder, "iteration_*/manifest.json")]


def _numbers(folder: Path, pattern: str) -> list[int]:
    """Return the numbers in the names of a folder's folders, the greatest first."""
    names = (path.relative_to(folder).parts[0] for path in folder.glob(pattern))
    found = (name.removeprefix("iteration_") for name in names)
    return sorted((int(number) for number in found if number.isdecimal()), reverse=True)


def _none_in(folder: Path) -> ScriptError:
    return ScriptError(f"resume: {folder} holds no whole checkpoint; give the checkpoints of an earlier run")


def _check_iterations(manifest: Mapping[str, Any], iterations: int, folder: Path) -> None:
    if manifest["iterations"] >= iterations:
        raise ScriptError(
            f"resume: {folder} has {manifest['iterations']} iterations done already; "
            f"ask for more than that, not {iterations}"
        )


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        return None
    is_whole = all(type(manifest.get(name)) is spec for name, spec in _FIELDS.items())
    return manifest if is_whole and len(manifest["shards"]) == len(manifest["orders"]) else None


def _read_shard(folder: Path, device: int, manifest: Mapping[str, Any] | None) -> bytes | None:
    """Return a device's shard if it is the one that the manifest names."""
    try:
        data = _shard_path(folder, device).read_bytes()
    except OSError:
        return None
    shards = manifest["shards"] if manifest else []
    return data if device < len(shards) and shards[device] == _digest(data) else None


def _shard_path(folder: Path, device: int) -> Path:
    return folder / f"device_{device}.pt"


def _shard(model: Model) -> bytes:
    """Return parameters, optimizer state and the states of the random generators as one file."""
    cuda = model.device.type == "cuda"
    content = {
        "parameters": [(*shard, value.detach().cpu()) for shard, value in model.parameters.items()],
        "optimizer": model.optimizer.state(),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(model.device) if cuda else None,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _load(model: Model, data: bytes) -> None:
    content = torch.load(io.BytesIO(data), weights_only=True)
    values = {tuple(shard): value for *shard, value in content["parameters"]}
    ours = {tuple(shard): weight.shape for shard, weight in model.parameters.items()}
    if {shard: value.shape for shard, value in values.items()} != ours:
        raise ScriptError("resume: the model has other parameters now; was its Python file changed?")
    with torch.no_grad():
        for shard, weight in model.parameters.items():
            weight.copy_(values[tuple(shard)])
    model.optimizer.load(content["optimizer"])
    torch.set_rng_state(content["random"])
    if content["random_cuda"] is not None and model.device.type == "cuda":
        torch.cuda.set_rng_state(content["random_cuda"], model.device)


def _identity(script: Script) -> dict[str, Any]:
    """Return what a run must share with the one that made a checkpoint, as JSON gives it back."""
    model = {
        key: value
        for key, value in asdict(script.model).items()
        if key != "recompute" and (key not in RARE or value != RARE[key])  # the same bits
    }
    return {
        "placement": json.loads(json.dumps(placement_to_dict(script.placement))),
        "num_micro_batches": script.num_micro_batches,
        "model": json.loads(json.dumps(model)),
    }


def _order(script: Script) -> str:
    """Return a digest of what a device does in what order, without its clocks."""
    return _digest("\n".join(map(str, script.calls.instructions)).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
