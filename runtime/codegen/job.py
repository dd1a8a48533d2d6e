"""The job of the scripts of all devices, in ``job.json`` beside them: model, placement and more.

A script is an order of actions with their clocks, and names the hash of its job. The hash covers all that the
file holds and nothing of the scripts. What the model's data mean is not known here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placements import Placement
from placements.forms.reading import Field, json_file
from placements.forms.texts import to_json, write_text
from placements.placement_file import placement_to_dict
from runtime.program.calls import ScriptError
from runtime.program.program_file import batch_from_plain, read_placement_field, specs_of_devices
from runtime.program.tensor_spec import TensorSpecs, specs_to_plain

JOB_FILE = "job.json"
"""Its name in the folder of the scripts."""

SCHEMA_VERSION = 1
"""Version of the file form."""

_MOST = 1_000_000
"""Micro-batches of an iteration."""

_FIELDS = (
    *("schema_version", "hash", "versions", "num_micro_batches", "loops", "channels", "tensor_specs"),
    *("model", "placement"),
)


class JobError(ScriptError):
    """A ``job.json`` cannot be read or written; the message names the field and the remedy in one line."""


@dataclass(frozen=True)
class ScriptJob:
    """Job that the scripts of all devices share.

    Attributes:
        model_data: Model of the blocks, as plain data.
        channels: All (source, target) pairs that messages take.
        least_micro_batches: The fewest that the scripts' loops can run; None if only `num_micro_batches`.
        micro_batches_per_round: Step between the numbers of micro-batches that its loops can run.
        tensor_specs: For each device the tensors of its messages; empty where only the model knows.
        versions: Versions of the software that it was made with, by its name.
        batch: As of `runtime.program.instructions.Programs`.
        hash: Twelve hexadecimal digits of all that its file holds; empty before there is one.
    """

    model_data: Mapping[str, Any]
    placement: Placement
    num_micro_batches: int
    channels: tuple[tuple[int, int], ...]
    least_micro_batches: int | None = None
    micro_batches_per_round: int = 1
    tensor_specs: tuple[TensorSpecs, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    batch: tuple[int, ...] = ()
    hash: str = field(default="", compare=False)


def write_job(job: ScriptJob, path: Path) -> str:
    """Write a job in one step; return its hash. JobError if JSON has no form for the model."""
    data = _to_dict(job)
    digest = _hash(data)
    write_text(path, to_json({"schema_version": SCHEMA_VERSION, "hash": digest} | data) + "\n")
    return digest


def read_job(path: str | Path) -> ScriptJob:
    """Return the job of a ``job.json``; JobError if a field is missing or wrong, or the hash of others."""
    with json_file(path, f"the {JOB_FILE} written with the scripts", JobError) as data:
        return _job(data)


def _to_dict(job: ScriptJob) -> dict[str, Any]:
    """Return the file form, but for its hash."""
    loops = {name: getattr(job, name) for name in ("least_micro_batches", "micro_batches_per_round")}
    return {
        "schema_version": SCHEMA_VERSION,
        "versions": dict(job.versions),
        "num_micro_batches": job.num_micro_batches,
        "loops": None if job.least_micro_batches is None else loops,
        "channels": [list(channel) for channel in job.channels],
        "tensor_specs": [specs_to_plain(specs) for specs in job.tensor_specs] or None,
        "model": _plain(job.model_data),
        "placement": placement_to_dict(job.placement),
        **({"batch": list(job.batch)} if job.batch else {}),
    }


def _hash(data: Mapping[str, Any]) -> str:
    """Return the hash of the file form; how the file is laid out makes no difference."""
    content = json.loads(json.dumps({name: value for name, value in data.items() if name != "hash"}))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _plain(model: Mapping[str, Any]) -> Any:
    """Return a model as JSON reads it back."""
    try:
        return json.loads(json.dumps(model, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise JobError(
            f"model: cannot be written to {JOB_FILE} ({error}); use text, finite numbers, True, False, None, "
            "lists, and mappings by text"
        ) from None


def _job(data: Field) -> ScriptJob:
    data.mapping("a job", f"give the {JOB_FILE} written with the scripts")
    data.version(SCHEMA_VERSION)
    data.only(_FIELDS, ("batch",))
    placement = read_placement_field(data["placement"])
    number = _count(data["num_micro_batches"])
    loops: tuple[int | None, int] = (None, 1)
    if data["loops"].value is not None:
        names = ("least_micro_batches", "micro_batches_per_round")
        given = data["loops"].only(names)
        loops = _count(given[names[0]]), _count(given[names[1]])
    job = ScriptJob(
        data["model"].mapping("a mapping of a model's options"),
        placement,
        number,
        tuple(_channel(channel, placement) for channel in data["channels"].items("a list of channels")),
        *loops,
        specs_of_devices(data["tensor_specs"], placement),
        {str(name): data["versions"][name].text() for name in data["versions"].mapping()},
        batch_from_plain(data["batch"], placement, number) if "batch" in data.mapping() else (),
        data["hash"].text("twelve hexadecimal digits", "generate the scripts again"),
    )
    if job.hash != (digest := _hash(data.value)):
        raise JobError(f"hash: {job.hash!r} does not match the rest, {digest!r}; generate the scripts again")
    return job


def _count(count: Field) -> int:
    return count.whole("a whole number from 1 on", min=1, max=_MOST)


def _channel(channel: Field, placement: Placement) -> tuple[int, int]:
    most = placement.num_devices - 1
    ends = [end.whole(f"a device from 0 to {most}", min=0, max=most) for end in channel.items()]
    if len(ends) != 2 or ends[0] == ends[1]:
        raise channel.wrong("a (source, target)", "give two devices")
    return ends[0], ends[1]
