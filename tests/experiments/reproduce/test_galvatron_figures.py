"""Fig. 4 and 5 of Galvatron-BMW: divisions by brute force, and how times are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stages_at_random import every_division

from experiments.reproduce.galvatron.partitions import (
    PLANS,
    RATE,
    STAGES,
    Layers,
    balance,
    iteration_ms,
)
from experiments.reproduce.galvatron.search_times import SEARCH_TIMES


def test_the_divisions_are_the_best_of_all() -> None:
    layers = Layers((3.0, 1.0, 2.0, 2.0, 5.0, 1.0, 1.0), (8.0, 4, 4, 4, 4, 4, 9), (1.0, 2, 3, 1, 2, 1, 1))
    every = list(every_division(7, STAGES))
    fitting = [each for each in every if max(mib for _, mib in layers.stages(each)) <= 26]
    assert 0 < len(fitting) < len(every)
    found = layers.divisions(26.0)
    assert tuple(found) == PLANS
    values = {name: layers.stages(each) for name, each in found.items()}
    assert max(mib for _, mib in values["memory-balanced"]) == min(
        max(mib for _, mib in layers.stages(each)) for each in every
    )
    assert max(ms for ms, _ in values["time-balanced"]) == min(
        max(ms for ms, _ in layers.stages(each)) for each in every
    )
    assert iteration_ms(values["optimal"]) == min(iteration_ms(layers.stages(each)) for each in fitting)
    assert "optimal" not in layers.divisions(1.0)


def test_the_first_stage_holds_the_most() -> None:
    layers = Layers((1.0,) * 4, (10.0,) * 4, (1.0,) * 4)
    assert layers.stages((1, 1, 1, 1)) == [(1.0, 14.0), (1.0, 13.0), (1.0, 12.0), (1.0, 11.0)]
    assert balance([14.0, 13.0, 12.0, 11.0]) == pytest.approx(1 - 14 / 50)


def test_growth_is_of_models_that_fit() -> None:
    rows = SEARCH_TIMES.rows(replace(SEARCH_TIMES.small, layers=(2, 4)))
    rows = [replace(row, ours=row.at / 2) for row in rows]
    rows[0] = replace(rows[0], ours=9.0, series="")
    growth, memory, *_ = SEARCH_TIMES.trends(rows)
    assert growth.holds and growth.shown_by == "2.00, 2.00 times for 2 times the layers"
    assert not memory.holds
    assert RATE not in {row.metric for row in rows}
