"""Scenarios: conditions of a run with names and weights, read from plain data, and a bound for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from placements import Block, Placement
from placements.plain_data import Field
from schedsearch.proof.makespan import makespan_bound
from schedsearch.simulation.conditions import Conditions, ConditionsError

_FINER = 1000
"""Parts of a tick in which scaled times are counted, rounded down, so that a bound stays one."""


@dataclass(frozen=True)
class Scenario:
    """Conditions under which an order is to be good.

    Attributes:
        name: Shown in tables.
        conditions: What differs from the placement's times.
        weight: How much it counts beside the others; above 0.
    """

    name: str
    conditions: Conditions = field(default_factory=Conditions)
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the weight, and that each message goes without waiting for others."""
        if not 0 < self.weight < math.inf:
            raise ConditionsError(f"scenario {self.name}: weight {self.weight!r} is not a number above 0")
        if self.conditions.links:
            raise ConditionsError(
                f"scenario {self.name}: messages that wait for a link are not known here; use slow_pairs"
            )

    def bound_ms(self, placement: Placement, num_micro_batches: int) -> float:
        """Return the ms that the mean iteration of no order beats.

        Proof. With given orders a makespan is a maximum of sums of times, and so convex in them: on average
        it is at least that of the average times, which is at least the bound of a placement with these.
        """
        conditions, tick_ms = self.conditions, placement.tick_ms

        def mean(block: Block) -> Block:
            ticks = Fraction(block.time)
            if repeats := conditions.measured_ms.get(block.name):
                ticks = Fraction(math.fsum(repeats) / len(repeats) / tick_ms)
            factor = max(conditions.slow_devices.get(device, 1.0) for device in block.devices)
            return replace(block, time=max(1, math.floor(ticks * _FINER * Fraction(str(factor)))))

        def sent(source: str, target: str, ticks: int) -> tuple[str, str, int]:
            factor = _slowest(
                conditions, placement.by_name[source].devices, placement.by_name[target].devices
            )
            return source, target, math.floor(ticks * _FINER * Fraction(str(factor)))

        scaled = replace(
            placement,
            blocks=tuple(map(mean, placement.blocks)),
            transfer=tuple(sent(*each) for each in placement.transfer),
        )
        return float(makespan_bound(scaled, num_micro_batches) * tick_ms / _FINER)


def _slowest(conditions: Conditions, sources: Sequence[int], targets: Sequence[int]) -> float:
    pairs = ((a, b) for a in sources for b in targets if a != b)
    return max((conditions.slow_pairs.get(pair, 1.0) for pair in pairs), default=1.0)


def scenarios_from(data: Any, where: str, placement: Placement) -> tuple[Scenario, ...]:
    """Return the scenarios of plain data: a list of mappings.

    Each has fields of `Conditions` and of `Scenario`; keys of ``slow_devices`` are devices, those of
    ``slow_pairs`` pairs as in ``2-3``, the sender first. A name is made where there is none.

    Args:
        data: The list.
        where: What it is called in messages.
        placement: The devices and blocks.

    Raises:
        ConditionsError: A field is unknown or wrong, or two scenarios have one name.
    """
    rows = Field(data, where, ConditionsError).items("a list of scenarios, as [{jitter: 0.1}]")
    if not rows:
        raise ConditionsError(f"{where}: is empty; give at least one scenario, as [{{jitter: 0.1}}]")
    found = [_scenario(row, placement) for row in rows]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConditionsError(f"{where}: two scenarios are called {name!r}; give each a name of its own")
    return tuple(found)


def _scenario(row: Field, placement: Placement) -> Scenario:
    row.only((), ("name", "weight", "jitter", "distribution", "slow_devices", "slow_pairs", "measured_ms"))
    given = row.mapping("a scenario, as {jitter: 0.1}")
    if not set(given) - {"name", "weight"}:
        raise row.wrong("a scenario, as {jitter: 0.1}", "say what differs, as jitter or slow_devices")
    values: dict[str, Any] = {name: given[name] for name in ("jitter", "distribution") if name in given}
    for name in ("slow_devices", "slow_pairs", "measured_ms"):
        if name in given:
            row[name].mapping(f"a mapping, as {_EXAMPLES[name]}")
    values["slow_devices"] = {
        _device(row, "slow_devices", key): factor for key, factor in given.get("slow_devices", {}).items()
    }
    values["slow_pairs"] = {_pair(row, key): factor for key, factor in given.get("slow_pairs", {}).items()}
    values["measured_ms"] = {
        str(name): _repeats(row, name, times) for name, times in given.get("measured_ms", {}).items()
    }
    try:
        conditions = Conditions(**values)
        conditions.check(placement)
        name = str(given.get("name") or _name(conditions))
        weight = row["weight"].number(remedy="give one above 0") if "weight" in given else 1.0
        return Scenario(name, conditions, weight)
    except ConditionsError as error:
        message = str(error)
        raise ConditionsError(
            message if message.startswith(row.where) else f"{row.where}.{message}"
        ) from None


_EXAMPLES = {"slow_devices": "{3: 1.2}", "slow_pairs": "{2-3: 4}", "measured_ms": "{F0: [9.8, 10.4]}"}


def _device(row: Field, name: str, key: object) -> int:
    if isinstance(key, int) or (isinstance(key, str) and key.isdigit()):
        return int(key)
    raise ConditionsError(f"{row.where}.{name}: {key!r} is not a device; give one, as in {_EXAMPLES[name]}")


def _pair(row: Field, key: object) -> tuple[int, int]:
    sender, _, receiver = str(key).partition("-")
    if sender.strip().isdigit() and receiver.strip().isdigit():
        return int(sender), int(receiver)
    raise ConditionsError(
        f"{row.where}.slow_pairs: {key!r} is not a pair of devices; give one, as in {_EXAMPLES['slow_pairs']}"
    )


def _repeats(row: Field, name: object, times: object) -> Sequence[float]:
    numbers = times if isinstance(times, list | tuple) else [times]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        raise ConditionsError(
            f"{row.where}.measured_ms.{name}: {times!r} are not times in ms; give a list of them, as in "
            f"{_EXAMPLES['measured_ms']}"
        )
    return tuple(map(float, numbers))


def _name(conditions: Conditions) -> str:
    parts = [f"jitter {conditions.jitter:g}"] if conditions.jitter else []
    parts += [f"device {device} x {factor:g}" for device, factor in conditions.slow_devices.items()]
    parts += [f"link {a}-{b} x {factor:g}" for (a, b), factor in conditions.slow_pairs.items()]
    parts += [f"measured times of {len(conditions.measured_ms)} blocks"] if conditions.measured_ms else []
    return ", ".join(parts) or "as planned"


def weights_of(scenarios: Iterable[Scenario]) -> list[float]:
    """Return the weights of scenarios as shares of 1."""
    weights = [each.weight for each in scenarios]
    return [each / sum(weights) for each in weights]
