"""Certificates of periods with modes and with streams that share a memory, proved again by Z3."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from modes_and_streams import CASES, at_random
from one_line_errors import raises_line

from experiments.benchmarks.inputs.made_placements import recomputing
from placements import Placement
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.shapes import v_shape
from schedsearch.core.answer import Status
from schedsearch.proof.check.certificate import (
    Certificate,
    CertificateError,
    Refutation,
    certificate_from_dict,
    certificate_to_dict,
)
from schedsearch.proof.check.claims import check
from schedsearch.proof.check.refutation import find_starts
from schedsearch.proof.load_and_path import Load
from schedsearch.proof.mode_choice import ModeChoice
from schedsearch.searches.certificate import certificate_of
from schedsearch.searches.search import search

PLACEMENTS = CASES | {f"at random {seed}": at_random(seed) for seed in range(2)}


def certified(placement: Placement, **options: Any) -> Certificate:
    answer = search(placement, 4, objectives=["period"], work_limit=30, **options)
    return certificate_of(placement, answer)


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_the_proof_of_each_small_placement_is_proved_again(name: str) -> None:
    """A period of a tick less is not proved, and no period that exists is refuted."""
    placement = PLACEMENTS[name]
    result = search(placement, 4, micro_batches_per_repetend=1, objectives=["period"], work_limit=30)
    if result.repetend is None:
        answer, _, _ = find_starts(placement, 1, 12, 60)
        assert (result.status, answer) == (Status.INFEASIBLE, False)
        return
    certificate = certificate_of(placement, result)
    assert check(certificate).optimal
    data = json.loads(json.dumps(certificate_to_dict(certificate)))
    assert certificate_from_dict(data, placement, certificate.repetend) == certificate
    with pytest.raises(CertificateError, match="bound: .* does not follow for"):
        check(replace(certificate, period_bound=certificate.period_bound + 1))
    false = Refutation(1, certificate.repetend.period, "me")
    with pytest.raises(CertificateError, match="refutation by me: .* but there is one"):
        check(replace(certificate, reasons=(*certificate.reasons, false)))


def test_modes_that_differ_between_micro_batches_are_proved_again() -> None:
    certificate = certified(recomputing(4).with_memory(32), max_micro_batches_per_repetend=2)
    report = check(certificate)
    assert (certificate.period, report.optimal) == (7, True)
    assert any("modes of device 0, whatever their mix" in claim.text for claim in report.claims)


def test_what_goes_to_the_host_and_back_is_proved_again() -> None:
    placement = with_levers(
        v_shape(2, forward_time=1, backward_time=2, stage_memory=10).with_memory(15),
        {"F1": [Recompute(1, 1)]},
        {"F0": [Offload(10, 2), Offload(5, 1, "half")]},
        host_memory=10,
    )
    certificate = certified(placement, max_micro_batches_per_repetend=2)
    assert check(certificate).optimal
    assert any(certificate.repetend.chosen)


def test_wrong_modes_and_prices_are_refused() -> None:
    certificate = certified(recomputing(2).with_memory(14), micro_batches_per_repetend=2)
    repetend = certificate.repetend
    free = ModeChoice(0, {0: 1}, 1)
    for wrong, message in (
        (replace(certificate, repetend=replace(repetend, chosen=repetend.chosen[:1])), "not have one choice"),
        (replace(certificate, repetend=replace(repetend, chosen=((2, 0), (0, 0)))), r"modes \[2, 0\]"),
        (replace(certificate, repetend=replace(repetend, chosen=((0, 0), (0, 0)))), "repetend: is not valid"),
        (with_reason(certificate, replace(free, device=2)), "modes: there is no device 2"),
        (with_reason(certificate, replace(free, lanes={1: 1})), "a price is of no stream"),
        (with_reason(certificate, Load(0, "copy_in")), "load: there is no device 0 copy_in"),
    ):
        with raises_line(CertificateError, match=message):
            check(wrong)


def with_reason(certificate: Certificate, reason: ModeChoice | Load) -> Certificate:
    return replace(certificate, reasons=(*certificate.reasons, reason))
