"""Manifests: the folders that hold a whole checkpoint, the run that each is of, and the removal of old ones.

The manifest is the last file of a checkpoint. A folder without one, or with a file that is not as the
manifest says, is torn and never used. Clocks and orders are no part of a checkpoint: they change no result.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from placements.forms.texts import flush_folder, to_json, write_bytes
from placements.placement_file import placement_to_dict
from runtime.codegen.script import Script
from runtime.models.core.options import RARE, ModelOptions
from runtime.program.calls import ScriptError

SCHEMA_VERSION = 1
"""Version of the manifest's form."""

METADATA = ".metadata"
"""The index that `torch.distributed.checkpoint` writes beside its files."""

_FIELDS = {
    "iterations": int,
    "num_devices": int,
    "placement": dict,
    "model": dict,
    "num_micro_batches": int,
    "files": dict,
}
"""Type of each further field of a manifest."""

FIXED = ("name", "hidden_size", "num_heads", "vocab_size", "dtype", "optimizer")
"""Options of a model that make it another one. Layers are compared by the names of their parameters."""

SILENT = ("num_layers", "layers_per_block", "path")
"""Options of a model whose change is no news: they change no result, or the parameters tell them."""


@dataclass(frozen=True)
class Manifest:
    """A whole checkpoint's account of itself.

    Attributes:
        folder: Folder of the checkpoint.
        iterations: Iterations that went into it.
        num_devices: Devices of the run.
        facts: Facts of the run; see `facts_of`.
        files: Digest of each of its files, by name.
    """

    folder: Path
    iterations: int
    num_devices: int
    facts: Mapping[str, Any]
    files: Mapping[str, str]

    def wrong_file(self, part: int = 0, num_parts: int = 1) -> str | None:
        """Return a file that is not as it was written, in one of some parts of the files, or None."""
        names = sorted(self.files)[part::num_parts]
        return next((name for name in names if digest_of(self.folder / name) != self.files[name]), None)


def facts_of(script: Script) -> dict[str, Any]:
    """Return placement, micro-batches and model of a run, as JSON gives them back."""
    facts = {
        "placement": placement_to_dict(script.placement),
        "num_micro_batches": script.num_micro_batches,
        "model": _facts_of_model(script.model),
    }
    read: dict[str, Any] = json.loads(json.dumps(facts))
    return read


def _facts_of_model(model: ModelOptions) -> dict[str, Any]:
    return {key: value for key, value in asdict(model).items() if key not in RARE or value != RARE[key]}


def ensure_same_model(manifest: Manifest, model: ModelOptions) -> None:
    """Ensure that a checkpoint is of a model, as far as its options tell it.

    Raises:
        ScriptError: It is of another model.
    """
    _changed_options(manifest, _facts_of_model(model))


def changes(manifest: Manifest, facts: Mapping[str, Any]) -> list[str]:
    """Return the options that differ between a checkpoint and the facts of a run that goes on, in words.

    Raises:
        ScriptError: It is of another model.
    """
    then, now = (run["num_micro_batches"] for run in (manifest.facts, facts))
    changed = _changed_options(manifest, facts["model"])
    return changed + ([f"num_micro_batches {then} -> {now}"] if then != now else [])


def _changed_options(manifest: Manifest, model: Mapping[str, Any]) -> list[str]:
    theirs, ours = {**RARE, **manifest.facts["model"]}, {**RARE, **model}
    names = sorted(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
    for name in names:
        if name in FIXED:
            detail = f"{name} {theirs.get(name)!r} instead of {ours.get(name)!r}"
            raise ScriptError(f"resume: {manifest.folder} was made with another model ({detail})")
    return [f"{name} {theirs.get(name)} -> {ours.get(name)}" for name in names if name not in SILENT]


def moves(manifest: Manifest, facts: Mapping[str, Any]) -> list[str]:
    """Return the change of placement of a run that goes on, in words; it changes at most last bits."""
    before, now = manifest.facts["placement"], facts["placement"]
    if before == now:
        return []
    names = [placement.get("name") for placement in (before, now)]
    detail = "same name, other blocks" if names[0] == names[1] else f"{names[0]} -> {names[1]}"
    return [f"placement ({detail})"]


def manifests(folder: Path) -> tuple[list[Manifest], list[str]]:
    """Return the checkpoints of a folder that have a manifest, the newest first.

    Beside them there is a line for each whose manifest was changed or is of a later version.
    """
    readable, passed_over = list[Manifest](), list[str]()
    for path in _manifest_paths(folder).values():
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError):
            data = None
        is_known = isinstance(data, dict) and data.get("schema_version") == SCHEMA_VERSION
        has_all = is_known and all(type(data.get(name)) is kind for name, kind in _FIELDS.items())
        if has_all and METADATA in data["files"]:
            numbers = data["iterations"], data["num_devices"]
            readable.append(Manifest(path.parent, *numbers, data, data["files"]))
        else:
            passed_over.append(f"{path.parent} is passed over, its file {path.name} cannot be read")
    return readable, passed_over


def write_manifest(
    folder: Path, facts: Mapping[str, Any], num_done: int, num_devices: int, files: Mapping[str, str]
) -> None:
    """Make a checkpoint whole: return when its manifest, and before that its files, are on the disk.

    The files are in the folder already; each has its digest in `files`.
    """
    flush_folder(folder)
    first = {"schema_version": SCHEMA_VERSION, "iterations": num_done, "torch": torch.__version__}
    whole = first | {"num_devices": num_devices} | dict(facts) | {"files": dict(files)}
    write_bytes(folder / "manifest.json", (to_json(whole) + "\n").encode(), durable=True)


def make_empty(folder: Path) -> None:
    """Make a checkpoint's folder, and remove an older one's files from it, its manifest first."""
    remove_checkpoint(folder)
    folder.mkdir(parents=True)
    flush_folder(folder.parent)


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint if it is there; its manifest first, because half of a checkpoint is none."""
    if folder.is_dir():
        (folder / "manifest.json").unlink(missing_ok=True)
        flush_folder(folder)
        shutil.rmtree(folder)


def prune(checkpoints: Path, newest: int, num_kept: int) -> None:
    """Remove checkpoints that are older than those to keep, and torn ones among these.

    Args:
        checkpoints: Holds them.
        newest: Iterations of the one that has just become whole; later ones are of another run, and left.
        num_kept: Whole ones to keep, this one included; 0 for all.
    """
    if not num_kept:
        return
    paths = [path for number, path in _manifest_paths(checkpoints).items() if number <= newest]
    whole = [path for path in paths if path.exists()]
    for path in set(paths) - set(whole[:num_kept]):
        remove_checkpoint(path.parent)


def digest_of(path: Path) -> str | None:
    """Return the digest of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _manifest_paths(folder: Path) -> dict[int, Path]:
    """Return where the manifest of each checkpoint is or would be, by iterations, the greatest first."""
    folders = {path.name.removeprefix("iteration_"): path for path in folder.glob("iteration_*")}
    by_number = {int(text): path / "manifest.json" for text, path in folders.items() if text.isdecimal()}
    return dict(sorted(by_number.items(), reverse=True))
