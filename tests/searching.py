"""States of a search and an oracle, for tests of single strategies."""

from __future__ import annotations

import time
from fractions import Fraction

from schedsearch.core.budget import Account
from schedsearch.core.known import Known, Start
from schedsearch.proof.load_and_path import period_bound

from placements import Placement
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort
from schedsearch.solver.portfolio import SOLVERS


def state_of(
    placement: Placement,
    repetend: Repetend | None = None,
    sizes: tuple[int, ...] = (1,),
    bound: Fraction | None = None,
    seed: int = 0,
) -> Known:
    """Return the state of a search that knows one repetend."""
    state = Known(placement, sizes, period_bound(placement) if bound is None else bound, seed=seed)
    return state if repetend is None else state.taking(Start(repetend, "test"))


def oracle() -> Account:
    """Return an oracle with time enough, which has done nothing."""
    return Account(SOLVERS["portfolio"](), 0, 0.0, Effort(1e6 + time.monotonic()), lambda _: None)
