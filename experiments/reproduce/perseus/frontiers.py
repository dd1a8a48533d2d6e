"""Fig. 9, 11 and 12: iteration time and energy of our frontier, ZeusGlobal and ZeusPerStage.

Ours are simulated; what the authors measured on GPUs stands beside them where a folder has it. All of it is
drawn over the iteration with all blocks at their highest clocks, simulated or measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.perseus.authors_results import measured_frontier, measured_zeus
from experiments.reproduce.perseus.savings import OURS
from experiments.reproduce.perseus.workloads import (
    WORKLOADS,
    PerseusOptions,
    Workload,
    costed,
    data_folder,
)
from experiments.reproduce.rows import grouped, in_all, rows_with, span
from schedsearch.energy import compute_frontier
from schedsearch.energy.baselines import compute_baselines
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

NUM_PLANS = 30
ZEUS = {"zeus_global": "ZeusGlobal", "zeus_per_stage": "ZeusPerStage"}
ALL_MAXIMUM = "all at the highest clocks"
TIME, ENERGY = "time_s", "energy_j"
PERSEUS, MEASURED = "Perseus", "measured "
"""A measured curve, and what stands before the names of all of them."""

LATEST = 1.6
"""Times over that of the highest clocks that are drawn; Zeus's lowest power limits are later."""


def _rows(options: PerseusOptions, workload: Workload) -> Iterator[Row]:
    folder = data_folder(options.data)
    costs = costed(workload, folder)
    zeus = compute_baselines(list(ZEUS), costs.schedule, costs.profile)
    deadlines = sorted({plan.time_ms for plans in zeus.values() for plan in plans})
    frontier = compute_frontier(costs.schedule, costs.profile, NUM_PLANS, deadlines)
    curves = {ALL_MAXIMUM: (frontier.all_maximum,), OURS: frontier.plans}
    curves |= {ZEUS[method]: plans for method, plans in zeus.items()}
    for name, plans in curves.items():
        for number, plan in enumerate(plans):
            label = name if name == ALL_MAXIMUM else f"{name}, plan {number}"
            for metric, value in ((TIME, plan.time_ms / 1e3), (ENERGY, plan.energy_mj / 1e3)):
                yield Row(label, metric, value, note=costs.note, series=name, at=number)
    if folder is not None:
        yield from _measured_rows(folder, workload)


def _measured_rows(folder: Path, workload: Workload) -> Iterator[Row]:
    """Yield measured iterations; ZeusGlobal's highest power limit leaves all clocks at the highest."""
    note = "measured on GPUs by the authors, from their files"
    curves = {PERSEUS: measured_frontier(folder, workload), **measured_zeus(folder, workload)}
    curves[ALL_MAXIMUM] = curves["ZeusGlobal"][:1]
    for name, iterations in curves.items():
        series = f"{MEASURED}{name}"
        for number, measured in enumerate(iterations):
            label = f"{series}, plan {number}"
            for metric, value in ((TIME, measured.time), (ENERGY, measured.energy)):
                yield Row(label, metric, None, value, 3, note=note, series=series, at=number)


def curve_of(rows: Sequence[Row], case: str, series: str) -> list[tuple[float, float]]:
    """Return a case's points of a curve: seconds and joules, by increasing time."""
    group = rows_with(rows, case=case, series=series)
    times_s, energies_j = (
        [row.published if row.ours is None else row.ours for row in rows_with(group, metric=metric)]
        for metric in (TIME, ENERGY)
    )
    return sorted((t, e) for t, e in zip(times_s, energies_j, strict=True) if t is not None and e is not None)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    dominated = []
    for case, group in grouped(rows).items():
        ours = curve_of(group, case, OURS)
        for time_s, energy_j in (point for name in ZEUS.values() for point in curve_of(group, case, name)):
            in_time = [energy for time, energy in ours if time <= time_s * (1 + 1e-9)]
            dominated.append(bool(in_time) and min(in_time) <= energy_j * (1 + 1e-3))
    says = "no plan of ZeusGlobal and ZeusPerStage is below the frontier"
    yield in_all(says, dominated, "plans need as much energy as ours in their time, or more", start="")
    errors = []
    for case, group in grouped(rows).items():
        measured = curve_of(group, case, f"{MEASURED}{ALL_MAXIMUM}")
        if measured and WORKLOADS[case].profile:
            errors.append(100 * (measured[0][0] / curve_of(group, case, ALL_MAXIMUM)[0][0] - 1))
    if errors:
        yield Trend(
            "measured iterations are somewhat longer than simulated ones, which have no transfers",
            min(errors) > 0 and max(errors) < 15,
            f"{span(errors, '.1f', ' %')} at the highest clocks, of the "
            f"{len(errors)} workloads whose profile is measured",
        )


def _draw(rows: Sequence[Row]) -> Any:
    panels = []
    for case, group in grouped(rows).items():
        drawn: dict[str, list[CurvePoint]] = {}
        for start, first in (("", OURS), (MEASURED, PERSEUS)):
            for time_s, energy_j in curve_of(group, case, f"{start}{ALL_MAXIMUM}"):
                for series in (f"{start}{name}" for name in (first, *ZEUS.values())):
                    points = [
                        CurvePoint(time / time_s, energy / energy_j)
                        for time, energy in curve_of(group, case, series)
                        if time <= LATEST * time_s
                    ]
                    if points:
                        drawn[series] = points
        panels.append(Panel(WORKLOADS[case].title, drawn))
    return draw_panels(panels, "time / time at the highest clocks", "energy / the same", "Time and energy")


ITEMS = tuple(
    described(
        f"perseus_figure{number}",
        {case: workload for case, workload in WORKLOADS.items() if workload.figure == number},
        _rows,
        _trends,
        _draw,
        PerseusOptions((small,)),
    )
    for number, small in ((9, "a100_gpt3_1.3b"), (11, "a40_bert_huge"), (12, "a100_bert_huge"))
)
