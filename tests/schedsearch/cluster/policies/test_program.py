"""The program that policies share: its rules, floors and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cluster.policies.cases import Case, case_of, largest_sum, random_case

from schedsearch.cluster.allocation import Allocation, InfeasibleError, check_allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.policies.program import AllocationProgram


def with_values(case: Case, values: np.ndarray) -> tuple[Demand, np.ndarray]:
    """Return the demand, and each configuration's worth per share, given each job's value per step."""
    demand = case.demand()
    per_job = np.append(values, 0.0)
    configs = demand.configurations
    return demand, (per_job[configs.jobs] * configs.steps_per_s).sum(axis=1)


def test_floors_are_kept_and_cost_no_more_than_they_must() -> None:
    """Floors that only pairs can keep too: the program then needs configurations it did not begin with."""
    for seed in range(15):
        case = random_case(seed)
        draw = np.random.default_rng(seed)
        demand, values = with_values(case, draw.random(len(case.rates)))
        floors = demand.rates(AllocationProgram(demand).maximize(values)) * draw.choice(
            [0.0, 0.9, 0.999], len(case.rates)
        )
        others = draw.random(len(case.rates))
        program = AllocationProgram(demand)
        program.set_floors(floors)
        shares = program.maximize(with_values(case, others)[1])
        check_allocation(Allocation(demand, shares, 0.0))
        rates = demand.rates(shares)
        assert (rates >= floors * (1 - 1e-6)).all()
        assert others @ rates == pytest.approx(largest_sum(case, others, floors), rel=1e-6)


def test_floors_above_what_there_is_are_infeasible_until_they_are_lowered() -> None:
    demand, values = with_values(case_of([1], [[10.0], [10.0]]), np.ones(2))
    program = AllocationProgram(demand)
    program.set_floors(np.array([6.0, 6.0]))
    with pytest.raises(InfeasibleError):
        program.maximize(values)
    program.set_floors(np.array([0.0, 6.0]))
    assert demand.rates(program.maximize(np.array([1.0, 0.0]))) == pytest.approx([4.0, 6.0])


def test_a_limit_is_kept_with_pairs_taken_up_later() -> None:
    """At most half a GPU in use: the pair is worth more in it than either job."""
    case = replace(case_of([1], [[10.0], [10.0]]), pairs=[(0, 1, 0, 8.0, 8.0)])
    demand, values = with_values(case, np.ones(2))
    program = AllocationProgram(demand)
    program.limit(np.full(3, 1000.0), 500.0)
    assert program.maximize(values) == pytest.approx([0.0, 0.0, 0.5])
    assert program.maximize_least(np.ones(2))[1] == pytest.approx(4.0)
