import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line_errors import raises_line
from oracles import min_period
from places import ROOT
from strategies import placements as random_placements
from strategies import tight, with_transient

from placements import Block, Kind, Placement
from placements.forms.texts import write_json
from placements.shapes import SHAPES, m_shape, v_shape, x_shape
from schedsearch.core.answer import Answer, Status
from schedsearch.proof.check.certificate import (
    Certificate,
    CertificateError,
    Refutation,
    RepetendLimits,
    certificate_from_dict,
    certificate_to_dict,
)
from schedsearch.proof.check.claims import check
from schedsearch.proof.check.refutation import find_starts
from schedsearch.proof.check.states import HeldLimit, MinCycleRatio
from schedsearch.proof.load_and_path import Load
from schedsearch.proof.memory_occupancy import MemoryOccupancy
from schedsearch.schedule_file import ScheduleFileError, read_claims, schedule_to_dict
from schedsearch.searches.certificate import certificate_of
from schedsearch.searches.search import search

QUICK = {"objectives": ["period"], "work_limit": 10}


def certified(placement: Placement, **options: Any) -> Certificate:
    return certificate_of(placement, search(placement, 3, **QUICK | options))


def test_the_proofs_of_several_micro_batches_are_proved_again() -> None:
    certificate = certified(m_shape().with_memory(4), max_micro_batches_per_repetend=2)
    assert (certificate.sizes, certificate.period_bound) == ((1, 2), 7)
    report = check(certificate)
    assert report.optimal
    assert "any number" not in report.claims[-1].text
    with raises_line(CertificateError, has="bound: 7 ms per micro-batch does not follow for 3 micro-batch"):
        check(replace(certificate, sizes=(1, 2, 3)))


@settings(max_examples=10, deadline=None)
@given(random_placements(), st.integers(1, 3), st.integers(0, 3), st.booleans())
def test_every_search_has_a_certificate(placement: Placement, size: int, spare: int, only: bool) -> None:
    """And it is no longer accepted when it claims a bit more."""

    placement = tight(placement, spare)
    key = "micro_batches_per_repetend" if only else "max_micro_batches_per_repetend"
    result = search(placement, 3, **{key: size}, work_limit=2.5, objectives=["period"])
    if result.repetend is None:
        return
    certificate = certificate_of(placement, result)
    report = check(certificate)
    assert not report.holds or report.optimal == (result.status is Status.OPTIMAL)
    assert float(certificate.period_bound) == result.period_bound
    assert reread(certificate) == certificate
    with pytest.raises(CertificateError, match="bound: .* does not follow for"):
        check(replace(certificate, period_bound=certificate.period_bound + Fraction(10, 3)))
    false = Refutation(certificate.repetend.micro_batches, certificate.repetend.period, "me")
    with pytest.raises(CertificateError, match="refutation by me: .* but there is one"):
        check(replace(certificate, reasons=(*certificate.reasons, false)))


def reread(certificate: Certificate) -> Certificate:
    data = json.loads(json.dumps(certificate_to_dict(certificate)))
    return certificate_from_dict(data, certificate.placement, certificate.repetend)


@pytest.mark.parametrize("objectives", [["span", "period"], ["latency", "period"], ["memory", "period"]])
def test_limits_of_earlier_objectives_are_stated_and_kept(objectives: list[str]) -> None:
    """With a limit on the span or latency each period is refuted on its own, as longer ones tell nothing."""
    certificate = certified(SHAPES["k_shape"](), objectives=objectives, micro_batches_per_repetend=1)
    report = check(certificate)
    assert report.optimal
    name = objectives[0]
    limit, unit = getattr(certificate.limits, name), "" if name == "memory" else " ms"
    assert reread(certificate) == certificate
    refuted = [reason.period for reason in certificate.reasons if isinstance(reason, Refutation)]
    bound = int(certificate.universal_bound)
    assert refuted == (list(range(bound, int(certificate.period))) if name != "memory" else refuted[:1])
    assert f"with {name} at most {limit}{unit} has a period below" in report.claims[-1].text
    if len(refuted) > 1:
        without_one = tuple(r for r in certificate.reasons if getattr(r, "period", 0) != refuted[0])
        with pytest.raises(CertificateError, match=f"a period of {refuted[0]} ms open"):
            check(replace(certificate, reasons=without_one))
        with pytest.raises(CertificateError, match="but there is one"):
            check(replace(certificate, limits=RepetendLimits()))
        tight = replace(certificate.limits, **{name: limit - 1})
        assert not check(replace(certificate, limits=tight)).meets_bound


def uneven() -> Placement:
    blocks = (
        Block("F0", Kind.F, (0,), 1, 1),
        Block("F1", Kind.F, (1,), 3, 0, ("F0",)),
        Block("B0", Kind.B, (0,), 1, -1, ("F1",)),
    )
    return Placement("uneven", 2, blocks, memory=(3, 0))


def with_placement(certificate: Certificate, placement: Placement) -> Certificate:
    return replace(
        certificate, placement=placement, repetend=replace(certificate.repetend, placement=placement)
    )


def with_occupancy(
    certificate: Certificate, change: Callable[[MemoryOccupancy], MemoryOccupancy]
) -> Certificate:
    assert any(isinstance(reason, MemoryOccupancy) for reason in certificate.reasons)
    return replace(
        certificate,
        reasons=tuple(change(r) if isinstance(r, MemoryOccupancy) else r for r in certificate.reasons),
    )


def without(certificate: Certificate, kind: type) -> Certificate:
    kept = tuple(reason for reason in certificate.reasons if not isinstance(reason, kind))
    return replace(certificate, reasons=kept)


def with_held(certificate: Certificate, change: Callable[[HeldLimit], HeldLimit]) -> Certificate:
    assert any(reason.held for reason in certificate.reasons if isinstance(reason, MemoryOccupancy))
    return with_occupancy(certificate, lambda r: replace(r, held=tuple(map(change, r.held))))


def full() -> Placement:
    """Two micro-batches fit until each is to run F1; then device 0 is stuck, so it holds only one."""
    blocks = (
        Block("F0", Kind.F, (0,), 10, 2),
        Block("G", Kind.F, (1,), 7, 0, ("F0",)),
        Block("F1", Kind.F, (0,), 10, 2, ("G",)),
        Block("B", Kind.B, (0,), 10, -4, ("F1",)),
    )
    return Placement("full", 2, blocks, memory=(4, 0))


X2, V3, FULL = x_shape().with_memory(2), v_shape().with_memory(3), full()

FORGED: dict[str, tuple[Placement, Callable[[Certificate], Certificate], str]] = {
    "period one less": (
        uneven(),
        lambda c: replace(c, repetend=replace(c.repetend, period=c.repetend.period - 1)),
        "repetend: is not valid; F1 of micro-batch|repetend: 'start' of .* is out of its range",
    ),
    "block a round further": (
        V3,
        lambda c: replace(
            c, repetend=replace(c.repetend, modulo_stage=dict(c.repetend.modulo_stage) | {"F0": (9,) * 3})
        ),
        "repetend: is not valid; device 0 holds",
    ),
    "block left out": (
        V3,
        lambda c: replace(c, repetend=replace(c.repetend, start={"F0": (0, 1, 2)})),
        "repetend: 'start' is not for just the blocks",
    ),
    "capacity below need": (V3, lambda c: with_placement(c, v_shape().with_memory(0)), "placement: memory"),
    "another placement": (
        V3,
        lambda c: replace(c, placement=v_shape().with_memory(4)),
        "repetend: is of another placement",
    ),
    "a period that is there": (
        X2,
        lambda c: replace(c, reasons=(*c.reasons, Refutation(1, 13, "z3"))),
        "refutation by z3: no repetend of 1 micro-batch has a period of 13 ms or less, but there is one",
    ),
    "load of another device": (
        uneven(),
        lambda c: replace(c, reasons=(Load(0),)),
        "bound: 3 ms per micro-batch does not follow for 1 micro-batches .* period of 2 ms open",
    ),
    "flow altered": (
        V3,
        lambda c: with_occupancy(c, lambda r: replace(r, flow=(*r.flow, ("F0", "F1", 1)))),
        "memory_occupancy: what some blocks allocate is not what the others release",
    ),
    "flow that skips": (
        V3,
        lambda c: with_occupancy(c, lambda r: replace(r, flow=(*r.flow, ("F0", "F2", 1)))),
        "memory_occupancy: F2 is not after F0",
    ),
    "another number of devices": (
        V3,
        lambda c: with_occupancy(c, lambda r: replace(r, device_weight=(1,))),
        "memory_occupancy: weighs 1 devices of 4",
    ),
    "more held than is claimed": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, limit=h.limit - 1)),
        "memory_occupancy: device 0 can hold more than is claimed",
    ),
    "more spare than there is": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, spare={**h.spare, "B": h.spare.get("B", 0) + 1})),
        "memory_occupancy: device 0 can hold more than is claimed",
    ),
    "a block not weighed": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, between=(("F0", "F1", 1),), spare={})),
        "memory_occupancy: B has memory on device 0, but is not weighed",
    ),
    "cycles left out": (X2, lambda c: without(c, MinCycleRatio), "does not follow for 1 micro-batches"),
    "cycles that are shorter": (
        X2,
        lambda c: replace(c, reasons=(MinCycleRatio(Fraction(1301, 100), (0, 1, 2, 3)),)),
        "cycles of states: no period is below 13.01 ms per micro-batch, but there is one",
    ),
    "a cut-out block that leaves others room": (
        X2,
        lambda c: replace(c, reasons=(MinCycleRatio(Fraction(13), (0, 1), ("F0",)),)),
        "cycles: F0 does not run on all devices, or holds memory",
    ),
    "no size": (X2, lambda c: replace(c, sizes=()), r"sizes: \[\] are not numbers from 1 on"),
    "bound too high": (
        X2,
        lambda c: replace(c, period_bound=c.period_bound + Fraction(1, 100)),
        "bound: 13.01 ms per micro-batch does not follow for 1 micro-batches",
    ),
}


@pytest.fixture(scope="module")
def genuine() -> Callable[[Placement], Certificate]:
    made: dict[str, Certificate] = {}

    def of(placement: Placement) -> Certificate:
        if placement.name not in made:
            most = 2 if placement == X2 else 3
            made[placement.name] = certified(placement, max_micro_batches_per_repetend=most)
            assert check(made[placement.name]).optimal
        return made[placement.name]

    return of


@pytest.mark.parametrize("kind", FORGED)
def test_forged_certificates_are_rejected_in_one_line(
    kind: str, genuine: Callable[[Placement], Certificate]
) -> None:
    placement, forge, message = FORGED[kind]
    with raises_line(CertificateError, match=message):
        check(forge(genuine(placement)))


def test_a_weaker_bound_is_true_but_does_not_prove_the_repetend(genuine) -> None:
    certificate = genuine(X2)
    report = check(replace(certificate, period_bound=Fraction(12)))
    assert report.holds and not report.optimal
    slow = replace(certificate.repetend, period=2 * certificate.repetend.period)
    report = check(replace(certificate, repetend=slow))
    assert report.holds and not report.optimal


def test_a_repetend_of_another_size_proves_nothing(genuine) -> None:
    report = check(replace(without(genuine(V3), Refutation), sizes=(1, 2)))
    assert report.holds and not report.meets_bound


def test_out_of_time_is_not_rechecked_never_true(genuine) -> None:
    report = check(genuine(X2), time_limit_s=1e-9)
    open_claims = [claim.text for claim in report.claims if not claim.holds]
    assert open_claims and open_claims[-1].startswith("bound:")
    assert not report.holds and not report.optimal and report.meets_bound
    assert str(report.claims[-1]).startswith("not rechecked: bound:")


def test_what_is_too_large_is_not_rechecked(genuine) -> None:
    """A file can name any number; the check neither hangs nor runs out of memory."""
    certificate = genuine(V3)
    far = dict(certificate.repetend.modulo_stage) | {"F0": (10**12,) * 3}
    huge = replace(certificate, repetend=replace(certificate.repetend, modulo_stage=far))
    assert not check(huge).claims[0].holds
    many = replace(certificate, reasons=(*certificate.reasons, Refutation(10**9, 5, "me")))
    assert not check(many).holds


def test_the_check_does_not_load_the_search() -> None:
    used = {f"schedsearch.{name}" for name in ("modulo", "solver", "model", "state_space")} | {"z3"}
    code = f"import sys, schedsearch.proof.check.claims; sys.exit(bool({used} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@settings(max_examples=15, deadline=None)
@given(with_transient(max_devices=2, max_forward=2, max_time=2, max_transfer=1))
def test_the_question_asked_anew_equals_brute_force(placement: Placement) -> None:
    longest = sum(block.time for block in placement.blocks) + 4
    expected = min_period(placement, longest)
    periods = range(1, longest + 1)
    answers = [find_starts(placement, 1, period, 20)[0] for period in periods]
    yes = [period for period, answer in zip(periods, answers, strict=True) if answer]
    assert None not in answers
    assert yes == (list(range(expected, longest + 1)) if expected else [])


@pytest.fixture(scope="module")
def result() -> Answer:
    return search(V3, 4, objectives=["period"])


WRONG_REASONS: list[tuple[dict[str, Any], str]] = [
    ({"reason": None}, r"reason: None is not known; use one of load, .*, cycles, refutation"),
    ({"reason": "load"}, "lacks the field 'device'; add it"),
    ({"reason": "memory_occupancy", "device_weight": [-1], "flow": []}, r"device_weight\[0\]: -1 is not a "),
]


def test_wrong_certificates_in_files(result: Answer, tmp_path: Path) -> None:
    data = schedule_to_dict(result.schedule, result)
    certificate = data["certificate"]
    for change, message in (
        ({"certificate": 3}, "certificate: 3 is not a mapping of micro_batches_per_repetend, period_bound"),
        ({"certificate": certificate | {"more": 3}}, "certificate: has an unknown field 'more'; the fields"),
        *(
            ({"certificate": certificate | {"reasons": [wrong]}}, rf"reasons\[0\].*{text}")
            for wrong, text in WRONG_REASONS
        ),
        ({"search_status": "BEST"}, "search_status: 'BEST' is not known; use one of OPTIMAL"),
        ({"repetend": None}, "repetend: None is not a mapping; there is a certificate"),
    ):
        path = write_json(tmp_path / "schedule.json", data | change)
        with raises_line(ScheduleFileError, f"{path}: ", match=message):
            read_claims(path)
