"""A certificate: a repetend, the bound on the period that it is held against, and the reasons for the bound.

It is plain data, the field ``certificate`` of a ``schedule.json``; the placement and the repetend are
elsewhere in that file. All numbers are whole; a fraction is a pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from placements import Placement
from placements.forms.reading import Field, plain
from schedsearch.proof.bound import Bound
from schedsearch.proof.check.states import MinCycleRatio
from schedsearch.proof.load_and_path import BOUNDS
from schedsearch.repetend import Repetend


@dataclass(frozen=True)
class Refutation:
    """The claim that no repetend has a period, nor a shorter one if `RepetendLimits.keep_monotone`.

    Attributes:
        name: Name of its kind in files.
        micro_batches: Per repetend.
        period: Ticks.
        solver: Solver that refuted the period.
    """

    name: ClassVar[str] = "refutation"
    micro_batches: int
    period: int
    solver: str


class CertificateError(ValueError):
    """A certificate is wrong; the message names the false claim in one line."""


@dataclass(frozen=True)
class RepetendLimits:
    """Demands on every repetend besides its placement's capacities; None for none.

    Attributes:
        span: Longest time from first start to last end of one round's micro-batches, in ticks.
        latency: Longest time from first start to last end of each single micro-batch, in ticks.
        memory: Most memory of any device, static memory included.
    """

    span: int | None = None
    latency: int | None = None
    memory: int | None = None

    @property
    def keep_monotone(self) -> bool:
        """Whether an infeasible period proves all shorter periods infeasible.

        Proof. Let an idle tick be added at the end of each round of a repetend: a block that starts
        ``start`` ticks into round q starts at ``q * (T + 1) + start`` instead of ``q * T + start``. Starts
        that were in order stay so and none come closer, since later ones have an equal or greater q, and
        the first start after a period, with q + 1, is put off a tick more. So it is a repetend of one tick
        more, with every device's order, and so its memory, unchanged. But span and latency may grow, so
        this holds only without limits on them.
        """
        return self.span is None and self.latency is None

    def on(self, placement: Placement) -> Placement:
        """Return the repeating part of a placement, with no more memory than the limit."""
        plain = placement.per_micro_batch
        if self.memory is None:
            return plain
        most = self.memory
        return plain.with_memory(min(most, c) for c in plain.memory or (most,) * plain.num_devices)

    def in_words(self, placement: Placement) -> str:
        """Return the limits in words, with times in ms; empty without limits."""
        times = (("span", self.span), ("latency", self.latency))
        kept = [f"{name} at most {placement.ms(value):.10g} ms" for name, value in times if value is not None]
        kept += [] if self.memory is None else [f"memory at most {self.memory}"]
        return f" with {' and '.join(kept)}" if kept else ""


@dataclass(frozen=True)
class Certificate:
    """The claim that a repetend is valid, and that no repetend of the sizes asked for beats a bound.

    Attributes:
        placement: What runs where.
        sizes: The numbers of micro-batches per repetend that the bound is for, ascending.
        repetend: Repetend of the placement without its optimizer blocks.
        period_bound: Ticks per micro-batch that no repetend of these sizes within the limits beats.
        reasons: The proof of the bound; `min_period` combines them.
        limits: Limits that the repetends keep.
    """

    placement: Placement
    sizes: tuple[int, ...]
    repetend: Repetend
    period_bound: Fraction
    reasons: tuple[Bound | Refutation, ...]
    limits: RepetendLimits = RepetendLimits()

    @property
    def period(self) -> Fraction:
        """Ticks per micro-batch of the repetend."""
        return Fraction(self.repetend.period, self.repetend.micro_batches)

    def in_ms(self, ticks: int | Fraction) -> str:
        """Return ticks as text in ms."""
        return f"{self.placement.ms(ticks):.10g} ms"

    @property
    def refutations(self) -> list[Refutation]:
        """The reasons for one number of micro-batches per repetend."""
        return [reason for reason in self.reasons if isinstance(reason, Refutation)]

    def bounds(self) -> Iterator[tuple[Bound, Fraction]]:
        """Yield each bound that holds for any number of micro-batches per repetend, with its value.

        Raises:
            CertificateError: One of them is not about this placement, or proves nothing.
        """
        for reason in self.reasons:
            if isinstance(reason, Bound):
                try:
                    yield reason, reason.value(self.placement)
                except ValueError as error:
                    raise CertificateError(f"{reason.name}: {error}") from None

    @property
    def universal_bound(self) -> Fraction:
        """The ticks per micro-batch that `bounds` prove for any number of micro-batches per repetend."""
        return max((value for _, value in self.bounds()), default=Fraction(0))

    def min_period(self, micro_batches: int) -> int:
        """Return the least whole period that the reasons leave open for a number of micro-batches."""
        period = max(1, math.ceil(self.universal_bound * micro_batches))
        refuted = {reason.period for reason in self.refutations if reason.micro_batches == micro_batches}
        if self.limits.keep_monotone:
            return max([period, *(ticks + 1 for ticks in refuted)])
        while period in refuted:
            period += 1
        return period


def certificate_to_dict(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as plain data, without its placement and repetend."""
    reasons = certificate.reasons
    return {
        "micro_batches_per_repetend": list(certificate.sizes),
        "period_bound": plain(certificate.period_bound),
        "limits": plain(certificate.limits, defaults=False),
        "reasons": [{"reason": reason.name, **plain(reason, defaults=False)} for reason in reasons],
    }


def certificate_from_dict(data: object, placement: Placement, repetend: Repetend) -> Certificate:
    """Build a certificate from its file form; its claims are not checked here.

    Raises:
        CertificateError: A field is missing, unknown or of the wrong type; the message names it.
    """
    known: tuple[type[Bound] | type[Refutation], ...] = (*BOUNDS, MinCycleRatio, Refutation)
    kinds = {kind.name: kind for kind in known}
    names = ("micro_batches_per_repetend", "period_bound", "limits", "reasons")
    top = Field(data, "certificate", CertificateError).only(names)
    reasons = top["reasons"].items()
    return Certificate(
        placement,
        top["micro_batches_per_repetend"].typed(tuple[int, ...]),
        repetend,
        top["period_bound"].typed(Fraction),
        tuple(reason.record(kinds[reason["reason"].choice(tuple(kinds))], ("reason",)) for reason in reasons),
        top["limits"].record(RepetendLimits),
    )
