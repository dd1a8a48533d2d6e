"""Tables 3, 4 and 6: energy saved in the time of the highest clocks, and next to stragglers.

Every saving is a share of the energy of all blocks at their highest clocks, over an equal time. Plans have
real clocks and are simulated with the times of the profile; the paper ran those of Tables 3 and 4 on GPUs.
Published savings are in ``savings.csv``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

from experiments.config.options import OptionError
from experiments.reproduce.item import DataOptions, Row, Trend, described
from experiments.reproduce.perseus.workloads import (
    EMULATED,
    EXPERIMENTS,
    WORKLOADS,
    Costed,
    Workload,
    costed,
    data_folder,
)
from experiments.reproduce.rows import (
    falls,
    grouped,
    in_all,
    numbers,
    published_table,
    rows_with,
    span,
    value_of,
)
from placements.forms.meaning import Meaning
from placements.forms.tables import csv_records
from schedsearch.energy import (
    FrequencyPlan,
    Frontier,
    all_maximum_clocks,
    compute_frontier,
    simulate_at_clocks,
)
from schedsearch.energy.baselines import compute_baselines, perseus_frontier

NUM_PLANS = 50
"""Deadlines of a frontier, besides those of stragglers."""

OURS, ENVPIPE, BOUND, PERSEUS = "our frontier", "EnvPipe", "at most possible", "Perseus's algorithm"
"""Methods. Ours stands where the paper has Perseus."""

SAVING, REALISED_SHARE, ENERGY = "saving_percent", "realised_percent", "energy_j"
"""Metrics; the second is the saving over that of all blocks at their clocks of least energy (Sec. 6.2.3)."""

REALISED = {"a100": 74.0, "a40": 89.0}
"""Mean percent of the largest possible savings that Perseus has without stragglers (Sec. 6.2.3)."""

TABLE_4_SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
"""Slowdowns of the stragglers: T' over T."""

MICRO_BATCHES = (12, 24, 48, 96)
"""Micro-batches of a pipeline in the emulation (Table 5)."""

UNIT_MS = 10.0
"""Unit of Perseus's algorithm, at full scale: a thousandth of the shortest iterations."""

MAX_FOR_PERSEUS = 12
"""Micro-batches; with more, Perseus's algorithm takes minutes."""


ENVPIPE_FILE = Path("published", "envpipe_result.csv")
"""EnvPipe's points of the emulation, in the folder of the authors' data."""


class PublishedSavings(NamedTuple):
    """Percent of energy saved by Perseus and by EnvPipe, a row of ``savings.csv``.

    In Table 4 there is a value for each of `TABLE_4_SLOWDOWNS`, in Table 6 one of Perseus for each number of
    `MICRO_BATCHES`.
    """

    table: str
    gpu: str
    model: str
    perseus: tuple[float, ...]
    envpipe: tuple[float, ...] = ()


SAVINGS = {row[:3]: row for row in published_table(__file__, "savings.csv", PublishedSavings)}


class _EnvPipeIteration(NamedTuple):
    energy: Annotated[float, Meaning("energy of all GPUs", "J", above=0)]


def envpipe_energy_j(folder: Path, workload: Workload, num_micro_batches: int) -> float | None:
    """Return the energy of EnvPipe's iteration in the emulation; None where it is not in the folder.

    Raises:
        OptionError: The file is wrong.
    """
    path = folder / ENVPIPE_FILE
    if not path.is_file():
        return None
    only = {
        "model": [workload.authors_model],
        "device": [{"a100": "a100_sxm", "a40": "a40"}[workload.gpu]],
        "num_microbatches": [str(num_micro_batches)],
    }
    iterations = csv_records(path, "iteration", OptionError, _EnvPipeIteration, others=True, only=only)
    return iterations[0][1].energy if iterations else None


def tuned(costs: Costed, slowdowns: Sequence[float] = ()) -> tuple[Frontier, FrequencyPlan]:
    """Return the frontier of a workload, with plans for some stragglers, and EnvPipe's plan."""
    schedule, profile = costs.schedule, costs.profile
    longest_ms = simulate_at_clocks(schedule, profile, all_maximum_clocks(schedule, profile)).time_ms
    frontier = compute_frontier(
        schedule, profile, NUM_PLANS, [slowdown * longest_ms for slowdown in slowdowns]
    )
    envpipe = compute_baselines(["envpipe"], schedule, profile, bound=frontier.relaxed)["envpipe"]
    return frontier, envpipe[0]


def _saved_percent(frontier: Frontier, plan: FrequencyPlan, slowdown: float = 1.0) -> float:
    """Return a plan's saving next to a straggler of a slowdown, 1 for none."""
    return 100 * frontier.saving(plan, slowdown * frontier.all_maximum.time_ms)


def _table_3_rows(options: DataOptions, workload: Workload) -> Iterator[Row]:
    costs = costed(workload, options.data)
    frontier, envpipe = tuned(costs)
    longest_ms, last = frontier.all_maximum.time_ms, frontier.plans[-1]
    saved, published = _saved_percent(frontier, frontier.shortest), SAVINGS["3", workload.gpu, workload.model]
    for name, ours, paper in (
        (OURS, saved, published.perseus[0]),
        (ENVPIPE, _saved_percent(frontier, envpipe), published.envpipe[0]),
    ):
        yield Row(name, SAVING, ours, paper, 1, note=costs.note, claim=costs.claim, series=name)
    share = saved / _saved_percent(frontier, last, last.time_ms / longest_ms)
    yield Row(OURS, REALISED_SHARE, 100 * share, series=OURS)


def _table_3_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value = value_of(rows, "series", "metric", "case")
    cases = list(grouped(rows))
    saved = [value[OURS, SAVING, case] for case in cases]
    yield Trend("the shortest plans save energy", min(saved) > 0, span(saved, ".1f", " %"))
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
        shares = [value[OURS, REALISED_SHARE, case] for case in cases if WORKLOADS[case].gpu == gpu]
        if shares:
            yield Trend(
                f"without stragglers most of what is possible is saved on {gpu.upper()} "
                f"({published:.0f} % on average)",
                fmean(shares) > 50,
                f"{fmean(shares):.0f} % on average of {len(shares)}",
            )


def _table_4_rows(options: DataOptions, workload: Workload) -> Iterator[Row]:
    costs, slowdowns = costed(workload, options.data), TABLE_4_SLOWDOWNS
    (frontier, envpipe), published = tuned(costs, slowdowns), SAVINGS["4", workload.gpu, workload.model]
    look: dict[str, Any] = {"digits": 1, "note": costs.note, "claim": costs.claim}
    for slowdown, *papers in zip(slowdowns, published.perseus, published.envpipe, strict=True):
        plans = frontier.at(slowdown * frontier.all_maximum.time_ms), envpipe
        for name, plan, paper in zip((OURS, ENVPIPE), plans, papers, strict=True):
            label = f"straggler {slowdown:g}, {name}"
            saved = _saved_percent(frontier, plan, slowdown)
            yield Row(label, SAVING, saved, paper, series=name, at=slowdown, **look)


def _table_4_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ours, theirs = (
        [numbers(group) for group in grouped(rows_with(rows, series=name)).values()]
        for name in (OURS, ENVPIPE)
    )
    more = [a > b for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True)]
    yield in_all("the frontier saves more than EnvPipe next to every straggler", more, "cells")
    peaks = [curve.index(max(curve)) for curve in ours]
    first, last = TABLE_4_SLOWDOWNS[min(peaks)], TABLE_4_SLOWDOWNS[max(peaks)]
    yield Trend(
        "its savings rise with the straggler's time and then wane slowly",
        all(falls(curve[peak:]) and falls(curve[peak::-1]) for curve, peak in zip(ours, peaks, strict=True)),
        f"most is saved at slowdowns of {first:g} to {last:g}",
    )
    yield in_all("EnvPipe's savings only wane", [falls(curve) for curve in theirs], "workloads")


_TABLE_6_CASES = {
    f"{case}_{count}": (workload, count) for case, workload in EMULATED.items() for count in MICRO_BATCHES
}


def _table_6_rows(options: DataOptions, case: tuple[Workload, int]) -> Iterator[Row]:
    (workload, count), folder = case, data_folder(options.data)
    costs = costed(workload, folder, count)
    frontier, envpipe = tuned(costs)
    assert frontier.relaxed is not None, "computed, and not read from a file"
    published = SAVINGS["6", workload.gpu, workload.model].perseus[MICRO_BATCHES.index(count)]

    def row(
        method: str, ours: float, paper: float | None = None, note: str = "", metric: str = SAVING
    ) -> Row:
        digits, claim = 2 if metric == SAVING else 0, None if paper is None else costs.claim
        return Row(method, metric, ours, paper, digits, note=note, claim=claim, series=method, at=count)

    yield row(OURS, _saved_percent(frontier, frontier.shortest), published, costs.note)
    bound = 1 - frontier.relaxed.at(frontier.all_maximum.time_ms) / frontier.all_maximum.energy_mj
    yield row(BOUND, 100 * bound, note="upper bound")
    if count <= MAX_FOR_PERSEUS:
        plan = perseus_frontier(costs.schedule, costs.profile, UNIT_MS).shortest
        note = f"in steps of {UNIT_MS:g} ms"
        yield row(PERSEUS, _saved_percent(frontier, plan), published, note)
    yield row(ENVPIPE, _saved_percent(frontier, envpipe))
    if folder is not None and (energy_j := envpipe_energy_j(folder, workload, count)):
        yield row(ENVPIPE, envpipe.energy_mj / 1e3, energy_j, costs.note, ENERGY)


def _table_6_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    saved = value_of(rows_with(rows, metric=SAVING), "series", "case")
    ours = rows_with(rows, metric=SAVING, series=OURS)
    by_workload = grouped(ours, lambda row: _TABLE_6_CASES[row.case][0].case)
    falling = [falls(numbers(curve)) for curve in by_workload.values()]
    yield in_all("more micro-batches save less", falling, "models and GPUs")
    better = [saved[OURS, case] >= saved[ENVPIPE, case] for case in grouped(rows)]
    yield in_all("EnvPipe saves less", better, "cases")


_SMALL, _SMALL_6 = DataOptions(("a100_bert_huge",)), DataOptions(("a100_gpt3_175b_12",))

ITEMS = (
    described("perseus_table3", EXPERIMENTS, _table_3_rows, _table_3_trends, small=_SMALL),
    described("perseus_table4", EXPERIMENTS, _table_4_rows, _table_4_trends, small=_SMALL),
    described("perseus_table6", _TABLE_6_CASES, _table_6_rows, _table_6_trends, small=_SMALL_6),
)
