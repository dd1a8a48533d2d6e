"""Checks the bounds of a file for which its certificate gives no reason: on makespan, device span and span.

Where adding up does not show one, it is shown once more without the search, or said not to be rechecked.
"""

from __future__ import annotations

from schedsearch.certificate.certificate import Certificate, CertificateError, RepetendLimits
from schedsearch.certificate.check import CheckedClaim, ask_again
from schedsearch.certificate.recheck_conflicts import weighs_at_most
from schedsearch.certificate.recheck_makespan import no_shorter_schedule
from schedsearch.device_span import device_spans
from schedsearch.proof.conflicts import conflicts
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule
from schedsearch.solver.query import Answer, Query


def check_makespan_bound(schedule: Schedule, bound: int, time_limit_s: float) -> CheckedClaim:
    """Check that no schedule of as many micro-batches, periodic or not, has a lesser makespan than a bound.

    Args:
        schedule: Valid.
        bound: Ticks.
        time_limit_s: Seconds, where adding up is not enough.

    Raises:
        CertificateError: The schedule, or another, takes less.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    if bound > schedule.makespan:
        raise CertificateError(
            f"makespan_bound: {bound} is above the makespan {schedule.makespan} of the schedule itself"
        )
    text = (
        f"makespan_bound: no schedule of as many micro-batches takes less than {placement.ms(bound):.10g} ms"
    )
    added_up = makespan_bound(placement, number)
    shared = conflicts(placement.relaxed)
    if shared is not None and not weighs_at_most(shared.weight, shared.at_once, time_limit_s):
        return CheckedClaim(text, holds=False)
    if bound <= added_up:
        return CheckedClaim(f"{text}; by adding up")
    has_time = placement.is_plain and time_limit_s > 0
    shown = no_shorter_schedule(placement, number, bound, time_limit_s) if has_time else None
    if shown is False:
        raise CertificateError(f"{text}, but there is one that does")
    if shown is None:
        return CheckedClaim(f"{text}; {placement.ms(added_up):.10g} ms follow by adding up", holds=False)
    return CheckedClaim(f"{text}; by all orders of their starts")


def check_device_span_bound(schedule: Schedule, bound: int) -> CheckedClaim:
    """Check that no schedule of as many micro-batches has a lesser device span than a bound, by adding up.

    Args:
        schedule: Valid.
        bound: Ticks.

    Raises:
        CertificateError: The schedule has a lesser one.
    """
    placement, longest = schedule.placement, int(device_spans(schedule).max())
    if bound > longest:
        raise CertificateError(
            f"device_span_bound: {bound} is above the device span {longest} of the schedule itself"
        )
    least = f"{placement.ms(bound):.10g} ms"
    text = f"device_span_bound: in no schedule does each device take less than {least} by its own clock"
    added_up = device_span_bound(placement, schedule.num_micro_batches)
    return CheckedClaim(f"{text}; by adding up") if bound <= added_up else CheckedClaim(text, holds=False)


def check_span_bound(certificate: Certificate, bound: int, time_limit_s: float) -> CheckedClaim:
    """Check that no repetend of the same micro-batches and period has a lesser span than a bound.

    Objectives before the span may have limited memory and latency to this repetend's; the file does not say
    whether. So if there is one without these limits, it is asked for one with them.

    Args:
        certificate: Checked.
        bound: Ticks.
        time_limit_s: Seconds, where adding up is not enough.

    Raises:
        CertificateError: There is one.
    """
    repetend = certificate.repetend
    text = f"span_bound: no repetend of this period has a span below {certificate.in_ms(bound)}"
    if bound <= critical_path(certificate.placement):
        return CheckedClaim(f"{text}; by adding up")
    own = RepetendLimits(latency=repetend.latency, memory=max(repetend.peak_memory))
    for limits, condition in ((certificate.limits, ""), (own, ", with as little memory and latency")):
        placement = limits.on(certificate.placement)
        query = Query(placement, repetend.micro_batches, repetend.period, bound - 1, limits.latency)
        answer = ask_again(query, time_limit_s / 2)
        if answer is not Answer.YES:
            return CheckedClaim(f"{text}{condition}", holds=answer is Answer.NO)
    raise CertificateError(f"{text}, but there is one")
