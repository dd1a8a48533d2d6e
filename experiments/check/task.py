"""The task of `experiments.check`: every claim of a schedule file, shown again without the search."""

from __future__ import annotations

import time
from collections.abc import Iterator

from experiments.check.options import CheckOptions
from experiments.report.result import Result
from schedsearch.core.answer import Status
from schedsearch.device_span import device_spans
from schedsearch.proof.check.certificate import CertificateError
from schedsearch.proof.check.claims import (
    CheckedClaim,
    CheckReport,
    check,
    check_device_span_bound,
    check_makespan_bound,
    check_span_bound,
)
from schedsearch.proof.load_and_path import period_bound
from schedsearch.schedule_file import Claims, read_claims


def task(options: CheckOptions) -> Result:
    """Check a file and say so claim by claim.

    It fails where nothing is shown to be false, but not all of the certificate could be shown to be true. The
    bounds on the makespan and the span are not in it: one that could not be shown is named.
    """
    limit_s = options.time_limit_s
    try:
        claims = read_claims(options.schedule)
        placement, end = claims.schedule.placement, claims.schedule.makespan
        if placement.slowdown:
            raise CertificateError(
                f"the schedule is valid and ends at {placement.ms(end):.10g} ms; bounds where streams slow "
                "each other down cannot be checked; rely on the rules of the schedule alone"
            )
        deadline = time.monotonic() + limit_s
        report = check(claims.certificate, time_limit_s=limit_s) if claims.certificate else None
        shown = [*_schedule_claims(claims, deadline), *(report.claims if report else ())]
        _check_summary(claims, report)
    except CertificateError as error:
        raise CertificateError(f"{options.schedule}: {error}") from None
    missing = sum(not claim.holds for claim in report.claims) if report else 0
    failed = f"{missing} claims of the certificate not rechecked; none was found to be false"
    return Result(sentences=[*map(str, shown), _verdict(claims, report)], failed=failed if missing else "")


def _schedule_claims(claims: Claims, deadline: float) -> Iterator[CheckedClaim]:
    """Yield the claims about the schedule itself, which is valid, beside the certificate.

    Raises:
        CertificateError: A claim is false.
    """
    makespan = claims.schedule.makespan
    if claims.makespan != makespan:
        raise CertificateError(
            f"makespan: {claims.makespan} is not that of the blocks, which end at {makespan}"
        )
    placement = claims.schedule.placement
    facts = f"a makespan of {placement.ms(makespan):.10g} ms; a tick is {placement.tick_ms:g} ms"
    yield CheckedClaim(f"schedule: valid, with {facts}")
    if claims.makespan_bound is not None:
        half_s = (deadline - time.monotonic()) / 2
        yield check_makespan_bound(claims.schedule, claims.makespan_bound, half_s)
    if claims.device_span not in (None, int(device_spans(claims.schedule).max())):
        raise CertificateError(f"device_span: {claims.device_span} is not the span of the blocks")
    if claims.device_span_bound is not None:
        yield check_device_span_bound(claims.schedule, claims.device_span_bound)
    if claims.certificate is not None and claims.span_bound is not None:
        yield check_span_bound(claims.certificate, claims.span_bound, deadline - time.monotonic())


def _check_summary(claims: Claims, report: CheckReport | None) -> None:
    """Check that the file's status and bound are its certificate's.

    Raises:
        CertificateError: They are not.
    """
    optimal = claims.status is Status.OPTIMAL
    certificate = claims.certificate
    if report is None or certificate is None:
        if (claims.period_bound or 0) > period_bound(claims.schedule.placement):
            raise CertificateError(
                "certificate: is missing, but the file claims a bound on the period; search again"
            )
        if optimal and not claims.meets_a_bound:
            raise CertificateError(
                "search_status: OPTIMAL, but neither makespan nor device span meets its bound"
            )
        return
    if claims.period_bound is None or not claims.period_bound <= float(certificate.period_bound):
        raise CertificateError(
            f"period_bound: {claims.period_bound} is not at most that of the certificate, "
            f"{certificate.period_bound}"
        )
    if optimal and not report.meets_bound:
        raise CertificateError(
            f"search_status: OPTIMAL, but the repetend's {certificate.in_ms(certificate.period)} per "
            f"micro-batch do not meet the bound of {certificate.in_ms(certificate.period_bound)} for its "
            "sizes and limits"
        )


def _verdict(claims: Claims, report: CheckReport | None) -> str:
    if report is None or claims.certificate is None:
        return "no certificate: no repetend is claimed"
    certificate = claims.certificate
    figures = (certificate.period, certificate.period_bound)
    period, bound = (certificate.in_ms(ticks) for ticks in figures)
    if report.optimal:
        return f"period proved: {period} per micro-batch is the least"
    if report.meets_bound:
        return f"the period of {period} per micro-batch is the least if what is not rechecked is true"
    return f"period not proved: {period} per micro-batch is above the bound of {bound}"
