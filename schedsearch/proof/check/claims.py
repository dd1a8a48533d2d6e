"""Checks of a file's claims, one by one: the repetend by the rules, bounds by adding up.

The assumptions of bounds, and refutations, are checked by programs of this room. If these have no time, a
claim is reported as not rechecked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from placements import Placement
from schedsearch.device_span import device_spans
from schedsearch.proof.check.certificate import Certificate, CertificateError, Refutation, RepetendLimits
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import CapacityError, require_capacity
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.validate import InvalidScheduleError, validate

_MAX_BLOCKS = 200_000
"""Most blocks of a schedule unrolled to check a repetend."""

_MAX_INSTANCES = 1_000
"""Most instances in a query to Z3: the query has a rule for each pair of them."""


@dataclass(frozen=True)
class CheckedClaim:
    """One claim of a certificate, and whether it was shown again.

    Attributes:
        text: The claim in one line.
        holds: Whether it was shown; otherwise there was no time or means to, and it may be true or not.
    """

    text: str
    holds: bool = True

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'not rechecked'}: {self.text}"


@dataclass(frozen=True)
class CheckReport:
    """The result of checking a certificate without a false claim.

    Attributes:
        claims: The repetend's, one for each reason, then the bound.
        meets_bound: Whether the repetend is of the sizes and limits that the bound is for, and meets it.
    """

    claims: tuple[CheckedClaim, ...]
    meets_bound: bool

    @property
    def holds(self) -> bool:
        """Whether every claim was shown."""
        return all(claim.holds for claim in self.claims)

    @property
    def optimal(self) -> bool:
        """Whether the period is shown to be the least for the sizes: all claims hold and the bound is met."""
        return self.holds and self.meets_bound


def check(certificate: Certificate, *, time_limit_s: float = 60.0) -> CheckReport:
    """Check every claim of a certificate from any source; claims without an answer in time do not fail.

    Raises:
        CertificateError: A claim is false, or the bound does not follow from the reasons.
    """
    deadline = time.monotonic() + time_limit_s
    _check_form(certificate)
    claims = [_check_repetend(certificate)]
    for bound, value in certificate.bounds():
        text = f"{bound}: no period is below {certificate.in_ms(value)} per micro-batch"
        try:
            shown = bound.is_shown(certificate.placement, (deadline - time.monotonic()) / 2)
        except ValueError as error:
            raise CertificateError(f"{bound.name}: {error}") from None
        claims.append(_claim(text, shown))
    least, sizes = certificate.period_bound, certificate.sizes
    for size in sizes:
        if (period := certificate.min_period(size)) < least * size:
            raise CertificateError(
                f"bound: {certificate.in_ms(least)} per micro-batch does not follow for {size} micro-batches "
                f"per repetend, where the reasons leave a period of {certificate.in_ms(period)} open"
            )
    for i, refutation in enumerate(certificate.refutations):
        share_s = (deadline - time.monotonic()) / (len(certificate.refutations) - i)
        claims.append(_check_refutation(certificate, refutation, share_s))
    which = "any number of micro-batches"
    if certificate.universal_bound < least:
        limits = certificate.limits.in_words(certificate.placement)
        which = " or ".join([*map(str, sizes[:-1]), f"{_counted(sizes[-1])}{limits}"])
    text = f"bound: no repetend of {which} has a period below {certificate.in_ms(least)} per micro-batch"
    claims.append(CheckedClaim(text, all(claim.holds for claim in claims[1:])))
    return CheckReport(tuple(claims), _meets_bound(certificate))


def _claim(text: str, shown: bool | None) -> CheckedClaim:
    if shown is False:
        raise CertificateError(f"{text}, but there is one")
    return CheckedClaim(text, holds=shown is True)


def _check_form(certificate: Certificate) -> None:
    """Check that numbers are in their range and that the repetend has each block's starts.

    One micro-batch must fit too and never hold less than nothing, so that warmup holds no more than the
    steady state does.
    """
    repetend, sizes = certificate.repetend, certificate.sizes
    try:
        require_capacity(certificate.placement)
    except CapacityError as error:
        raise CertificateError(f"placement: {error}") from None
    if not sizes or list(sizes) != sorted(set(sizes)) or min(sizes) < 1:
        raise CertificateError(f"sizes: {list(sizes)} are not numbers from 1 on in ascending order")
    if repetend.placement != certificate.placement.per_micro_batch:
        raise CertificateError("repetend: is of another placement than the certificate")
    if repetend.period < 1 or repetend.micro_batches < 1:
        raise CertificateError("repetend: its period and its micro-batches are not both at least 1")
    choices = [range(len(decision.choices)) for decision in repetend.placement.decisions]
    if len(repetend.chosen) != (repetend.micro_batches if choices else 0):
        raise CertificateError("repetend: does not have one choice of modes for each of its micro-batches")
    for modes in repetend.chosen:
        if len(modes) != len(choices) or not all(map(range.__contains__, choices, modes)):
            raise CertificateError(f"repetend: the modes {list(modes)} are not of the placement")
    for what, numbers in (("start", repetend.start), ("ahead", repetend.modulo_stage)):
        if set(numbers) != set(repetend.placement.by_name):
            raise CertificateError(f"repetend: '{what}' is not for just the blocks of the placement")
        for name, row in numbers.items():
            if len(row) != repetend.micro_batches:
                raise CertificateError(f"repetend: '{what}' of {name} is not one for each micro-batch")
            if min(row) < 0 or (what == "start" and max(row) >= repetend.period):
                raise CertificateError(f"repetend: '{what}' of {name} is out of its range: {list(row)}")


def _check_repetend(certificate: Certificate) -> CheckedClaim:
    """Check that enough rounds of a repetend keep the rules of a schedule, so that all rounds do.

    Proof. Let F be the rounds in flight; 3 * F are looked at. Starts of one round lie within F periods, and
    no block is longer than a period, or it would run into itself in the next round. So two instances that
    ever meet do so when one is at most F rounds after the other, and such a pair is among the 3 * F rounds.
    In rounds F - 1 to 2 * F a device holds what it does in the steady state: when b starts in round N
    there, every other block has run in N + 1 rounds or up to F fewer or more, which is from 0 to all of
    them.
    """
    repetend = certificate.repetend
    facts = f"{_counted(repetend.micro_batches)} in {certificate.in_ms(repetend.period)}"
    if 3 * repetend.in_flight * repetend.micro_batches * len(repetend.start) > _MAX_BLOCKS:
        return CheckedClaim(f"repetend: {facts}; it spans too many rounds to unroll", holds=False)
    try:
        _validate_rounds(replace(repetend, placement=certificate.limits.on(certificate.placement)))
    except InvalidScheduleError as error:
        raise CertificateError(f"repetend: is not valid; {error.reason}") from None
    period = certificate.in_ms(certificate.period)
    return CheckedClaim(f"repetend: {facts}, {period} each; every round is valid")


def _validate_rounds(repetend: Repetend) -> None:
    """Check three times as many rounds as are in flight, in which each instance comes again every period."""
    first, rounds, number = repetend.first_starts, 3 * repetend.in_flight, repetend.micro_batches
    origin = min(first.values())
    blocks = (
        ScheduledBlock(ticks - origin + n * repetend.period, n * number + micro_batch, name)
        for (name, micro_batch), ticks in first.items()
        for n in range(rounds)
    )
    validate(Schedule(repetend.placement, rounds * number, tuple(blocks), repetend.chosen * rounds))


def _check_refutation(certificate: Certificate, refutation: Refutation, time_limit_s: float) -> CheckedClaim:
    """Check a refutation: ask Z3 again whether a repetend of its period exists."""
    limits, size, period = certificate.limits, refutation.micro_batches, refutation.period
    if size < 1:
        raise CertificateError(f"refutation: {_counted(size)} is not at least 1")
    text = (
        f"refutation by {refutation.solver or 'a solver'}: no repetend of "
        f"{_counted(size)}{limits.in_words(certificate.placement)} has a period of "
        f"{certificate.in_ms(period)}{' or less' if limits.keep_monotone else ''}"
    )
    return _claim(text, _is_refuted(certificate.placement, size, period, limits, time_limit_s))


def _is_refuted(
    placement: Placement, size: int, period: int, limits: RepetendLimits, time_limit_s: float
) -> bool | None:
    """Return Z3's answer, None where a question is too large; a repetend found is shown to be one."""
    placement = limits.on(placement)
    if time_limit_s <= 0 or size * len(placement.blocks) > _MAX_INSTANCES:
        return None
    from schedsearch.proof.check.refutation import find_starts  # loads Z3

    exists, first, chosen = find_starts(placement, size, period, time_limit_s, limits.span, limits.latency)
    if exists:
        _validate_rounds(Repetend.from_first_starts(placement, size, period, first, chosen))
    return None if exists is None else not exists


def _meets_bound(certificate: Certificate) -> bool:
    """Whether the repetend, or the same one written more than once, is of the sizes and keeps the limits.

    That on memory it is held to.
    """
    repetend, limits = certificate.repetend, certificate.limits
    of_these = any(size % repetend.micro_batches == 0 for size in certificate.sizes)
    within = (limits.span is None or repetend.span <= limits.span) and (
        limits.latency is None or repetend.latency <= limits.latency
    )
    return of_these and within and certificate.period <= certificate.period_bound


def _counted(micro_batches: int) -> str:
    return f"{micro_batches} micro-batch{'es' * (micro_batches != 1)}"


def check_makespan_bound(schedule: Schedule, bound: int, time_limit_s: float) -> CheckedClaim:
    """Check that no schedule of as many micro-batches, periodic or not, has a lesser makespan than a bound.

    The time is for where adding up is not enough.

    Raises:
        CertificateError: The valid schedule, or another, takes less.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    if bound > schedule.makespan:
        raise CertificateError(
            f"makespan_bound: {bound} is above the makespan {schedule.makespan} of the schedule itself"
        )
    min_ms = f"{placement.ms(bound):.10g} ms"
    text = f"makespan_bound: no schedule of as many micro-batches takes less than {min_ms}"
    added_up = makespan_bound(placement, number)
    if bound <= added_up:
        return CheckedClaim(f"{text}; by adding up")
    from schedsearch.proof.check.orders import no_shorter_schedule

    has_time = placement.is_plain and time_limit_s > 0
    shown = no_shorter_schedule(placement, number, bound, time_limit_s) if has_time else None
    if shown is False:
        raise CertificateError(f"{text}, but there is one that does")
    if shown is None:
        return CheckedClaim(f"{text}; {placement.ms(added_up):.10g} ms follow by adding up", holds=False)
    return CheckedClaim(f"{text}; by all orders of their starts")


def check_device_span_bound(schedule: Schedule, bound: int) -> CheckedClaim:
    """Check by summation that no schedule of as many micro-batches has a device span below a bound.

    Raises:
        CertificateError: The valid schedule has a lesser one.
    """
    placement, longest = schedule.placement, int(device_spans(schedule).max())
    if bound > longest:
        raise CertificateError(
            f"device_span_bound: {bound} is above the device span {longest} of the schedule itself"
        )
    min_ms = f"{placement.ms(bound):.10g} ms"
    text = f"device_span_bound: in no schedule does each device take less than {min_ms} by its own clock"
    added_up = device_span_bound(placement, schedule.num_micro_batches)
    return CheckedClaim(f"{text}; by adding up") if bound <= added_up else CheckedClaim(text, holds=False)


def check_span_bound(certificate: Certificate, bound: int, time_limit_s: float) -> CheckedClaim:
    """Check that no repetend of the same micro-batches and period has a lesser span than a bound.

    Objectives before the span may have limited memory and latency to this repetend's; the file does not say
    whether. So if there is one without these limits, it is asked for one with them. The time is for where
    adding up is not enough.

    Raises:
        CertificateError: There is one.
    """
    repetend = certificate.repetend
    text = f"span_bound: no repetend of this period has a span below {certificate.in_ms(bound)}"
    if bound <= critical_path(certificate.placement):
        return CheckedClaim(f"{text}; by adding up")
    reached = RepetendLimits(latency=repetend.latency, memory=max(repetend.peak_memory))
    for limits, condition in ((certificate.limits, ""), (reached, ", with as little memory and latency")):
        shorter, size = replace(limits, span=bound - 1), repetend.micro_batches
        shown = _is_refuted(certificate.placement, size, repetend.period, shorter, time_limit_s / 2)
        if shown is not False:
            return CheckedClaim(f"{text}{condition}", holds=shown is True)
    raise CertificateError(f"{text}, but there is one")
