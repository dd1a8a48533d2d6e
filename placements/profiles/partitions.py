"""A block of several partitions, one after another, each with configurations of its own.

Kareus cuts a block into partitions, each some computation beside some communication, and chooses for each how
many SMs communicate and when that begins, together with the clock. Changing the clock takes longer than a
partition, so a block has one clock for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placements.profiles.operating_point import OperatingPoint, ProfileError


def joined(partitions: Sequence[Sequence[OperatingPoint]]) -> tuple[OperatingPoint, ...]:
    """Return the operating points of a block that runs partitions one after another.

    >>> joined([
    ...     [OperatingPoint(1410, 2.0, 500.0, "4 SMs"), OperatingPoint(1410, 1.8, 560.0, "8 SMs")],
    ...     [OperatingPoint(1410, 1.0, 300.0)],
    ... ])
    (OperatingPoint(clock_mhz=1410, time_ms=3.0, energy_mj=800.0, config='4 SMs'), \
OperatingPoint(clock_mhz=1410, time_ms=2.8, energy_mj=860.0, config='8 SMs'))

    Args:
        partitions: The points of each, in any order.

    Returns:
        By clock, those that all partitions have; and by configuration, the partitions' in their order with
        `` + `` between. A point that another one of its clock beats in time and energy is left out.

    Raises:
        ProfileError: No clock is common to all.
    """
    if not partitions:
        raise ProfileError("partitions: has none; give at least one")
    common = set.intersection(*({point.clock_mhz for point in points} for points in partitions))
    if not common:
        raise ProfileError("partitions: have no clock in common; give each the same clocks")
    found = []
    for clock_mhz in sorted(common):
        whole = [OperatingPoint(clock_mhz, 0.0, 0.0)]
        for points in partitions:
            whole = _undominated(
                _followed_by(before, point)
                for before in whole
                for point in points
                if point.clock_mhz == clock_mhz
            )
        found += sorted(whole, key=lambda point: point.config)
    return tuple(found)


def _followed_by(before: OperatingPoint, point: OperatingPoint) -> OperatingPoint:
    return OperatingPoint(
        before.clock_mhz,
        before.time_ms + point.time_ms,
        before.energy_mj + point.energy_mj,
        " + ".join(filter(None, (before.config, point.config))),
    )


def _undominated(points: Iterable[OperatingPoint]) -> list[OperatingPoint]:
    kept: list[OperatingPoint] = []
    for point in sorted(points, key=lambda point: (point.time_ms, point.energy_mj)):
        if not kept or point.energy_mj < kept[-1].energy_mj:
            kept.append(point)
    return kept
