"""One small case in which no two units are alike: ticks of 0.25 ms, units of 512 MiB, mJ of no clear power.

Two devices of three GPUs, a V of one stage each, two micro-batches in GPipe's order::

    ms        0   2   4   6   9        14       19  20.5   24.5
    device 0  F0  F0                     [15.5 B0 ) [20.5 B0)
    device 1      [3 F1 )[6 F1 )[9  B1 )[14 B1 )

The transfer of F0 takes 1 ms and that of B1 1.5 ms. All expected numbers of the tests follow from these and
from the figures of the plans below, by hand.
"""

from __future__ import annotations

from experiments.frontier.results import EnergyResult
from experiments.search.profile_reading import CostSource
from experiments.search.results import SearchStepResult
from placements import Block, Kind, OperatingPoint, Placement, Profile
from schedsearch.core.answer import Answer, Status
from schedsearch.energy import FrequencyPlan, Frontier, simulate_at_clocks
from schedsearch.repetend import Repetend
from schedsearch.schedule import as_soon_as_possible

PLACEMENT = Placement(
    "quarters",
    2,
    (
        Block("F0", Kind.F, (0,), 8, 3),
        Block("F1", Kind.F, (1,), 12, 2, after=("F0",)),
        Block("B1", Kind.B, (1,), 20, -2, after=("F1",)),
        Block("B0", Kind.B, (0,), 16, -3, after=("B1",)),
    ),
    tick_ms=0.25,
    transfer=(("F0", "F1", 4), ("B1", "B0", 6)),
    memory=(8, 5),
    num_gpus=(2, 1),
    memory_unit_mib=512.0,
)

ORDERS = ((("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)), (("F1", 0), ("F1", 1), ("B1", 0), ("B1", 1)))

SCHEDULE = as_soon_as_possible(PLACEMENT, 2, ORDERS)

PROFILE = Profile(
    "made up",
    {
        "F0": (OperatingPoint(700, 3.0, 610.0), OperatingPoint(1100, 2.0, 750.0)),
        "F1": (OperatingPoint(700, 4.0, 530.0), OperatingPoint(1100, 3.0, 880.0)),
        "B1": (OperatingPoint(700, 6.5, 970.0), OperatingPoint(1100, 5.0, 1340.0)),
        "B0": (OperatingPoint(700, 6.0, 1110.0), OperatingPoint(1100, 4.0, 1270.0)),
    },
    50.0,
)

HIGH, LOW = (1100, 1100), (700, 700)
MIXED = {"F0": (1100, 700), "F1": (700, 1100), "B1": HIGH, "B0": (1100, 700)}

MAXIMUM = FrequencyPlan(dict.fromkeys(PROFILE.points, HIGH), 24.5, 9000.0, 8400.0)
FAST = FrequencyPlan(dict.fromkeys(PROFILE.points, HIGH) | {"F1": (1100, 700)}, 24.5, 8100.0, 8000.0)
CHOSEN = FrequencyPlan(MIXED, 28.0, 7600.0, 7500.0)
LATE = FrequencyPlan(dict.fromkeys(PROFILE.points, LOW), 40.0, 8600.0, 8200.0)
"""Less than the others only beside a straggler: three GPUs wait at 50 W, 150 mJ in each ms."""

FRONTIER = Frontier((FAST, CHOSEN, LATE), MAXIMUM, 50.0, num_devices=2, num_gpus=3)

ENVPIPE = FrequencyPlan(dict.fromkeys(PROFILE.points, HIGH) | {"B0": LOW}, 30.5, 8800.0, 8000.0)
PERSEUS = (
    FrequencyPlan(dict.fromkeys(PROFILE.points, HIGH) | {"F0": LOW}, 26.5, 8300.0, 8000.0),
    FrequencyPlan(dict.fromkeys(PROFILE.points, HIGH) | {"F1": LOW}, 27.5, 7900.0, 7800.0),
)

COSTS = CostSource("a stopwatch", "a meter", "a guess", False)

FOUND = SearchStepResult(PLACEMENT, PROFILE, SCHEDULE, None, COSTS, "units of 512 MiB")

TUNED = EnergyResult(
    PROFILE,
    COSTS,
    FRONTIER,
    28.0,
    CHOSEN,
    simulate_at_clocks(SCHEDULE, PROFILE, MIXED),
    baselines={"all_maximum": (MAXIMUM,), "envpipe": (ENVPIPE,), "perseus": PERSEUS},
    method="by hand",
)

RESULT = Answer(
    Status.FEASIBLE,
    # two micro-batches in 80 ticks; device 1 works 64 of them and device 0 works 48
    Repetend(
        PLACEMENT,
        2,
        80,
        {"F0": (0, 8), "F1": (12, 24), "B1": (36, 56), "B0": (62, 2)},
        {"F0": (1, 1), "F1": (1, 1), "B1": (1, 1), "B0": (1, 0)},
    ),
    SCHEDULE,
    period_bound=34.0,
    span_bound=90,
    makespan_bound=94,
    queries=7,
    seconds=1.5,
    sizes=(1, 2, 3),
    universal_bound=32.0,
    device_span_bound=90,
)
