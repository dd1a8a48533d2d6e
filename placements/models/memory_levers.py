"""Recomputation and offload as modes of a placement's forwards and their backwards.

A forward holds its activations until its backward. It may hold less, and some of it is then computed again
first; or they go to the host and come back, on the streams `copy_out` and `copy_in`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placements.block import Block, Kind, PlacementError
from placements.modes import Choice, Decision
from placements.pieces import backwards_of
from placements.spec import Placement


@dataclass(frozen=True)
class Recompute:
    """A mode in which a forward holds less, and the backward first computes the rest again.

    Attributes:
        memory: Units held from the forward to the backward.
        time: Ticks for which the backward takes longer.
        transient: Units that the backward holds while it runs; None for all that the forward would hold. Less
            where layer after layer is computed again.
    """

    memory: int
    time: int
    transient: int | None = None
    name: str = "recompute"


@dataclass(frozen=True)
class Offload:
    """A mode in which the host holds activations between forward and backward: units, and ticks each way."""

    memory: int
    time: int
    name: str = "offload"


def with_levers(
    placement: Placement,
    recompute: Mapping[str, Sequence[Recompute]] | None = None,
    offload: Mapping[str, Sequence[Offload]] | None = None,
    host_memory: int | None = None,
) -> Placement:
    """Return a placement in which forwards may hold less, as modes besides ``keep``.

    Ways to compute again and to send to the host stand under the names of forwards, as in a shape, with whole
    or split backwards. Where something may go to the host, streams share the memory of a device, and what a
    backward releases counts until it ends. `host_memory` is the units that each device may hold on its host.

    Raises:
        PlacementError: A forward is unknown or has no backward, or more is held or moved than there is.
    """
    recompute, offload = recompute or {}, offload or {}
    levers: dict[str, list[Recompute | Offload]] = {
        name: [*recompute.get(name, ()), *offload.get(name, ())] for name in {**recompute, **offload}
    }
    pairs = {name: _backwards(placement, name) for name in levers}
    sharing = {device for name in offload for device in placement.by_name[name].devices}
    blocks = {
        block.name: block
        if sharing.isdisjoint(block.devices)
        else replace(block, transient=block.transient + max(0, -_units(block)))
        for block in placement.blocks
    }
    decisions = [Decision(tuple(_choices(blocks, name, pairs[name], ways))) for name, ways in levers.items()]
    return replace(
        placement,
        blocks=tuple(blocks.values()),
        decisions=(*placement.decisions, *decisions),
        host_memory=placement.host_memory if host_memory is None else (host_memory,) * placement.num_devices,
    )


def _backwards(placement: Placement, name: str) -> tuple[str, ...]:
    """Return the blocks that release the memory of a forward, in order."""
    if name not in placement.by_name or placement.by_name[name].kind is not Kind.F:
        forwards = [block.name for block in placement.blocks if block.kind is Kind.F]
        raise PlacementError(f"levers: there is no forward {name!r}; the forwards are {', '.join(forwards)}")
    backwards = tuple(backward for backward in backwards_of(name) if backward in placement.by_name)
    if not backwards or sum(_units(placement.by_name[block]) for block in (name, *backwards)) != 0:
        raise PlacementError(f"levers: no backward releases the memory of {name}; name it as shapes do")
    return backwards


def _units(block: Block) -> int:
    if isinstance(block.memory, tuple):
        raise PlacementError(f"levers: {block.name} holds other memory on each device; give it one number")
    return block.memory


def _choices(
    blocks: dict[str, Block], name: str, backwards: Sequence[str], levers: Sequence[Recompute | Offload]
) -> Iterator[Choice]:
    """Yield the modes of a forward and its backward; keep is the first.

    Where one is offload, copies are added to the blocks, which no other mode runs.
    """
    forward, first, copies = blocks[name], blocks[backwards[0]], list[Block]()
    if any(isinstance(lever, Offload) for lever in levers):
        out = Block(f"{name} out", Kind.F, forward.devices, 1, data_parallel=forward.data_parallel)
        back = replace(out, name=f"{name} in", kind=Kind.B, after=(out.name,), stream="copy_in")
        copies = [replace(out, after=(name,), stream="copy_out"), back]
        first = replace(first, after=(*first.after, back.name))
        blocks |= {block.name: block for block in (*copies, first)}
    idle = [replace(block, time=0) for block in copies]
    yield Choice("keep", (forward, *(blocks[backward] for backward in backwards), *idle))
    held, later = _units(forward), sum(-_units(blocks[backward]) for backward in backwards[1:])
    besides = first.transient - (max(0, -_units(first)) if copies else 0)
    for lever in levers:
        units = lever.memory
        if not 0 <= units <= held:
            where = f"levers.{name}.{lever.name}.memory"
            raise PlacementError(f"{where}: {units} is not between 0 and the {held} units that {name} holds")
        if isinstance(lever, Offload):
            out, back = (replace(block, time=lever.time) for block in copies)
            out = replace(out, memory=-units, transient=units, host_memory=units)
            back, after = replace(back, memory=units), replace(first, host_memory=-units)
            yield Choice(lever.name, (out, back, after))
            continue
        transient = (held if lever.transient is None else lever.transient) - later
        after = replace(
            first,
            time=first.time + lever.time,
            memory=later - units,
            transient=besides + max(transient, units if copies else 0, 0),
        )
        yield Choice(lever.name, (replace(forward, memory=units), after, *idle))
