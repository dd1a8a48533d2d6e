"""Costs of blocks in their modes, and on streams other than ``compute``, where a profile lacks them.

A profile has a cost for each block in each of its modes, by the names of `Placement.runs`: ``B0`` as it is
written, ``B0@recompute`` in that mode. Missing costs follow from the others:

- A backward that takes longer computes its forward again, or the part that the placement's times say. It
  adds this part of the forward's time and energy at each clock.
- In the mode ``offload``, the longer block waits for copies: as long at every clock, with waiting's power.
- Any other change of time is as much more work, or less, at the power of the block.
- A block on another stream than ``compute`` takes its time at every clock, and nothing beyond waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placements.block import COMPUTE, Block, Kind
from placements.profiles.operating_point import OperatingPoint, ProfileError
from placements.profiles.profile import Profile
from placements.spec import Placement

OFFLOAD = "offload"
"""The mode in which a block that takes longer waits for copies."""


def with_modes(profile: Profile, placement: Placement) -> Profile:
    """Return a profile with a cost for each block in each of its modes; known costs stay.

    Args:
        profile: With the blocks of the stream ``compute`` as they are written, at least.
        placement: Placement whose times say how modes differ.

    Raises:
        ProfileError: A backward computes its forward again, and the two have no clock in common.
    """
    points = dict(profile.points)
    for name, block in placement.runs.items():
        if name not in points and (of_mode := tuple(_points(profile, placement, name, block))):
            points[name] = of_mode
    return profile if len(points) == len(profile.points) else replace(profile, points=points)


def _points(profile: Profile, placement: Placement, name: str, block: Block) -> Iterator[OperatingPoint]:
    """Yield the points of a block in a mode; none if the profile lacks the points that they follow from."""
    base = profile.points.get(block.name, ())
    if block.stream != COMPUTE:
        highest = max(points[-1].clock_mhz for points in profile.points.values())
        time_ms = placement.ms(block.time)
        yield from base or [OperatingPoint(highest, time_ms, profile.min_blocking_power_w * time_ms)]
        return
    if not base:
        return
    written, decision = placement.by_name[block.name], placement.decisions[placement.decision_of[block.name]]
    choice = next(mode for mode in decision.choices if placement.name_in(mode, block.name) == name)
    more, waiting_ms = block.time - written.time, placement.ms(block.time - written.time)
    again = [
        forward
        for forward in map(placement.by_name.__getitem__, decision.blocks)
        if forward.kind is Kind.F and forward.stream == COMPUTE and set(forward.devices) & set(block.devices)
        if choice.by_name.get(forward.name, forward).time and block.kind is not Kind.F
    ]
    if more > 0 and choice.name == OFFLOAD:
        for point in base:
            yield _plus(point, waiting_ms, waiting_ms * profile.blocking_w(point.clock_mhz))
    elif more > 0 and again:
        yield from _with_forwards(profile, name, base, again, more / sum(forward.time for forward in again))
    else:
        factor = block.time / written.time
        for point in base:
            yield replace(point, time_ms=point.time_ms * factor, energy_mj=point.energy_mj * factor)


def _plus(point: OperatingPoint, time_ms: float, energy_mj: float) -> OperatingPoint:
    return replace(point, time_ms=point.time_ms + time_ms, energy_mj=point.energy_mj + energy_mj)


def _with_forwards(
    profile: Profile, name: str, base: tuple[OperatingPoint, ...], again: list[Block], share: float
) -> Iterator[OperatingPoint]:
    """Yield the points of a backward plus a share of the recomputed forwards, all at one clock."""
    fastest = profile.in_fastest_configs().points
    forwards = [{point.clock_mhz: point for point in fastest.get(forward.name, ())} for forward in again]
    shared = [point for point in base if all(point.clock_mhz in by_clock for by_clock in forwards)]
    if not shared:
        fault = f"{name} computes {again[0].name} again, and the two have no clock in common"
        raise ProfileError(f"profile: {fault}; give rows of the block {name}")
    for point in shared:
        added = [by_clock[point.clock_mhz] for by_clock in forwards]
        time_ms, energy_mj = sum(point.time_ms for point in added), sum(point.energy_mj for point in added)
        yield _plus(point, share * time_ms, share * energy_mj)
