"""Checks a certificate claim by claim: the repetend by the rules, bounds by adding up, refutations by Z3.

Minimum cycle ratios, what devices hold and what runs at once are shown state by state. Shares with the search
only the words in which a question is put (`Query`) and the proofs of `MemoryOccupancy` and `Conflicts`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from placements import Placement
from placements.modes import Chosen
from schedsearch.certificate.certificate import Certificate, CertificateError, MinCycleRatio, Refutation
from schedsearch.certificate.recheck_conflicts import weighs_at_most
from schedsearch.certificate.recheck_states import no_shorter_period
from schedsearch.proof.conflicts import Conflicts
from schedsearch.proof.memory_need import CapacityError, require_capacity
from schedsearch.proof.memory_occupancy import MemoryOccupancy
from schedsearch.proof.mode_choice import ModeChoice
from schedsearch.schedule import Instance, Schedule, ScheduledBlock
from schedsearch.solver.query import Answer, Query
from schedsearch.validate import InvalidScheduleError, validate

_MAX_BLOCKS = 200_000
"""Blocks of the longest schedule that is unrolled to check a repetend."""

_MAX_INSTANCES = 1_000
"""Instances of the largest question that is put to Z3: it has a rule for each pair."""


@dataclass(frozen=True)
class CheckedClaim:
    """One thing that is claimed, and whether it was shown again.

    Attributes:
        text: What, in one line.
        holds: Whether it was shown; otherwise there was no time or means to, and it may be true or not.
    """

    text: str
    holds: bool = True

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'not rechecked'}: {self.text}"


@dataclass(frozen=True)
class CheckReport:
    """The result of checking a certificate in which nothing is false.

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
        """Whether it was shown that no repetend of the sizes has a lesser period per micro-batch."""
        return self.holds and self.meets_bound


def check(certificate: Certificate, *, time_limit_s: float = 60.0) -> CheckReport:
    """Check every claim of a certificate.

    Args:
        certificate: From any source.
        time_limit_s: Seconds for all refutations; those with no answer by then are not rechecked.

    Raises:
        CertificateError: A claim is false, or the bound does not follow from the reasons.
    """
    deadline = time.monotonic() + time_limit_s
    _check_form(certificate)
    claims = [_check_repetend(certificate)]
    for universal, bound in certificate.universal_bounds():
        left_s = (deadline - time.monotonic()) / 2
        least = f"no period is below {certificate.in_ms(bound)} per micro-batch"
        if isinstance(universal, MinCycleRatio):
            claims.append(_check_cycles(certificate, universal, f"cycles of states: {least}", left_s))
        elif isinstance(universal, Conflicts):
            claims.append(_check_conflicts(universal, f"conflicts: {least}", left_s))
        elif isinstance(universal, MemoryOccupancy):
            holds = _check_held(certificate, universal, left_s)
            claims.append(CheckedClaim(f"memory occupancy: {least}", holds))
        elif isinstance(universal, ModeChoice):
            claims.append(CheckedClaim(f"modes of device {universal.device}, whatever their mix: {least}"))
        else:
            claims.append(CheckedClaim(f"{universal}: {least}"))
    _check_that_bound_follows(certificate)
    refutations = [reason for reason in certificate.reasons if isinstance(reason, Refutation)]
    for i, refutation in enumerate(refutations):
        share_s = (deadline - time.monotonic()) / (len(refutations) - i)
        claims.append(_check_refutation(certificate, refutation, share_s))
    claims.append(_bound_claim(certificate, all(claim.holds for claim in claims[1:])))
    return CheckReport(tuple(claims), _meets_bound(certificate))


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
    choices = [len(decision.choices) for decision in repetend.placement.decisions]
    if len(repetend.chosen) != (repetend.micro_batches if choices else 0):
        raise CertificateError("repetend: has no choice of modes for just each of its micro-batches")
    for modes in repetend.chosen:
        in_range = (0 <= k < count for k, count in zip(modes, choices, strict=False))
        if len(modes) != len(choices) or not all(in_range):
            raise CertificateError(f"repetend: the modes {list(modes)} are not of the placement")
    for what, numbers in (("start", repetend.start), ("ahead", repetend.modulo_stage)):
        if set(numbers) != set(repetend.placement.by_name):
            raise CertificateError(f"repetend: '{what}' is not for just the blocks of the placement")
        for name, each in numbers.items():
            if len(each) != repetend.micro_batches:
                raise CertificateError(f"repetend: '{what}' of {name} is not one for each micro-batch")
            if min(each) < 0 or (what == "start" and max(each) >= repetend.period):
                raise CertificateError(f"repetend: '{what}' of {name} is out of its range: {list(each)}")


def _check_repetend(certificate: Certificate) -> CheckedClaim:
    """Check by the rules of a schedule that enough rounds of the repetend keep them, and so all do.

    Proof. Let F be the rounds in flight; 3 * F are looked at. Starts of one round lie within F periods, and
    no block is longer than a period, or it would run into itself in the next round. So two instances that
    ever meet do so when one is at most F rounds after the other, and such a pair is among the 3 * F rounds.
    In rounds F - 1 to 2 * F a device holds what it does in the steady state: when b starts in round N
    there, every other block has run in N + 1 rounds or up to F fewer or more, which is from 0 to all of
    them.
    """
    repetend = certificate.repetend
    rounds = 3 * (1 + max(max(modulo_stage) for modulo_stage in repetend.modulo_stage.values()))
    facts = f"{_counted(repetend.micro_batches)} in {certificate.in_ms(repetend.period)}"
    if rounds * repetend.micro_batches * len(repetend.start) > _MAX_BLOCKS:
        return CheckedClaim(f"repetend: {facts}; it spans too many rounds to unroll", holds=False)
    first = {
        (name, micro_batch): repetend.start[name][micro_batch]
        - repetend.modulo_stage[name][micro_batch] * repetend.period
        for name, micro_batch in repetend.blocks
    }
    placement = certificate.limits.on(certificate.placement)
    try:
        validate(
            _unrolled(placement, repetend.micro_batches, repetend.period, first, rounds, repetend.chosen)
        )
    except InvalidScheduleError as error:
        raise CertificateError(f"repetend: is not valid; {error.reason}") from None
    return CheckedClaim(
        f"repetend: {facts}, {certificate.in_ms(certificate.period)} each; every round is valid"
    )


def _unrolled(
    placement: Placement,
    micro_batches: int,
    period: int,
    first: dict[Instance, int],
    rounds: int,
    chosen: tuple[Chosen, ...],
) -> Schedule:
    """Return so many rounds in which each instance of round 0 comes again every period."""
    origin = min(first.values())
    blocks = (
        ScheduledBlock(ticks - origin + n * period, n * micro_batches + micro_batch, name)
        for (name, micro_batch), ticks in first.items()
        for n in range(rounds)
    )
    return Schedule(placement, rounds * micro_batches, tuple(blocks), chosen * rounds)


def _check_that_bound_follows(certificate: Certificate) -> None:
    for size in certificate.sizes:
        period = certificate.min_period(size)
        if period < certificate.period_bound * size:
            bound, left = certificate.in_ms(certificate.period_bound), certificate.in_ms(period)
            raise CertificateError(
                f"bound: {bound} per micro-batch does not follow for {size} micro-batches per repetend, "
                f"where the reasons leave a period of {left} open"
            )


def _check_held(certificate: Certificate, occupancy: MemoryOccupancy, time_limit_s: float) -> bool:
    """Return whether there was time to see that devices hold no more than is claimed."""
    from schedsearch.certificate.recheck_held import held_within_limit  # loads Z3

    shown: list[bool | None] = []
    for claim in occupancy.held:
        share_s = time_limit_s / len(occupancy.held)
        try:
            shown.append(held_within_limit(certificate.placement.per_micro_batch, claim, share_s))
        except ValueError as error:
            raise CertificateError(f"residence: {error}") from None
        if shown[-1] is False:
            raise CertificateError(f"residence: device {claim.device} can hold more than is claimed")
    return all(shown)


def _check_conflicts(conflicts: Conflicts, text: str, time_limit_s: float) -> CheckedClaim:
    shown = weighs_at_most(conflicts.weight, conflicts.at_once, time_limit_s)
    if shown is False:
        raise CertificateError("conflicts: more can run at once than is claimed")
    return CheckedClaim(text, holds=shown is True)


def _check_cycles(
    certificate: Certificate, cycles: MinCycleRatio, text: str, time_limit_s: float
) -> CheckedClaim:
    try:
        shown = no_shorter_period(
            certificate.placement, cycles.devices, cycles.cut_out, cycles.period, time_limit_s
        )
    except ValueError as error:
        raise CertificateError(f"cycles: {error}") from None
    if shown is False:
        raise CertificateError(f"{text}, but there is one")
    return CheckedClaim(text, holds=shown is True)


def _check_refutation(certificate: Certificate, refutation: Refutation, time_limit_s: float) -> CheckedClaim:
    """Ask once more whether there is none."""
    limits, placement = certificate.limits, certificate.limits.on(certificate.placement)
    which = f"{_counted(refutation.micro_batches)}{limits.in_words(placement)}"
    text = (
        f"refutation by {refutation.solver or 'a solver'}: no repetend of {which} has a period of "
        f"{certificate.in_ms(refutation.period)}{' or less' if limits.keep_monotone else ''}"
    )
    if refutation.micro_batches < 1:
        raise CertificateError(f"refutation: {_counted(refutation.micro_batches)} is not at least 1")
    query = Query(placement, refutation.micro_batches, refutation.period, limits.span, limits.latency)
    answer = ask_again(query, time_limit_s)
    if answer is Answer.YES:
        raise CertificateError(f"{text}, but there is one")
    return CheckedClaim(text, holds=answer is Answer.NO)


def ask_again(query: Query, time_limit_s: float) -> Answer:
    """Return Z3's answer, UNKNOWN where a question is too large; a repetend found is shown to be one."""
    if time_limit_s <= 0 or query.micro_batches * len(query.placement.blocks) > _MAX_INSTANCES:
        return Answer.UNKNOWN
    from schedsearch.certificate.recheck_z3 import find_starts  # likewise

    answer, first, chosen = find_starts(query, time_limit_s)
    if first is not None:
        rounds = 3 * ((max(first.values()) - min(first.values())) // query.period + 2)
        validate(_unrolled(query.placement, query.micro_batches, query.period, first, rounds, chosen))
    return answer


def _bound_claim(certificate: Certificate, holds: bool) -> CheckedClaim:
    bound, limits = certificate.period_bound, certificate.limits.in_words(certificate.placement)
    if certificate.universal_bound >= bound:
        which = "any number of micro-batches"
    else:
        which = " or ".join([*map(str, certificate.sizes[:-1]), f"{_counted(certificate.sizes[-1])}{limits}"])
    least = certificate.in_ms(bound)
    return CheckedClaim(f"bound: no repetend of {which} has a period below {least} per micro-batch", holds)


def _meets_bound(certificate: Certificate) -> bool:
    """Whether the repetend, or the same one written more than once, is of the sizes and keeps the limits."""
    of_these = any(size % certificate.repetend.micro_batches == 0 for size in certificate.sizes)
    return of_these and _keeps_limits(certificate) and certificate.period <= certificate.period_bound


def _keeps_limits(certificate: Certificate) -> bool:
    """Return whether the repetend keeps the limits on span and latency; that on memory it is held to."""
    repetend, limits = certificate.repetend, certificate.limits
    spans = []
    for micro_batch in range(repetend.micro_batches):
        start = {
            name: repetend.start[name][micro_batch]
            - repetend.modulo_stage[name][micro_batch] * repetend.period
            for name in repetend.as_run(micro_batch).by_name
        }
        end = max(ticks + repetend.blocks[name, micro_batch].time for name, ticks in start.items())
        spans.append((min(start.values()), end))
    span = max(end for _, end in spans) - min(begin for begin, _ in spans)
    latency = max(end - begin for begin, end in spans)
    return (limits.span is None or span <= limits.span) and (
        limits.latency is None or latency <= limits.latency
    )


def _counted(micro_batches: int) -> str:
    return f"{micro_batches} micro-batch{'es' * (micro_batches != 1)}"
