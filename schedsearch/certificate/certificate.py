"""A certificate: a repetend, the bound on the period that it is held against, and the reasons for the bound.

It is plain data that `schedsearch.certificate.check` can check without the search; here it is made from a
search's result. It gives no reasons for the bounds on makespan and span: these are checked without, by
`schedsearch.certificate.check_other_bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from placements import Placement
from placements.block import COMPUTE
from placements.streams import lane_name
from schedsearch.proof.conflicts import Conflicts, conflicts
from schedsearch.proof.memory_occupancy import MemoryOccupancy, memory_occupancy
from schedsearch.proof.mode_choice import ModeChoice, mode_choice
from schedsearch.repetend import Repetend

if TYPE_CHECKING:  # so that who checks a certificate need not load the search
    from schedsearch.core.answer import SearchResult


class CertificateError(ValueError):
    """A certificate is wrong; the message says in one line which of its claims is false."""


@dataclass(frozen=True)
class Load:
    """No period per micro-batch is below a stream's work, as a stream runs one block at a time.

    Attributes:
        device: Device whose work it is.
        stream: Stream of the device.
    """

    device: int
    stream: str = COMPUTE

    def bound(self, placement: Placement) -> Fraction:
        """Return the ticks per micro-batch that it proves, by adding up each block's least time."""
        each = placement.per_micro_batch
        here = (b for b in each.blocks if self.device in b.devices and b.stream == self.stream)
        return Fraction(sum(min(b.time for b in each.alternatives(block.name)) for block in here))

    def __str__(self) -> str:
        return f"load of device {lane_name((self.device, self.stream))}"


@dataclass(frozen=True)
class Refutation:
    """No repetend has a period; where `RepetendLimits.keep_monotone`, none has a shorter one either.

    Attributes:
        micro_batches: Per repetend.
        period: Ticks.
        solver: Who says so.
    """

    micro_batches: int
    period: int
    solver: str


@dataclass(frozen=True)
class MinCycleRatio:
    """No period per micro-batch is below the least of a cycle; see `schedsearch.state_space.min_cycle_ratio`.

    Attributes:
        period: Ticks per micro-batch that no cycle beats.
        devices: What runs on others was left out.
        cut_out: Blocks that were left out of the states.
    """

    period: Fraction
    devices: tuple[int, ...]
    cut_out: tuple[str, ...] = ()


Universal = Load | Conflicts | MemoryOccupancy | MinCycleRatio | ModeChoice
"""Why a period is too short for any number of micro-batches per repetend."""

Reason = Universal | Refutation
"""Likewise, or for one number of micro-batches per repetend."""


@dataclass(frozen=True)
class RepetendLimits:
    """Demands on every repetend besides its placement's capacities; None for none.

    Attributes:
        span: Longest time from first start to last end of one round's micro-batches, in ticks.
        latency: Longest time from first start to last end of each single micro-batch, in ticks.
        memory: The most that any device may hold, static memory included.
    """

    span: int | None = None
    latency: int | None = None
    memory: int | None = None

    @property
    def keep_monotone(self) -> bool:
        """Whether a period that cannot be reached shows that no shorter one can.

        Proof. Let an idle tick be added at the end of each round of a repetend: a block that starts
        ``start`` ticks into round q starts at ``q * (T + 1) + start`` instead of ``q * T + start``. Starts
        that were in order stay so and none come closer, since later ones have an equal or greater q, and
        the first start after a period, with q + 1, is put off a tick more. So it is a repetend of one tick
        more, with every device's order, and so its memory, unchanged. But span and latency may grow, so
        this holds only without limits on them.
        """
        return self.span is None and self.latency is None

    def on(self, placement: Placement) -> Placement:
        """Return the placement's part that repeats, with no more memory than the limit."""
        each = placement.per_micro_batch
        if self.memory is None:
            return each
        most = self.memory
        return each.with_memory(min(most, c) for c in each.memory or (most,) * each.num_devices)

    def in_words(self, placement: Placement) -> str:
        """Return them with a placement's times; empty where there are none."""
        times = (("span", self.span), ("latency", self.latency))
        kept = [f"{name} at most {placement.ms(value):.10g} ms" for name, value in times if value is not None]
        kept += [] if self.memory is None else [f"memory at most {self.memory}"]
        return f" with {' and '.join(kept)}" if kept else ""


@dataclass(frozen=True)
class Certificate:
    """The claim that a repetend is valid, and that none of the sizes asked for beats a bound.

    Attributes:
        placement: What runs where.
        sizes: The numbers of micro-batches per repetend that the bound is for, ascending.
        repetend: Repetend of the placement without its optimizer blocks.
        period_bound: Ticks per micro-batch that no repetend of these sizes within the limits beats.
        reasons: Why; what they prove together, see `min_period`.
        limits: What is demanded of the repetends.
    """

    placement: Placement
    sizes: tuple[int, ...]
    repetend: Repetend
    period_bound: Fraction
    reasons: tuple[Reason, ...]
    limits: RepetendLimits = RepetendLimits()

    @property
    def period(self) -> Fraction:
        """Ticks per micro-batch of the repetend."""
        return Fraction(self.repetend.period, self.repetend.micro_batches)

    def in_ms(self, ticks: int | Fraction) -> str:
        """Return ticks, in which it counts, as people read them."""
        return f"{self.placement.ms(ticks):.10g} ms"

    @property
    def universal_bound(self) -> Fraction:
        """The ticks per micro-batch that the reasons prove for any number of micro-batches per repetend.

        Raises:
            CertificateError: A `MemoryOccupancy` proves nothing; see `MemoryOccupancy.bound`.
        """
        return max((b for _, b in self.universal_bounds()), default=Fraction(0))

    def universal_bounds(self) -> Iterator[tuple[Universal, Fraction]]:
        """Yield each reason for any number of micro-batches per repetend, with what it proves.

        Of a minimum cycle ratio, it is what that is said to be.

        Raises:
            CertificateError: One of them is not about this placement, or proves nothing.
        """
        for reason in self.reasons:
            if isinstance(reason, Load):
                if (reason.device, reason.stream) not in self.placement.lanes:
                    raise CertificateError(
                        f"load: there is no device {reason}".replace("load of device ", "")
                    )
                yield reason, reason.bound(self.placement)
            elif isinstance(reason, Conflicts):
                yield reason, _conflicts_bound(reason, self.placement)
            elif isinstance(reason, MemoryOccupancy):
                yield reason, _memory_occupancy_bound(reason, self.placement.per_micro_batch)
            elif isinstance(reason, MinCycleRatio):
                yield reason, reason.period
            elif isinstance(reason, ModeChoice):
                yield reason, _mode_choice_bound(reason, self.placement.per_micro_batch)

    def min_period(self, micro_batches: int) -> int:
        """Return the least whole period that the reasons leave open for a number of micro-batches."""
        period = max(1, math.ceil(self.universal_bound * micro_batches))
        refuted = {
            reason.period
            for reason in self.reasons
            if isinstance(reason, Refutation) and reason.micro_batches == micro_batches
        }
        if self.limits.keep_monotone:
            return max([period, *(each + 1 for each in refuted)])
        while period in refuted:
            period += 1
        return period


def _conflicts_bound(reason: Conflicts, placement: Placement) -> Fraction:
    if reason.at_once < 1 or min(reason.weight.values(), default=0) < 0:
        raise CertificateError(
            "conflicts: weights are not all 0 or more, or what fits at once is not 1 or more"
        )
    return reason.bound(placement)


def _mode_choice_bound(reason: ModeChoice, placement: Placement) -> Fraction:
    if not 0 <= reason.device < placement.num_devices:
        raise CertificateError(f"modes: there is no device {reason.device}")
    lanes = {number for number, (device, _) in enumerate(placement.lanes) if device == reason.device}
    if not set(reason.lanes) <= lanes:
        raise CertificateError(f"modes: a price is of no stream of device {reason.device}")
    if min([*reason.lanes.values(), reason.memory]) < 0:
        raise CertificateError("modes: a price is below 0")
    if reason.memory and not (placement.free_memory and placement.free_memory[reason.device]):
        raise CertificateError(f"modes: the memory of device {reason.device} has a price, but no limit")
    return reason.bound(placement)


def _memory_occupancy_bound(reason: MemoryOccupancy, placement: Placement) -> Fraction:
    if placement.free_memory is None:
        raise CertificateError("residence: the placement has no memory capacities, so it bounds nothing")
    if len(reason.device_weight) != placement.num_devices:
        raise CertificateError(
            f"residence: weighs {len(reason.device_weight)} devices of {placement.num_devices}"
        )
    named = {name for pair in reason.flow for name in pair}
    unknown = named.union(*({*each.weight, *each.spare} for each in reason.held)) - set(placement.by_name)
    if unknown:
        raise CertificateError(f"residence: there is no block {min(unknown)!r}")
    try:
        return reason.bound(placement)
    except ValueError as error:
        raise CertificateError(str(error)) from None


def certificate_of(placement: Placement, result: SearchResult) -> Certificate:
    """Return the certificate of what a search found and proved.

    It claims the best of what the search proved for all sizes that were asked for, and of the periods that
    were refuted it names only those that matter.

    Args:
        placement: Placement that was searched.
        result: Result with a repetend.
    """
    assert result.repetend is not None, "there is nothing to certify"
    repetend = replace(result.repetend, placement=placement.per_micro_batch)  # it may know of less memory
    limits = RepetendLimits(**{objective.value: limit for objective, limit in result.limits.items()})
    reasons = tuple(_universal_reasons(placement, result))
    bare = Certificate(placement, result.sizes, repetend, Fraction(0), reasons, limits)
    proved = [Fraction(each.bound, each.micro_batches) for each in result.tried]
    all_tried = tuple(each.micro_batches for each in result.tried) == result.sizes
    bound = max([bare.universal_bound, *([min(proved)] if all_tried else [])])
    refutations = (
        Refutation(size, period, result.solver)
        for size in result.sizes
        for period in _needed(bare.min_period(size), math.ceil(bound * size), limits)
    )
    return Certificate(placement, result.sizes, repetend, bound, (*reasons, *refutations), limits)


def _universal_reasons(placement: Placement, result: SearchResult) -> Iterator[Universal]:
    """Yield the busiest stream, and what proves more: of modes, or conflicts, memory occupancy and cycles."""
    load = max((Load(*lane) for lane in placement.lanes), key=lambda x: x.bound(placement))
    yield load
    if not placement.is_plain:
        mixed = mode_choice(placement.per_micro_batch)
        if mixed is not None and mixed.bound(placement.per_micro_batch) > load.bound(placement):
            yield mixed
        return
    bound, shared, proof = load.bound(placement), conflicts(placement), memory_occupancy(placement)
    if shared is not None:
        bound = shared.bound(placement)
        yield shared
    if proof is not None and proof.bound(placement.per_micro_batch) > bound:
        bound = proof.bound(placement.per_micro_batch)
        yield proof
    if result.min_period is not None and result.min_period.ticks > bound:
        found = result.min_period
        yield MinCycleRatio(found.ticks, found.devices, found.cut_out)


def _needed(open_from: int, closed_to: int, limits: RepetendLimits) -> range:
    """Return the periods to refute so that all from the first to just before the second are."""
    return range(max(open_from, closed_to - 1) if limits.keep_monotone else open_from, closed_to)
