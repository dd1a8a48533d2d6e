"""The instances, read from the YAML files of this folder: one for each group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from experiments.benchmarks.inputs.random_placements import random_dag
from placements import Placement, PlacementError
from placements.forms.reading import Field, in_file
from placements.forms.texts import read_yaml
from placements.placement_file import by_device, placement_from_dict
from placements.shapes import SHAPES, shape_options

FOLDER = Path(__file__).parent
"""Where the instances and their answers are."""

MAKERS: dict[str, Callable[..., Placement]] = SHAPES | {"random_dag": random_dag}
"""What makes a placement, by the name in the field ``shape``."""

_TOP = ("schema_version", "source", "common")
_REQUIRED = ("name", "micro_batches")
_OPTIONAL = ("source", "quick", "tick_ms", "memory", "transfer")


class InstanceError(ValueError):
    """An instance is wrong; the message names file, entry, field and remedy in one line."""


@dataclass(frozen=True)
class Instance:
    """One named problem.

    Attributes:
        name: Unique: shape, devices x micro-batches, what the times are of, memory.
        group: The file that it is in, without its ending.
        placement: What runs where, with its memory.
        num_micro_batches: Number of micro-batches of a whole schedule.
        source: Where its times come from.
        is_quick: Whether it is one of the few for every day.
    """

    name: str
    group: str
    placement: Placement
    num_micro_batches: int
    source: str
    is_quick: bool = False

    @property
    def is_held_out(self) -> bool:
        """Whether it must never be used to tune a search: decided by its name alone, a third of all."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 3 == 0


def read_instances(paths: Iterable[Path] | None = None) -> list[Instance]:
    """Return the instances of some files, by default all of this folder; groups by name, as in the files.

    Raises:
        InstanceError: An entry is wrong, or two have the same name.
    """
    found: dict[str, Instance] = {}
    for path in sorted(FOLDER.glob("*.yaml")) if paths is None else paths:
        for instance in read_group(path):
            if instance.name in found:
                first = found[instance.name].group
                raise InstanceError(f"{path}: the name {instance.name!r} is used in {first} too; rename one")
            found[instance.name] = instance
    return list(found.values())


@cache
def named_instance(name: str) -> Instance:
    """Return an instance of this folder by its name."""
    by_name = {instance.name: instance for instance in read_instances()}
    if name not in by_name:
        raise InstanceError(f"instance: {name!r} is not in the library; see its files in {FOLDER}")
    return by_name[name]


def read_group(path: Path) -> list[Instance]:
    """Return the instances of one file.

    Raises:
        InstanceError: The file or an entry is wrong.
    """
    data = read_yaml(path, InstanceError)
    with in_file(path, InstanceError):
        top = Field(data, "", InstanceError).only(("instances",), _TOP)
        top.version(1, default=1)
        common = top.get("common", {}).mapping()
        common = {"source": top.get("source", "").value} | common
        return [
            _instance(path.stem, replace(each, value=common | each.mapping()))
            for each in top["instances"].items()
        ]


def _instance(group: str, entry: Field) -> Instance:
    name = entry["name"].text("a name")
    entry = replace(entry, where=f"{entry.where} ({name})")
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise entry["name"].wrong("a name", "use small letters, digits and _")
    try:
        placement = (_explicit if "blocks" in entry.mapping() else _of_shape)(entry)
    except PlacementError as error:
        raise InstanceError(f"{entry.where}.{error}") from None
    return Instance(
        name,
        group,
        replace(placement, name=name),
        entry["micro_batches"].whole("a number of micro-batches", "give a whole number of 1 or more", 1),
        entry["source"].text("a source", "say where the times come from"),
        entry.get("quick", False).typed(bool),
    )


def _explicit(entry: Field) -> Placement:
    """Return a placement whose blocks are written out, as in a placement file."""
    entry.only((*_REQUIRED, "num_devices", "blocks"), _OPTIONAL)
    names = ("name", "num_devices", "blocks", "memory", "transfer", "tick_ms")
    return placement_from_dict({"tick_ms": 1.0} | {k: entry.value[k] for k in names if k in entry.value})


def _of_shape(entry: Field) -> Placement:
    """Return a shape with the times, transfers and memory of an entry.

    A transfer of so many ticks is wherever a block waits for one that runs on none of its devices.
    """
    shape = MAKERS[entry["shape"].choice(list(MAKERS))]
    known = shape_options(shape)
    entry.only(_REQUIRED, (*_OPTIONAL, "shape", "times", *known))
    placement = shape(**{name: entry[name].typed(known[name].kind) for name in known if name in entry.value})
    times = {
        f"{letter}{i}": ticks.whole("a time", "give whole ticks of 1 or more", 1)
        for letter in entry.get("times", {}).mapping()
        for i, ticks in enumerate(entry["times"][letter].items("a time for each stage"))
    }
    for block in times.keys() - placement.by_name.keys():
        raise InstanceError(f"{entry.where}.times: there is no block {block!r}; give a time for each stage")
    ticks = entry.get("transfer", 0).whole("a time", "give whole ticks of 0 or more", 0)
    waits = [(placement.by_name[name], block) for block in placement.blocks for name in block.after]
    apart = [(first, then) for first, then in waits if not {*first.devices} & {*then.devices}]
    return replace(
        placement,
        blocks=tuple(replace(block, time=times.get(block.name, block.time)) for block in placement.blocks),
        tick_ms=float(entry.get("tick_ms", 1.0).number("a number of milliseconds")),
        transfer=tuple((first.name, then.name, ticks) for first, then in apart) if ticks else (),
        memory=by_device("memory", entry.get("memory").value, "memory", placement.num_devices),
    )
