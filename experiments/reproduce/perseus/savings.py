"""Tables 3 and 4: savings in the time of the highest clocks, and next to stragglers.

Every saving is a share of the energy of all blocks at their highest clocks, over an equal time. Plans have
real clocks and are simulated with the times of the profile; the paper ran its plans on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from experiments.reproduce.item import Claim, Row, Trend, described
from experiments.reproduce.perseus.published import GPU_TITLES, REALISED, SAVINGS, SLOWDOWNS
from experiments.reproduce.perseus.workloads import (
    EXPERIMENTS,
    Costed,
    PerseusOptions,
    PerseusWorkload,
    by_case,
    costed,
)
from experiments.reproduce.rows import cases_in, falls, grouped, in_all, numbers, rows_with, span, value_of
from schedsearch.energy import (
    FrequencyPlan,
    Frontier,
    all_maximum_clocks,
    compute_frontier,
    simulate_at_clocks,
)
from schedsearch.energy.baselines import compute_baselines

NUM_PLANS = 50
"""Deadlines of a frontier, besides those that are asked for."""

OURS, ENVPIPE = "our frontier", "EnvPipe"
"""Methods. Ours stands where the paper has Perseus."""

SAVING, SLOWER, REALISED_SHARE = "saving_percent", "slower_percent", "realised_percent"

_BY_CASE = by_case(EXPERIMENTS)


@dataclass(frozen=True)
class Tuned:
    """Our frontier of a workload, and EnvPipe's plan."""

    frontier: Frontier
    envpipe: FrequencyPlan

    @property
    def longest_ms(self) -> float:
        """Time of all blocks at their highest clocks."""
        return self.frontier.all_maximum.time_ms

    def saving_percent(self, slowdown: float) -> float:
        """Return the frontier's saving next to a straggler of a slowdown, 1 for none."""
        deadline_ms = slowdown * self.longest_ms
        return 100 * self.frontier.saving(self.frontier.at(deadline_ms), deadline_ms)

    def percent(self, plan: FrequencyPlan, slowdown: float = 1.0) -> float:
        """Return one plan's saving next to a straggler."""
        return 100 * self.frontier.saving(plan, slowdown * self.longest_ms)

    def slower_percent(self, plan: FrequencyPlan) -> float:
        """Return by how much a plan is slower than all blocks at their highest clocks."""
        return 100 * (plan.time_ms / self.longest_ms - 1)


def tuned(costs: Costed, slowdowns: Sequence[float] = ()) -> Tuned:
    """Return the frontier of a workload, with plans for some stragglers, and EnvPipe's plan."""
    schedule, profile = costs.schedule, costs.profile
    longest_ms = simulate_at_clocks(schedule, profile, all_maximum_clocks(schedule, profile)).time_ms
    deadlines = [slowdown * longest_ms for slowdown in slowdowns]
    frontier = compute_frontier(schedule, profile, NUM_PLANS, deadlines)
    envpipe = compute_baselines(["envpipe"], schedule, profile, bound=frontier.relaxed)["envpipe"]
    return Tuned(frontier, envpipe[0])


def _table_3_rows(options: PerseusOptions, workload: PerseusWorkload) -> Iterator[Row]:
    costs = costed(workload, options.data)
    found = tuned(costs)
    plans = {OURS: found.frontier.shortest, ENVPIPE: found.envpipe}
    jitter = f"{costs.note}; simulated, without what transfers and other jitter add to a measured iteration"
    for table, metric, percent, note, claim in (
        ("3", SAVING, found.percent, costs.note, costs.claim),
        ("3 slower", SLOWER, found.slower_percent, jitter, Claim.TREND),
    ):
        published = SAVINGS[table, workload.gpu, workload.model]
        for name, paper in ((OURS, published.perseus[0]), (ENVPIPE, published.envpipe[0])):
            label, ours = f"{workload.title}, {name}", percent(plans[name])
            yield Row(label, metric, ours, paper, 1, note=note, claim=claim, series=name)
    last = found.frontier.plans[-1]
    share = found.percent(found.frontier.shortest) / found.percent(last, last.time_ms / found.longest_ms)
    note = "of what all blocks at the clocks of least effective energy save (Sec. 6.2.3)"
    yield Row(f"{workload.title}, {OURS}", REALISED_SHARE, 100 * share, note=note, series=OURS)


def _table_3_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value = value_of(rows, "series", "metric", "case")
    cases = cases_in(rows)
    saved = [value[OURS, SAVING, case] for case in cases]
    max_slower = max(value[OURS, SLOWER, case] for case in cases)
    yield Trend(
        "the shortest plans save energy with next to no slowdown",
        min(saved) > 0 and max_slower < 0.1,
        f"{span(saved, '.1f', ' %')} saved, {max_slower:.2f} % slower",
    )
    better = [value[OURS, SAVING, case] >= value[ENVPIPE, SAVING, case] for case in cases]
    yield in_all("EnvPipe saves less in the same time", better, "workloads")
    measured = [row for row in rows_with(rows, metric=SAVING, series=OURS) if row.claim is None]
    if errors := [row.difference for row in measured if row.difference is not None]:
        yield Trend(
            "emulated savings at the shortest time are below measured ones, by 18.6 % on average (Sec. 6.3)",
            fmean(errors) < -0.1,
            f"{fmean(errors):+.1%} on average of {len(errors)} measured workloads",
        )
    for gpu, published in REALISED.items():
        shares = [value[OURS, REALISED_SHARE, case] for case in cases if _BY_CASE[case].gpu == gpu]
        if shares:
            yield Trend(
                f"without stragglers most of what is possible is saved on {GPU_TITLES[gpu]} "
                f"({published:.0f} % on average)",
                fmean(shares) > 50,
                f"{fmean(shares):.0f} % on average of {len(shares)}",
            )


def _table_4_rows(options: PerseusOptions, workload: PerseusWorkload) -> Iterator[Row]:
    costs = costed(workload, options.data)
    found, published = tuned(costs, SLOWDOWNS), SAVINGS["4", workload.gpu, workload.model]
    look: dict[str, Any] = {"digits": 1, "note": costs.note, "claim": costs.claim}
    for slowdown, perseus, envpipe in zip(SLOWDOWNS, published.perseus, published.envpipe, strict=True):
        ours = found.saving_percent(slowdown), found.percent(found.envpipe, slowdown)
        for name, value, paper in zip((OURS, ENVPIPE), ours, (perseus, envpipe), strict=True):
            label = f"{workload.title}, straggler {slowdown:g}, {name}"
            yield Row(label, SAVING, value, paper, series=name, at=slowdown, **look)


def _table_4_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ours, theirs = (
        [numbers(each) for each in grouped(rows_with(rows, series=name)).values()] for name in (OURS, ENVPIPE)
    )
    more = [a > b for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True)]
    yield in_all("the frontier saves more than EnvPipe next to every straggler", more, "cells")
    peaks = [SLOWDOWNS[curve.index(max(curve))] for curve in ours]
    yield Trend(
        "its savings rise with the straggler's time and then wane slowly",
        all(_rises_then_falls(curve) for curve in ours),
        f"most is saved at slowdowns of {min(peaks):g} to {max(peaks):g}",
    )
    yield in_all("EnvPipe's savings only wane", [falls(curve) for curve in theirs], "workloads")


def _rises_then_falls(curve: Sequence[float]) -> bool:
    peak = curve.index(max(curve))
    return falls(curve[peak:]) and falls(curve[peak::-1])


TABLE_3, TABLE_4 = (
    described(f"perseus_table{number}", _BY_CASE, make, conclude, small=PerseusOptions(("a100_bert_huge",)))
    for number, make, conclude in ((3, _table_3_rows, _table_3_trends), (4, _table_4_rows, _table_4_trends))
)

ITEMS = (TABLE_3, TABLE_4)
