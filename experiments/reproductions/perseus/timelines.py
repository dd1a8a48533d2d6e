"""Fig. 1 and 10: an iteration of 1F1B with its power, at the highest clocks and with the shortest plan.

A row for each block says when it starts, how long it takes and at which power, so that the figure is drawn
from rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.reproductions.item import Claim, Item, Row, Trend, cases_in
from experiments.reproductions.perseus.workloads import (
    EXPERIMENTS,
    INPUTS,
    Costed,
    PerseusOptions,
    cases_of,
    costed,
    data_folder,
)
from placements.hardware import GPUS
from placements.shapes import v_shape
from schedsearch.energy import FrequencyPlan, compute_frontier, simulate_at_clocks
from schedsearch.figures.comparison import TimedBlocks, draw_power

NUM_MICRO_BATCHES = 6
NUM_STAGES = 4

BEFORE, AFTER = "all at the highest clocks", "our shortest plan"
START, TIME, POWER = "start_ms", "time_ms", "power_w"
ITERATION, ENERGY = "iteration_ms", "energy_j"

_BY_CASE = {each.case: each for each in EXPERIMENTS if each.gpu == "a100"}
_FIGURE_1 = "a100_gpt3_1.3b"


def _figure_1_cases(options: PerseusOptions) -> list[str]:
    return cases_of(options, [_FIGURE_1])


def _figure_10_cases(options: PerseusOptions) -> list[str]:
    return cases_of(options, [case for case in _BY_CASE if case != _FIGURE_1])


def _rows(options: PerseusOptions, case: str) -> list[Row]:
    costs = costed(_BY_CASE[case], data_folder(options.data), NUM_MICRO_BATCHES)
    frontier = compute_frontier(costs.schedule, costs.profile, 1)
    plans = {BEFORE: frontier.all_maximum, AFTER: frontier.shortest}
    rows = []
    for when, plan in plans.items():
        rows.append(Row(case, when, ITERATION, plan.time_ms, note=costs.note))
        rows.append(Row(case, when, ENERGY, plan.energy_mj / 1e3, note=costs.note))
        rows += _block_rows(case, when, costs, plan)
    return rows


def _block_rows(case: str, when: str, costs: Costed, plan: FrequencyPlan) -> Iterator[Row]:
    starts = simulate_at_clocks(costs.schedule, costs.profile, plan.clock_mhz).start_ms
    for (block, number), start_ms in starts.items():
        clock_mhz = plan.clock_mhz[block][number]
        point = next(each for each in costs.profile.points[block] if each.clock_mhz == clock_mhz)
        values = ((START, start_ms), (TIME, point.time_ms), (POWER, point.energy_mj / point.time_ms))
        for metric, value in values:
            yield Row(case, f"{when}, {block} of micro-batch {number}", metric, value)


def timeline_of(rows: Sequence[Row], case: str, when: str) -> TimedBlocks:
    """Return the blocks of a case, at the highest clocks or with the plan."""
    found: dict[str, dict[tuple[str, int], float]] = {START: {}, TIME: {}, POWER: {}}
    for row in rows:
        head, _, block = row.label.partition(", ")
        if (row.case, head) == (case, when) and row.metric in found and row.ours is not None:
            name, _, number = block.partition(" of micro-batch ")
            found[row.metric][name, int(number)] = row.ours
    return TimedBlocks(v_shape(NUM_STAGES), found[START], found[TIME], found[POWER])


def _value(rows: Sequence[Row], case: str, when: str, metric: str) -> float:
    return next(row.ours or 0.0 for row in rows if (row.case, row.label, row.metric) == (case, when, metric))


def _trends(rows: Sequence[Row]) -> list[Trend]:
    """Return what the paper shows: less energy in the same time."""
    cases = cases_in(rows)
    longer = [
        _value(rows, case, AFTER, ITERATION) / _value(rows, case, BEFORE, ITERATION) - 1 for case in cases
    ]
    saved = [1 - _value(rows, case, AFTER, ENERGY) / _value(rows, case, BEFORE, ENERGY) for case in cases]
    return [
        Trend(
            "blocks off the critical path are slowed down, and the iteration is as short as before",
            min(saved) > 0 and max(longer) <= 1e-6,
            f"{100 * min(saved):.1f} to {100 * max(saved):.1f} % less energy",
        )
    ]


def _draw(rows: Sequence[Row]) -> Any:
    timelines = {
        f"{_BY_CASE[case].title}, {when}: {_value(rows, case, when, ENERGY):,.0f} J": timeline_of(
            rows, case, when
        )
        for case in cases_in(rows)
        for when in (BEFORE, AFTER)
    }
    return draw_power(timelines, GPUS["a100"].blocking_power_w)


_BECAUSE = (
    "The paper prints no values of the figure. Times and powers are those of the measured profiles, or where "
    "there is none of layers by their shapes and the power model."
)

FIGURE_1_ITEM = Item(
    "perseus_figure1",
    "Perseus, Fig. 1",
    "An iteration of GPT-3 1.3B at the highest clocks and with the shortest plan",
    Claim.TREND,
    PerseusOptions,
    PerseusOptions(),
    _figure_1_cases,
    _rows,
    _trends,
    _draw,
    optional_inputs=INPUTS,
    because=_BECAUSE,
)

FIGURE_10_ITEM = Item(
    "perseus_figure10",
    "Perseus, Fig. 10",
    "Iterations of four models at the highest clocks and with the shortest plan",
    Claim.TREND,
    PerseusOptions,
    PerseusOptions(only=("a100_bert_huge",)),
    _figure_10_cases,
    _rows,
    _trends,
    _draw,
    optional_inputs=INPUTS,
    because=_BECAUSE,
)
