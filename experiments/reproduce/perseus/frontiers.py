"""Fig. 9, 11 and 12: iteration time and energy of our frontier, ZeusGlobal and ZeusPerStage.

Ours are simulated; what the authors measured on GPUs stands beside them where a folder has it. All of it is
drawn over the iteration with all blocks at their highest clocks, simulated or measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.reproduce.item import Claim, Item, Row, Trend, cases_in
from experiments.reproduce.perseus.authors_results import Iteration, measured_frontier, measured_zeus
from experiments.reproduce.perseus.emulation import ZEUS
from experiments.reproduce.perseus.savings import OURS
from experiments.reproduce.perseus.workloads import (
    EXPERIMENTS,
    INPUTS,
    THREE_D,
    PerseusOptions,
    Workload,
    cases_of,
    costed,
    data_folder,
)
from schedsearch.energy import compute_frontier
from schedsearch.energy.baselines import compute_baselines
from schedsearch.figures.panels import Panel, Point, draw_panels

NUM_PLANS = 30
ALL_MAXIMUM = "all at the highest clocks"
TIME, ENERGY = "time_s", "energy_j"
SIMULATED, MEASURED = "", "measured "
"""What stands before the name of a curve."""

_NUMBER = ", plan "
"""What stands between the name of a curve and the number of its point."""

LATEST = 1.6
"""Times over that of the highest clocks that are drawn; Zeus's lowest power limits are later."""

_FIGURE_9 = (*(each for each in EXPERIMENTS if each.model.startswith("gpt3")), THREE_D)
_OTHERS = tuple(each for each in EXPERIMENTS if not each.model.startswith("gpt3"))
_BY_CASE = {workload.case: workload for workload in (*EXPERIMENTS, THREE_D)}

_MEASURED_NOTE = "measured on GPUs by the authors, from their files"


def _cases(workloads: Sequence[Workload]) -> Callable[[PerseusOptions], list[str]]:
    return lambda options: cases_of(options, [workload.case for workload in workloads])


def _rows(options: PerseusOptions, case: str) -> list[Row]:
    workload, folder = _BY_CASE[case], data_folder(options.data)
    costs = costed(workload, folder)
    zeus = compute_baselines(list(ZEUS), costs.schedule, costs.profile)
    deadlines = sorted({plan.time_ms for plans in zeus.values() for plan in plans})
    frontier = compute_frontier(costs.schedule, costs.profile, NUM_PLANS, deadlines)
    plans = {OURS: frontier.plans, **zeus}
    rows = list(
        _pair(case, ALL_MAXIMUM, frontier.all_maximum.time_ms, frontier.all_maximum.energy_mj, costs.note)
    )
    for method, points in plans.items():
        for number, plan in enumerate(points):
            label = f"{ZEUS.get(method, method)}{_NUMBER}{number}"
            rows += _pair(case, label, plan.time_ms, plan.energy_mj, costs.note)
    if folder is not None:
        rows += _measured_rows(case, measured_frontier(folder, workload), measured_zeus(folder, workload))
    return rows


def _pair(case: str, label: str, time_ms: float, energy_mj: float, note: str) -> Iterator[Row]:
    yield Row(case, label, TIME, time_ms / 1e3, note=note)
    yield Row(case, label, ENERGY, energy_mj / 1e3, note=note)


def _measured_rows(
    case: str, perseus: Sequence[Iteration], zeus: dict[str, list[Iteration]]
) -> Iterator[Row]:
    """Yield what was measured; ZeusGlobal's highest power limit leaves all clocks at the highest."""
    curves = {"Perseus": perseus, **zeus, ALL_MAXIMUM: zeus["ZeusGlobal"][:1]}
    for name, points in curves.items():
        for number, point in enumerate(points):
            for metric, value in ((TIME, point.time_s), (ENERGY, point.energy_j)):
                yield Row(
                    case, f"{MEASURED}{name}{_NUMBER}{number}", metric, None, value, 3, note=_MEASURED_NOTE
                )


def curve_of(rows: Sequence[Row], case: str, label: str) -> list[tuple[float, float]]:
    """Return a case's points of a label: seconds and joules, by increasing time."""
    values = {
        metric: [
            value
            for row in rows
            if (row.case, row.label.partition(_NUMBER)[0], row.metric) == (case, label, metric)
            and (value := row.ours if row.ours is not None else row.published) is not None
        ]
        for metric in (TIME, ENERGY)
    }
    return sorted(zip(values[TIME], values[ENERGY], strict=True))


def _trends(rows: Sequence[Row]) -> list[Trend]:
    """Return whether no plan of Zeus's is as good as the frontier in both time and energy."""
    cases = cases_in(rows)
    dominated = total = 0
    for case in cases:
        ours = curve_of(rows, case, OURS)
        for name in ZEUS.values():
            for time_s, energy_j in curve_of(rows, case, name):
                total += 1
                in_time = [energy for time, energy in ours if time <= time_s * (1 + 1e-9)]
                dominated += bool(in_time) and min(in_time) <= energy_j * (1 + 1e-3)
    trends = [
        Trend(
            "no plan of ZeusGlobal and ZeusPerStage is below the frontier",
            dominated == total,
            f"{dominated} of {total} plans need as much energy as ours in their time, or more",
        )
    ]
    errors = [error for case in cases if (error := _error_of_time(rows, case)) is not None]
    if errors:
        trends.append(
            Trend(
                "measured iterations are somewhat longer than simulated ones, which have no transfers",
                min(errors) > 0 and max(errors) < 0.15,
                f"{100 * min(errors):.1f} to {100 * max(errors):.1f} % at the highest clocks, of the "
                f"{len(errors)} workloads whose profile is measured",
            )
        )
    return trends


def _error_of_time(rows: Sequence[Row], case: str) -> float | None:
    measured = curve_of(rows, case, f"{MEASURED}{ALL_MAXIMUM}")
    if not measured or not any("regressed" in row.note for row in rows if row.case == case):
        return None
    return measured[0][0] / curve_of(rows, case, ALL_MAXIMUM)[0][0] - 1


def _draw(rows: Sequence[Row]) -> Any:
    panels = []
    for case in cases_in(rows):
        curves = {}
        for start in (SIMULATED, MEASURED):
            reference = curve_of(rows, case, f"{start}{ALL_MAXIMUM}")
            for name in (OURS if start == SIMULATED else "Perseus", *ZEUS.values()) if reference else ():
                ((time_s, energy_j),) = reference[:1]
                points = [
                    Point(time / time_s, energy / energy_j)
                    for time, energy in curve_of(rows, case, f"{start}{name}")
                    if time <= LATEST * time_s
                ]
                if points:
                    curves[f"{start}{name}"] = points
        panels.append(Panel(_BY_CASE[case].title, curves))
    return draw_panels(panels, "time / time at the highest clocks", "energy / the same", "Time and energy")


_BECAUSE = (
    "Values of the figure are not in the text. Zeus sets power limits, which stand for clocks here. Measured "
    "points are the authors'; workloads without a measured profile are modelled from their layers."
)


def _item(number: int, title: str, workloads: Sequence[Workload], small: str) -> Item:
    return Item(
        f"perseus_figure{number}",
        f"Perseus, Fig. {number}",
        title,
        Claim.TREND,
        PerseusOptions,
        PerseusOptions(only=(small,)),
        _cases(workloads),
        _rows,
        _trends,
        _draw,
        optional_inputs=INPUTS,
        because=_BECAUSE,
    )


FIGURE_9_ITEM = _item(9, "Frontiers of GPT-3, ours and Zeus's", _FIGURE_9, "a100_gpt3_1.3b")
FIGURE_11_ITEM = _item(
    11,
    "Frontiers of eight stages on A40",
    [each for each in _OTHERS if each.gpu == "a40"],
    "a40_bert_huge",
)
FIGURE_12_ITEM = _item(
    12, "Frontiers of four stages on A100", [each for each in _OTHERS if each.gpu == "a100"], "a100_bert_huge"
)
