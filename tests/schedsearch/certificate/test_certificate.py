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
from oracles import min_period
from places import ROOT
from schedsearch.core.answer import SearchResult, Status
from schedsearch.procedures.search import search
from schedsearch.proof.memory_need import CapacityError, require_capacity
from schedsearch.proof.memory_occupancy import HeldLimit, MemoryOccupancy
from strategies import placements as random_placements
from strategies import tight, with_transient
from told import told

from placements import Block, Kind, Placement
from placements.files import write_json
from placements.shapes import SHAPES, m_shape, v_shape, x_shape
from schedsearch.certificate.certificate import (
    Certificate,
    CertificateError,
    Load,
    MinCycleRatio,
    Refutation,
    RepetendLimits,
    certificate_of,
)
from schedsearch.certificate.check import check
from schedsearch.certificate.file import certificate_from_dict, certificate_to_dict
from schedsearch.certificate.recheck_z3 import find_starts
from schedsearch.schedule_file import ScheduleFileError, read_claims, schedule_to_dict
from schedsearch.solver import smt
from schedsearch.solver.query import Answer, Query

QUICK = {"objectives": ["period"], "work_limit": 10}


def certified(placement: Placement, **options: Any) -> Certificate:
    return certificate_of(placement, search(placement, 3, **QUICK | options))


@pytest.mark.parametrize(
    ("shape", "memory", "period"),
    [
        ("v_shape", 3, 8),
        ("m_shape", 4, 7),
        ("k_shape", 3, 6),
    ],
)
def test_the_proofs_of_one_micro_batch_are_proved_again(shape: str, memory: int, period: int) -> None:
    report = check(certified(SHAPES[shape]().with_memory(memory), micro_batches_per_repetend=1))
    assert report.optimal
    assert f"1 micro-batch in {period} ms" in report.claims[0].text


@pytest.mark.parametrize(
    ("shape", "memory", "sizes", "bound"),
    [("m_shape", 4, 2, 7), ("v_shape", 3, 3, Fraction(16, 3))],
)
def test_the_proofs_of_several_micro_batches_too(
    shape: str, memory: int, sizes: int, bound: Fraction
) -> None:
    certificate = certified(SHAPES[shape]().with_memory(memory), max_micro_batches_per_repetend=sizes)
    assert (certificate.sizes, certificate.period_bound) == (tuple(range(1, sizes + 1)), bound)
    report = check(certificate)
    assert report.optimal
    assert ("any number" in report.claims[-1].text) == (bound != 7)


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


def moved(certificate: Certificate, name: str, by: int) -> Certificate:
    start = dict(certificate.repetend.start)
    start[name] = tuple(ticks + by for ticks in start[name])
    return replace(certificate, repetend=replace(certificate.repetend, start=start))


def with_placement(certificate: Certificate, placement: Placement) -> Certificate:
    return replace(
        certificate, placement=placement, repetend=replace(certificate.repetend, placement=placement)
    )


def with_residence(
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
    return with_residence(certificate, lambda r: replace(r, held=tuple(map(change, r.held))))


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
TWO = replace(m_shape().with_memory(4), name="at most two micro-batches per repetend")

FORGED: dict[str, tuple[Placement, Callable[[Certificate], Certificate], str]] = {
    "period one less": (
        uneven(),
        lambda c: replace(c, repetend=replace(c.repetend, period=c.repetend.period - 1)),
        "repetend: is not valid; F1 of micro-batch|repetend: 'start' of .* is out of its range",
    ),
    "block moved": (V3, lambda c: moved(c, "B3", -1), "repetend: is not valid; B3|is out of its range"),
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
        lambda c: with_residence(
            c,
            lambda r: replace(r, flow={pair: amount + (pair[0] == "F0") for pair, amount in r.flow.items()}),
        ),
        "residence: what some blocks allocate is not what the others release",
    ),
    "flow that skips": (
        V3,
        lambda c: with_residence(c, lambda r: replace(r, flow={**r.flow, ("F0", "F2"): 1})),
        "residence: F2 is not after F0",
    ),
    "weights negative": (
        V3,
        lambda c: with_residence(c, lambda r: replace(r, device_weight=(-1, 0, 0, 0))),
        "residence: weights, flows and what is spare are not all 0 or more",
    ),
    "more held than is claimed": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, limit=h.limit - 1)),
        "residence: device 0 can hold more than is claimed",
    ),
    "more spare than there is": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, spare={**h.spare, "B": h.spare.get("B", 0) + 1})),
        "residence: device 0 can hold more than is claimed",
    ),
    "a block not weighed": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, weight={"F0": 1, "F1": -1})),
        "residence: B has memory on device 0, but is not weighed",
    ),
    "held by a block elsewhere": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, spare={"G": 1})),
        "residence: there is no block 'G' on device 0",
    ),
    "held for ever": (
        FULL,
        lambda c: with_held(c, lambda h: replace(h, weight={**h.weight, "F1": h.weight["F1"] + 1})),
        "residence: what some blocks allocate is not what the others release",
    ),
    "residence left out": (V3, lambda c: without(c, MemoryOccupancy), "does not follow for 1 micro-batches"),
    "a size left out": (
        TWO,
        lambda c: replace(c, sizes=(1, 2, 3)),
        "bound: 7 ms per micro-batch does not follow for 3 micro-batches per repetend",
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
    "a cut-out block of none": (
        X2,
        lambda c: replace(c, reasons=(MinCycleRatio(Fraction(13), (0,), ("E",)),)),
        "cycles: there is no block 'E'",
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
            most = 2 if placement in (X2, TWO) else 3
            made[placement.name] = certified(placement, max_micro_batches_per_repetend=most)
            assert check(made[placement.name]).optimal
        return made[placement.name]

    return of


@pytest.mark.parametrize("kind", FORGED)
def test_forged_certificates_are_rejected_in_one_line(
    kind: str, genuine: Callable[[Placement], Certificate]
) -> None:
    placement, forge, message = FORGED[kind]
    with told(CertificateError, match=message):
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
    used = {f"schedsearch.{name}" for name in ("search", "modulo", "smt", "cpsat", "completion")}
    code = f"import sys, schedsearch.certificate.check; sys.exit(bool({used} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@settings(max_examples=15, deadline=None)
@given(with_transient(max_devices=2, max_forward=2, max_time=2, max_transfer=1))
def test_the_question_asked_anew_equals_brute_force(placement: Placement) -> None:
    longest = sum(block.time for block in placement.blocks) + 4
    expected = min_period(placement, longest)
    periods = range(1, longest + 1)
    answers = [find_starts(Query(placement, 1, period), 20)[0] for period in periods]
    yes = [period for period, answer in zip(periods, answers, strict=True) if answer is Answer.YES]
    assert Answer.UNKNOWN not in answers
    assert yes == (list(range(expected, longest + 1)) if expected else [])


@settings(max_examples=15, deadline=None)
@given(
    with_transient() | with_transient(by_device=True),
    st.integers(1, 2),
    st.integers(1, 30),
    st.none() | st.integers(3, 30),
    st.none() | st.integers(3, 30),
)
def test_the_question_asked_anew_has_the_answer_of_the_search(
    placement: Placement, micro_batches: int, period: int, span: int | None, latency: int | None
) -> None:
    try:
        require_capacity(placement)
    except CapacityError:
        return
    query = Query(placement, micro_batches, period, span, latency)
    once, again = smt.decide(query, timeout_s=2)[0], find_starts(query, 2)[0]
    assert once is again or Answer.UNKNOWN in (once, again)


@pytest.fixture(scope="module")
def result() -> SearchResult:
    return search(V3, 4, objectives=["period"])


def test_a_schedule_file_has_its_certificate(result: SearchResult, tmp_path: Path) -> None:
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(result.schedule, result))
    claims = read_claims(path)
    assert claims.certificate == certificate_of(V3, result)
    assert check(claims.certificate).optimal
    assert (claims.status, claims.makespan) == (Status.OPTIMAL, result.schedule.makespan)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("", 3, "certificate: 3 is not a mapping of micro_batches_per_repetend, period_bound"),
        ("more", 3, "certificate: has an unknown field 'more'; the fields are"),
        ("period_bound", 5.5, r"certificate.period_bound: 5.5 is not a list; give one"),
        ("period_bound", [16, 0], r"period_bound: \[16, 0\] is not \[numerator, denominator\]"),
        ("micro_batches_per_repetend", [True], r"repetend\[0\]: True is not a whole number"),
        (
            "limits",
            {"speed": 1},
            "certificate.limits: has an unknown field 'speed'; the fields are span, latency, memory",
        ),
        ("reasons", {}, r"certificate.reasons: {} is not a list; give one"),
        (
            "reasons",
            [{"reason": None}],
            r"reasons\[0\].reason: None is not known; use one of load, .*, cycles, modes, ",
        ),
        ("reasons", [{"reason": "load"}], r"certificate.reasons\[0\]: lacks the field 'device'; add it"),
        (
            "reasons",
            [{"reason": "residence", "device_weight": [1], "flow": [["F0", "F1", 1]] * 2, "shared": []}],
            r"reasons\[0\].flow\[1\]: F0 to F1 is given twice",
        ),
        (
            "reasons",
            [{"reason": "refutation", "micro_batches": 1, "period": "7", "solver": "z3"}],
            r"reasons\[0\].period: '7' is not a whole number",
        ),
    ],
)
def test_wrong_certificates_in_files(
    field: str, value: object, message: str, result: SearchResult, tmp_path: Path
) -> None:
    data = schedule_to_dict(result.schedule, result)
    data["certificate"] = data["certificate"] | {field: value} if field else value
    assert_rejected(data, message, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search_status": "BEST"}, "search_status: 'BEST' is not known; use one of OPTIMAL"),
        ({"makespan": 1.5}, "makespan: 1.5 is not a whole number"),
        ({"repetend": None}, "repetend: None is not a mapping; there is a certificate"),
        (
            {"repetend": {"start": {"F0": [0.5]}, "ahead": {}}},
            r"repetend.start.F0\[0\]: 0.5 is not a whole number",
        ),
    ],
)
def test_wrong_files_with_certificates(
    change: dict[str, object], message: str, result: SearchResult, tmp_path: Path
) -> None:
    assert_rejected(schedule_to_dict(result.schedule, result) | change, message, tmp_path)


def assert_rejected(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_json(tmp_path / "schedule.json", data)
    with told(ScheduleFileError, f"{path}: ", match=message):
        read_claims(path)
