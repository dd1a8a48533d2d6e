from __future__ import annotations

from functools import partial

from experiments.benchmarks.search.measuring import KnownMakespan, finite, steady, sweep
from placements.shapes import v_shape

V3 = v_shape(3).with_memory(3)


def test_a_wrong_expectation_is_reported_as_not_met() -> None:
    whole = partial(finite, V3, 4, time_limit_s=10.0)
    wrong = [
        steady(V3, period=3, cpu_s=1e6),
        steady(V3, at_most=3.5, cpu_s=1e6),
        steady(V3, period=4, cpu_s=1e-9),
        sweep({"memory 3": (V3, 3.0)}, cpu_s=1e6, each_s=1e6),
        whole(KnownMakespan(23, is_optimal=True)),
    ]
    assert [result.missed[-1] for result in wrong] == [
        "period is not 3",
        "period above 3.5",
        "more than 1e-09 CPU s",
        "memory 3: period is not 3.0",
        "longer than the best known, 23",
    ]
    assert whole(KnownMakespan(24, is_optimal=True)).is_met
    assert whole(KnownMakespan(24, is_optimal=False)).is_met, "proved"
    assert steady(V3, period=4, cpu_s=1e6).is_met
