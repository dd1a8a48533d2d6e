"""What cannot run at once, as each two blocks share some device: instances of which the answer is known."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedsearch.core.answer import Status
from schedsearch.procedures.search import search
from schedsearch.proof.conflicts import Conflicts, conflicts
from schedsearch.proof.load_and_path import load_bound, period_bound
from schedsearch.proof.makespan import makespan_bound

from placements import Block, Kind, Placement
from schedsearch.certificate.certificate import CertificateError, certificate_of
from schedsearch.certificate.check import check
from schedsearch.certificate.check_other_bounds import check_makespan_bound
from schedsearch.certificate.file import certificate_from_dict, certificate_to_dict
from schedsearch.certificate.recheck_conflicts import weighs_at_most

FANO = [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
RING = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
PAIRS_OF_FIVE = list(combinations(range(5), 2))


def without_order(sets: Sequence[tuple[int, ...]], times: Sequence[int] = ()) -> Placement:
    """Return blocks on sets of devices, none of which waits for another."""
    blocks = (
        Block(f"F{i}", Kind.F, devices, time, 0)
        for i, (devices, time) in enumerate(zip(sets, times or [1] * len(sets), strict=True))
    )
    return Placement("sets", 1 + max(map(max, sets)), tuple(blocks))


@pytest.mark.parametrize(
    ("sets", "load", "period", "makespan"),
    [(FANO, 3, 7, 42), (PAIRS_OF_FIVE, 4, 5, 30), (RING, 2, Fraction(5, 2), 15)],
    ids=["any two share a device", "two of ten at once", "two of a ring of five"],
)
def test_a_period_is_proved_that_no_device_needs(
    sets: list[tuple[int, ...]], load: int, period: Fraction, makespan: int
) -> None:
    placement = without_order(sets)
    assert (load_bound(placement), period_bound(placement)) == (load, period)
    result = search(placement, 6, work_limit=40)
    assert (result.status, result.repetend.period_per_micro_batch) == (Status.OPTIMAL, period)
    assert result.schedule.makespan == result.makespan_bound == makespan
    certificate = certificate_of(placement, result)
    again = certificate_from_dict(certificate_to_dict(certificate), placement, certificate.repetend)
    assert again == certificate
    assert check(again).optimal
    assert check_makespan_bound(result.schedule, makespan, 10).holds


def test_heads_and_tails_of_the_blocks_count_at_the_ends() -> None:
    first, *others = without_order([(7,), *FANO], [3, *[1] * 7]).blocks
    after = tuple(replace(block, after=(first.name,)) for block in others)
    assert makespan_bound(Placement("late", 8, (first, *after)), 6) == 3 + 42


def test_what_cannot_run_at_once_is_not_claimed_wrongly() -> None:
    placement = without_order(RING)
    certificate = certificate_of(placement, search(placement, 3, work_limit=40))
    wrong = Conflicts(dict.fromkeys(RING, 1), 1)
    for reasons, message in (
        ((wrong,), "more can run at once than is claimed"),
        ((replace(wrong, at_once=0),), "weights are not all 0 or more"),
    ):
        with pytest.raises(CertificateError, match=message):
            check(replace(certificate, reasons=reasons))


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.sets(st.integers(0, 5), min_size=1, max_size=3).map(lambda each: tuple(sorted(each))),
        st.integers(1, 4),
        min_size=3,
        max_size=9,
    )
)
def test_random_sets(times: dict[tuple[int, ...], int]) -> None:
    """The most at once is that of all choices, and the bound is not below that of sets that all meet."""
    placement = without_order(list(times), list(times.values()))
    bound = period_bound(placement)
    choices = [c for n in range(1, len(times) + 1) for c in combinations(times, n)]
    cliques = [c for c in choices if all({*a} & {*b} for a, b in combinations(c, 2))]
    assert load_bound(placement) <= max(sum(times[s] for s in c) for c in cliques) <= bound
    found = conflicts(placement)
    if found is not None:
        apart = [c for c in choices if not any({*a} & {*b} for a, b in combinations(c, 2))]
        assert found.at_once == max(sum(found.weight.get(s, 0) for s in c) for c in apart)
        assert weighs_at_most(found.weight, found.at_once, 10)
        assert weighs_at_most(found.weight, found.at_once - 1, 10) is False
