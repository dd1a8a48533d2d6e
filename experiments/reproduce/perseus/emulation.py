"""The emulation: Table 6, and Fig. 7 and 8, which have stragglers too (Perseus, Sec. 6.3).

GPT-3 175B has measured profiles of its stages; Bloom 176B has none here, and is modelled. Every saving is a
share of the energy of all blocks at their highest clocks, over an equal time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.perseus.authors_results import envpipe_iteration, planned_frontier
from experiments.reproduce.perseus.published import NUM_PIPELINES, SAVINGS
from experiments.reproduce.perseus.savings import ENVPIPE, OURS, SAVING, Tuned, tuned
from experiments.reproduce.perseus.workloads import (
    EMULATED,
    PerseusOptions,
    PerseusWorkload,
    by_case,
    costed,
    data_folder,
)
from experiments.reproduce.rows import (
    by_series,
    cases_in,
    curves,
    draw_curves,
    draw_metrics,
    falls,
    grouped,
    in_all,
    numbers,
    rows_with,
    value_of,
)
from schedsearch.energy import FrequencyPlan
from schedsearch.energy.baselines import compute_baselines, perseus_frontier
from schedsearch.energy.frontier import TIME_TOLERANCE

COUNTS = tuple(NUM_PIPELINES)
"""Micro-batches of each pipeline."""

BOUND, PLANNED, PERSEUS = "at most possible", "the authors' file, as planned", "Perseus's algorithm"
ZEUS = {"zeus_global": "ZeusGlobal", "zeus_per_stage": "ZeusPerStage"}
"""Other rows of Table 6, which the paper does not print."""

ENERGY = "energy_j"

UNIT_MS = 10.0
"""Of Perseus's algorithm, at full scale: a thousandth of the shortest iterations."""

MOST_FOR_PERSEUS = 12
"""Micro-batches; with more, Perseus's algorithm takes minutes."""

FIG_7_SLOWDOWN, FIG_7_COUNT = 1.2, 96
"""Of the straggler, and micro-batches: 1024 GPUs."""

FIG_8_SLOWDOWNS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4, 1.45, 1.5)
LONGEST = "longest_over_shortest"
"""T* over T: from there on a later straggler saves nothing more."""

BREAKDOWN = ("EnvPipe, intrinsic", "our frontier, intrinsic", "our frontier, intrinsic and extrinsic")
"""The bars of Fig. 7."""

_BY_CASE = by_case(EMULATED)
_TABLE_6_CASES = {f"{case}_{count}": (each, count) for case, each in _BY_CASE.items() for count in COUNTS}


def _table_6_rows(options: PerseusOptions, case: tuple[PerseusWorkload, int]) -> Iterator[Row]:
    (workload, count), folder = case, data_folder(options.data)
    costs = costed(workload, folder, count)
    found = tuned(costs)
    frontier, all_maximum = found.frontier, found.frontier.all_maximum
    assert frontier.relaxed is not None, "computed, and not read from a file"
    published = SAVINGS["6", workload.gpu, workload.model].perseus[COUNTS.index(count)]

    def row(method: str, ours: float, published: float | None = None, note: str = "") -> Row:
        label = f"{workload.title}, {count} micro-batches, {method}"
        claim = None if published is None else costs.claim
        return Row(label, SAVING, ours, published, 2, note=note, claim=claim, series=method, at=count)

    yield row(OURS, found.percent(frontier.shortest), published, costs.note)
    bound = 1 - frontier.relaxed.at(all_maximum.time_ms) / all_maximum.energy_mj
    yield row(BOUND, 100 * bound, note="no plan of that time saves more")
    if count <= MOST_FOR_PERSEUS:
        plan = perseus_frontier(costs.schedule, costs.profile, UNIT_MS).shortest
        note = f"as printed, in steps of {UNIT_MS:g} ms, its clocks simulated"
        yield row(PERSEUS, found.percent(plan), published, note)
    yield row(ENVPIPE, found.percent(found.envpipe))
    baselines = compute_baselines(list(ZEUS), costs.schedule, costs.profile, bound=frontier.relaxed)
    for method, plans in baselines.items():
        note = "the best of its plans that are no later than all blocks at their highest clocks"
        yield row(ZEUS[method], _most_saved(found, plans), note=note)
    if folder is not None and (envpipe := envpipe_iteration(folder, workload, count)):
        yield Row(
            f"{workload.title}, {count} micro-batches, {ENVPIPE}",
            ENERGY,
            found.envpipe.energy_mj / 1e3,
            envpipe.energy_j,
            0,
            note="published in the authors' file of results",
            claim=costs.claim,
        )
    planned = planned_frontier(folder, workload, count) if folder and costs.is_measured else []
    for shortest in planned[:1]:
        energy_mj = shortest.energy_j * workload.profile_scale * workload.tensor_parallel * 1e3
        short = 1 - shortest.time_s * workload.profile_scale * 1e3 / found.longest_ms
        note = f"times rounded down: an iteration {100 * short:.1f} % shorter than its clocks reach"
        yield row(PLANNED, 100 * (1 - energy_mj / all_maximum.energy_mj), published, note)


def _most_saved(found: Tuned, plans: Sequence[FrequencyPlan]) -> float:
    in_time = [plan for plan in plans if plan.time_ms <= found.longest_ms * (1 + TIME_TOLERANCE)]
    return max((found.percent(plan) for plan in in_time), default=0.0)


def _table_6_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    saved = value_of(rows_with(rows, metric=SAVING), "series", "case")
    by_workload: dict[str, list[float]] = {}
    for case in cases_in(rows):
        workload, _ = _TABLE_6_CASES[case]
        by_workload.setdefault(workload.case, []).append(saved[OURS, case])
    falling = [falls(curve) for curve in by_workload.values()]
    yield in_all("more micro-batches save less", falling, "models and GPUs", start="for ")
    better = [saved[OURS, case] >= saved[ENVPIPE, case] for case in cases_in(rows)]
    yield in_all("EnvPipe saves less", better, "cases")


def _figure_7_rows(options: PerseusOptions, workload: PerseusWorkload) -> Iterator[Row]:
    costs = costed(workload, options.data, FIG_7_COUNT)
    found = tuned(costs, [FIG_7_SLOWDOWN])
    values = (
        found.percent(found.envpipe, FIG_7_SLOWDOWN),
        found.percent(found.frontier.shortest, FIG_7_SLOWDOWN),
        found.saving_percent(FIG_7_SLOWDOWN),
    )
    for name, value in zip(BREAKDOWN, values, strict=True):
        yield Row(f"{workload.title}, {name}", SAVING, value, digits=2, note=costs.note, series=name)


def _figure_7_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    found = [numbers(own) for own in grouped(rows).values()]
    yield Trend(
        "EnvPipe saves less than our intrinsic part, and that less than both parts",
        all(envpipe < intrinsic < both for envpipe, intrinsic, both in found),
        f"for all of {len(found)} models and GPUs",
    )
    most = max(numbers(rows))
    yield Trend("both parts together save up to 30 %", 25 <= most <= 35, f"{most:.1f} % at most")


def _title(row: Row) -> str:
    return _BY_CASE[row.case].title


def _draw_figure_7(rows: Sequence[Row]) -> Any:
    title = f"straggler of slowdown {FIG_7_SLOWDOWN:g}, {FIG_7_COUNT} micro-batches"
    return draw_metrics(rows, "energy saved (%)", {SAVING: title}, _title, by_series, width=7.5)


def _figure_8_rows(options: PerseusOptions, workload: PerseusWorkload) -> Iterator[Row]:
    for count in COUNTS:
        costs = costed(workload, options.data, count)
        found, name = tuned(costs, FIG_8_SLOWDOWNS), _pipelines(count)
        for slowdown in FIG_8_SLOWDOWNS:
            ours, label = found.saving_percent(slowdown), f"{name}, straggler {slowdown:g}"
            yield Row(label, SAVING, ours, digits=2, series=name, at=slowdown)
        longest = found.frontier.plans[-1].time_ms / found.longest_ms
        yield Row(name, LONGEST, longest, digits=3, note=costs.note, series=name)


def _pipelines(count: int) -> str:
    return f"{NUM_PIPELINES[count]} pipelines"


def _figure_8_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    longest = value_of(rows_with(rows, metric=LONGEST), "case", "series")
    found = {
        (case, name): {point.place: point.value for point in curve}
        for case, own in grouped(rows_with(rows, metric=SAVING)).items()
        for name, curve in curves(own).items()
    }
    near = [abs(max(curve, key=curve.__getitem__) - longest[key]) <= 0.1 for key, curve in found.items()]
    yield Trend(
        "savings rise until about T* and wane then",
        sum(near) > len(near) / 2,
        f"the most is saved within 0.1 T of T* in {sum(near)} of {len(near)} curves",
    )
    fewer = [
        falls([found[case, _pipelines(count)][at] for count in reversed(COUNTS)])
        for case in cases_in(rows)
        for at in FIG_8_SLOWDOWNS
        if at >= 1.2
    ]
    yield Trend(
        "more pipelines of fewer micro-batches save a smaller share next to late stragglers",
        all(fewer),
        f"at {sum(fewer)} of {len(fewer)} stragglers of slowdown 1.2 and more",
    )


def _draw_figure_8(rows: Sequence[Row]) -> Any:
    by_count = [row for count in reversed(COUNTS) for row in rows_with(rows, series=_pipelines(count))]
    shown = rows_with(by_count, metric=SAVING)
    labels = "straggler's time / T", "energy saved (%)", "Intrinsic and extrinsic savings"
    return draw_curves(shown, *labels, panel=_title)


TABLE_6_ITEM = described(
    "perseus_table6",
    _TABLE_6_CASES,
    _table_6_rows,
    conclude=_table_6_trends,
    small=PerseusOptions(only=("a100_gpt3_175b_12",)),
)

FIGURE_7_ITEM = described(
    "perseus_figure7",
    _BY_CASE,
    _figure_7_rows,
    conclude=_figure_7_trends,
    draw=_draw_figure_7,
    small=PerseusOptions(only=("a100_gpt3_175b",)),
)

FIGURE_8_ITEM = described(
    "perseus_figure8",
    _BY_CASE,
    _figure_8_rows,
    conclude=_figure_8_trends,
    draw=_draw_figure_8,
    small=PerseusOptions(only=("a100_gpt3_175b",)),
)

ITEMS = (TABLE_6_ITEM, FIGURE_7_ITEM, FIGURE_8_ITEM)
