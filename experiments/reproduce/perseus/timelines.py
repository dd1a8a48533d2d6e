"""Fig. 10: an iteration of 1F1B with its power, at the highest clocks and with the shortest plan.

A row for each block says when it starts, how long it takes and at which power, so that the figure is drawn
from rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.perseus.workloads import (
    EXPERIMENTS,
    PerseusOptions,
    PerseusWorkload,
    costed,
)
from experiments.reproduce.rows import cases_in, rows_with, span, value_of
from placements.gpus import GPUS
from placements.shapes import v_shape
from schedsearch.energy import compute_frontier, simulate_at_clocks
from schedsearch.figures.comparison import TimedBlocks, draw_power

NUM_MICRO_BATCHES = 6
NUM_STAGES = 4

BEFORE, AFTER = "all at the highest clocks", "our shortest plan"
START, TIME, POWER = "start_ms", "time_ms", "power_w"
ITERATION, ENERGY = "iteration_ms", "energy_j"

_BY_CASE = {each.case: each for each in EXPERIMENTS if each.gpu == "a100" and each.model != "gpt3_1.3b"}


def _rows(options: PerseusOptions, workload: PerseusWorkload) -> Iterator[Row]:
    costs = costed(workload, options.data, NUM_MICRO_BATCHES)
    frontier = compute_frontier(costs.schedule, costs.profile, 1)
    for when, plan in {BEFORE: frontier.all_maximum, AFTER: frontier.shortest}.items():
        yield Row(when, ITERATION, plan.time_ms, note=costs.note)
        yield Row(when, ENERGY, plan.energy_mj / 1e3, note=costs.note)
        starts = simulate_at_clocks(costs.schedule, costs.profile, plan.clock_mhz).start_ms
        for (block, number), start_ms in starts.items():
            clock_mhz = plan.clock_mhz[block][number]
            point = next(each for each in costs.profile.points[block] if each.clock_mhz == clock_mhz)
            power_w = point.energy_mj / point.time_ms
            for metric, value in ((START, start_ms), (TIME, point.time_ms), (POWER, power_w)):
                yield Row(_label(when, block, number), metric, value)


def _label(when: str, block: str, number: int) -> str:
    return f"{when}, {block} of micro-batch {number}"


def timeline_of(rows: Sequence[Row], case: str, when: str) -> TimedBlocks:
    """Return the blocks of a case, at the highest clocks or with the plan."""
    placement, value = v_shape(NUM_STAGES), value_of(rows_with(rows, case=case), "label", "metric")
    blocks = [(name, number) for number in range(NUM_MICRO_BATCHES) for name in placement.by_name]
    start_ms, duration_ms, power_w = (
        {at: value[_label(when, *at), metric] for at in blocks} for metric in (START, TIME, POWER)
    )
    return TimedBlocks(placement, start_ms, duration_ms, power_w)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value = value_of(rows)
    ratios = {
        metric: [value[case, AFTER, metric] / value[case, BEFORE, metric] for case in cases_in(rows)]
        for metric in (ITERATION, ENERGY)
    }
    saved = [100 * (1 - ratio) for ratio in ratios[ENERGY]]
    yield Trend(
        "blocks off the critical path are slowed down, and the iteration is as short as before",
        min(saved) > 0 and max(ratios[ITERATION]) <= 1 + 1e-6,
        span(saved, ".1f", " % less energy"),
    )


def _draw(rows: Sequence[Row]) -> Any:
    value = value_of(rows)
    timelines = {
        f"{_BY_CASE[case].title}, {when}: {value[case, when, ENERGY]:,.0f} J": timeline_of(rows, case, when)
        for case in cases_in(rows)
        for when in (BEFORE, AFTER)
    }
    return draw_power(timelines, GPUS["a100"].blocking_power_w)


FIGURE_10 = described(
    "perseus_figure10",
    _BY_CASE,
    _rows,
    conclude=_trends,
    draw=_draw,
    small=PerseusOptions(("a100_bert_huge",)),
)

ITEMS = (FIGURE_10,)
