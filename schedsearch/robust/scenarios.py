"""Scenarios: conditions of a run with names and weights, read from plain data, and a bound for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from placements import Block, Placement
from placements.forms.reading import Field
from schedsearch.proof.makespan import makespan_bound
from schedsearch.simulation.conditions import Conditions, ConditionsError, Jitter

_FINER = 1000
"""Parts of a tick to which scaled times are rounded down, so that a bound stays valid."""


@dataclass(frozen=True)
class Scenario:
    """Conditions under which an order should be good, with a name and a weight.

    Attributes:
        name: Name in tables.
        conditions: Differences from the placement's times.
        weight: Weight relative to other scenarios; above 0.
    """

    name: str
    conditions: Conditions = field(default_factory=Conditions)
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the weight, and that no message waits for a link."""
        if not 0 < self.weight < math.inf:
            raise ConditionsError(f"weight: {self.weight!r} of scenario {self.name} is not a number above 0")
        if self.conditions.links:
            raise ConditionsError(
                f"links: messages of scenario {self.name} that wait for a link are not known here; "
                "use slow_pairs"
            )

    def bound_ms(self, placement: Placement, num_micro_batches: int) -> float:
        """Return a lower bound on the mean iteration time over all orders, in ms.

        Proof. With given orders a makespan is a maximum of sums of times, and so convex in them: on average
        it is at least that of the average times, which is at least the bound of a placement with these.
        """
        conditions, by_name = self.conditions, placement.by_name

        def scaled(ticks: Fraction, factors: Iterable[float]) -> int:
            return math.floor(ticks * _FINER * Fraction(str(max(factors, default=1.0))))

        def mean(block: Block) -> Block:
            ticks = Fraction(block.time)
            if repeats := conditions.measured_ms.get(block.name):
                ticks = Fraction(math.fsum(repeats) / len(repeats) / placement.tick_ms)
            factors = (conditions.slow_devices.get(device, 1.0) for device in block.devices)
            return replace(block, time=max(1, scaled(ticks, factors)))

        def sent(source: str, target: str, ticks: int) -> tuple[str, str, int]:
            pairs = ((a, b) for a in by_name[source].devices for b in by_name[target].devices if a != b)
            return source, target, scaled(Fraction(ticks), (conditions.slow_pairs.get(p, 1.0) for p in pairs))

        fine = replace(
            placement,
            blocks=tuple(map(mean, placement.blocks)),
            transfer=tuple(sent(*edge) for edge in placement.transfer),
        )
        return float(makespan_bound(fine, num_micro_batches) * placement.tick_ms / _FINER)


@dataclass(frozen=True)
class _Given:
    """A scenario as plain data; the keys of `slow_pairs` are pairs as in ``2-3``, the sender first."""

    name: str = ""
    weight: float = 1.0
    jitter: float = 0.0
    distribution: str = Jitter.LOGNORMAL
    slow_devices: Mapping[int, float] = field(default_factory=dict)
    slow_pairs: Mapping[str, float] = field(default_factory=dict)
    measured_ms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def scenarios_from(data: Any, where: str, placement: Placement) -> tuple[Scenario, ...]:
    """Return the scenarios of plain data: a list of mappings with the fields of `Conditions` and `Scenario`.

    A name is made where there is none.

    Args:
        data: The list.
        where: Name of the list in messages.
        placement: The devices and blocks.

    Raises:
        ConditionsError: A field is unknown or wrong, or two scenarios have one name.
    """
    rows = Field(data, where, ConditionsError).items("a list of scenarios, as [{jitter: 0.1}]")
    if not rows:
        raise ConditionsError(f"{where}: is empty; give at least one scenario, as [{{jitter: 0.1}}]")
    scenarios = [_scenario(row, placement) for row in rows]
    names = [scenario.name for scenario in scenarios]
    for name in names:
        if names.count(name) > 1:
            raise ConditionsError(f"{where}: two scenarios are called {name!r}; give each a name of its own")
    return tuple(scenarios)


def _scenario(row: Field, placement: Placement) -> Scenario:
    given, pairs = row.record(_Given), {}
    if not set(row.value) - {"name", "weight"}:
        raise row.wrong("a scenario, as {jitter: 0.1}", "say what differs, as jitter or slow_devices")
    for key, factor in given.slow_pairs.items():
        sender, _, receiver = str(key).partition("-")
        if not (sender.strip().isdigit() and receiver.strip().isdigit()):
            wrong = f"{key!r} is not a pair of devices; give one, as in {{2-3: 4}}"
            raise row["slow_pairs"].mistake(wrong)
        pairs[int(sender), int(receiver)] = factor
    try:
        conditions = Conditions(
            given.jitter, given.distribution, given.measured_ms, given.slow_devices, pairs
        )
        conditions.check(placement)
        return Scenario(given.name or _name(conditions), conditions, given.weight)
    except ConditionsError as error:
        raise ConditionsError(f"{row.where}.{error}") from None


def _name(conditions: Conditions) -> str:
    parts = [f"jitter {conditions.jitter:g}"] if conditions.jitter else []
    parts += [f"device {device} x {factor:g}" for device, factor in conditions.slow_devices.items()]
    parts += [f"link {a}-{b} x {factor:g}" for (a, b), factor in conditions.slow_pairs.items()]
    parts += [f"measured times of {len(conditions.measured_ms)} blocks"] if conditions.measured_ms else []
    return ", ".join(parts) or "as planned"


def weights_of(scenarios: Iterable[Scenario]) -> list[float]:
    """Return the weights of scenarios as shares of 1."""
    weights = [scenario.weight for scenario in scenarios]
    return [weight / sum(weights) for weight in weights]
