"""A placement as its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from placements.block import Block
from placements.modes import Decision
from placements.placement_file.form import SCHEMA_VERSION
from placements.placement_file.yaml_text import to_yaml
from placements.plain_data import plain
from placements.spec import Placement


def placement_to_dict(placement: Placement) -> dict[str, Any]:
    """Return the file form as plain data; `transfer` as ``{from, to, time}``."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "name": placement.name,
        "num_devices": placement.num_devices,
        "tick_ms": placement.tick_ms,
    }
    optional = ("memory", "static_memory", "num_gpus", "memory_unit_mib", "nodes", "host_memory")
    given = {name: value for name in optional if (value := getattr(placement, name)) not in (None, ())}
    data |= plain(given)
    data["blocks"] = [_block_to_dict(block) for block in placement.blocks]
    if placement.decisions:
        data["modes"] = [_decision_to_dict(placement, decision) for decision in placement.decisions]
    if placement.slowdown:
        data["slowdown"] = plain(placement.slowdown)
    if placement.shared_streams:
        data["shared_streams"] = plain(placement.shared_streams)
    if placement.transfer:
        data["transfer"] = [{"from": a, "to": b, "time": ticks} for a, b, ticks in placement.transfer]
    return data


def _block_to_dict(block: Block) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": block.name,
        "kind": block.kind.value,
        "devices": list(block.devices),
        "time": block.time,
        "memory": _memory_to_plain(block),
        "after": list(block.after),
    }
    return data | {
        each.name: value
        for each in fields(block)
        if each.name not in data and (value := getattr(block, each.name)) != each.default
    }


def _decision_to_dict(placement: Placement, decision: Decision) -> dict[str, Any]:
    """Return for each choice what it changes."""
    choices: dict[str, dict[str, Any]] = {}
    for choice in decision.choices:
        choices[choice.name] = {}
        for block in choice.blocks:
            written, changed = _changeable(placement.by_name[block.name]), _changeable(block)
            changes = {name: value for name, value in changed.items() if value != written[name]}
            choices[choice.name][block.name] = changes
    return {"choices": choices}


def _changeable(block: Block) -> dict[str, Any]:
    """Return what a mode may change of a block."""
    return {
        "time": block.time,
        "memory": _memory_to_plain(block),
        "transient": block.transient,
        "host_memory": block.host_memory,
    }


def _memory_to_plain(block: Block) -> int | dict[int, int]:
    """Return one number, or a mapping from each device that it changes to units."""
    if not isinstance(block.memory, tuple):
        return block.memory
    return {device: units for device in block.devices if (units := block.memory_on(device))}


def placement_to_yaml(placement: Placement, costs: Mapping[str, object] | None = None) -> str:
    """Return the placement as the text of a ``placement.yaml``, with a key on where its times come from."""
    data = placement_to_dict(placement) | dict(costs or {})
    return to_yaml(data)
