"""The task of `experiments.bubble_by_in_flight`: the bubble by micro-batches in flight."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from experiments.config.options import read_record
from experiments.config.records import SweepOptions
from experiments.figures.sweep import (
    Found,
    Row,
    bubble_rate_at,
    check_sweep_options,
    remembered_rows,
    run_sweep,
    save_curves,
    tessel_row,
    to_table,
)
from experiments.steps.schedule_finding import cache_directory
from experiments.steps.search_step import output_directory
from placements.shapes import SHAPES
from schedsearch.modulo.period_by_in_flight import in_flight_as_memory, period_by_in_flight
from schedsearch.modulo.result import Status
from schedsearch.modulo.search import search
from schedsearch.tessel import tessel

log = logging.getLogger(__name__)

NAME = "bubble_by_in_flight"
"""Of the command, its config and its files."""

TESSEL, OURS = "Tessel", "ours, 1 micro-batch per repetend"
"""Two of the curves."""

MOST_MICRO_BATCHES = 3
"""Micro-batches per repetend of the third curve."""

OURS_SEVERAL = f"ours, 1 to {MOST_MICRO_BATCHES} micro-batches per repetend"
"""The third curve, where micro-batches in flight are counted over all time."""

MORE_THAN_DEVICES = 3
"""Micro-batches in flight that are tried beyond the number of devices: Tessel's placements need up to two."""


def task(config: DictConfig) -> None:
    """Search, and save as CSV, PNG and SVG."""
    options = read_record(config, SweepOptions)
    check_sweep_options(options)
    directory = output_directory()
    most = options.most_in_flight or options.num_devices + MORE_THAN_DEVICES
    cache = cache_directory(options.cache_dir)
    cases = [Case(shape, most, options) for shape in options.shapes]
    curves = (tessel_search, own_search, several_search)
    searches = [partial(curve, case, cache) for curve in curves for case in cases]
    rows = run_sweep(NAME, searches, options, directory / f"{NAME}.csv")
    log.info("%s", to_table(rows, "in_flight"))
    save_curves(
        rows,
        "in_flight",
        "micro-batches in flight (Tessel's N_R)",
        f"Bubble by micro-batches in flight, {options.num_devices} devices, any memory (Tessel, Fig. 11)",
        directory / NAME,
    )
    log.info("figure in %s, rows in %s", directory / f"{NAME}.png", directory / f"{NAME}.csv")


@dataclass(frozen=True)
class Case:
    """One placement of the figure.

    Attributes:
        shape: Of the placement.
        most_in_flight: Where its curves end.
        options: Limits and seed.
    """

    shape: str
    most_in_flight: int
    options: SweepOptions

    def key(self, time_limit_s: float) -> dict[str, object]:
        """Return all that a search of the case depends on."""
        options = self.options
        return {
            "figure": NAME,
            "shape": self.shape,
            "num_devices": options.num_devices,
            "most_in_flight": self.most_in_flight,
            "time_limit_s": time_limit_s,
            "solver": options.solver,
            "seed": options.seed,
        }


def tessel_search(case: Case, cache: Path | None) -> Found:
    """Return Tessel's curve of a placement, which is one search of its: each number comes after the last."""
    key = case.key(case.options.tessel_time_limit_s) | {"searched_by": TESSEL}
    return remembered_rows(cache, key, partial(_by_tessel, case))


def own_search(case: Case, cache: Path | None) -> Found:
    """Return our curve of a placement."""
    key = case.key(case.options.time_limit_s) | {"searched_by": OURS}
    return remembered_rows(cache, key, partial(_by_us, case))


def several_search(case: Case, cache: Path | None) -> Found:
    """Return our curve of a placement for several micro-batches per repetend."""
    key = case.key(case.options.time_limit_s) | {"searched_by": OURS_SEVERAL}
    return remembered_rows(cache, key, partial(_by_us_with_several, case))


def _by_tessel(case: Case) -> Found:
    placement = SHAPES[case.shape](num_devices=case.options.num_devices)
    result = tessel(
        placement,
        case.most_in_flight,
        most_in_flight=case.most_in_flight,
        time_limit_s=case.options.tessel_time_limit_s,
        seed=case.options.seed,
    )
    numbers = range(1, case.most_in_flight + 1)
    rows = tuple(tessel_row(placement, case.shape, number, TESSEL, result) for number in numbers)
    return Found(rows, result.interrupted)


def _by_us(case: Case) -> Found:
    placement = SHAPES[case.shape](num_devices=case.options.num_devices)
    options = case.options
    try:
        found = period_by_in_flight(
            placement,
            case.most_in_flight,
            solver=options.solver,
            time_limit_s=options.time_limit_s / case.most_in_flight,
            seed=options.seed,
        )
    except KeyboardInterrupt:
        return Found((), interrupted=True)
    return Found(
        tuple(
            Row(
                shape=case.shape,
                num_devices=placement.num_devices,
                memory=None,
                in_flight=each.in_flight,
                searched_by=OURS,
                micro_batches=1 if each.repetend else None,
                period=each.repetend.period if each.repetend else None,
                bubble_rate=each.repetend.bubble_rate if each.repetend else None,
                least_bubble_rate=bubble_rate_at(placement, each.bound),
                decided=each.repetend is not None and each.repetend.period <= each.bound,
                seconds=each.seconds,
            )
            for each in found
        )
    )


def _by_us_with_several(case: Case) -> Found:
    """Search with room for one micro-batch in flight, then for two, until there is no bubble."""
    placement, options = SHAPES[case.shape](num_devices=case.options.num_devices), case.options
    rows: list[Row] = []
    for in_flight in range(1, case.most_in_flight + 1):
        limited = in_flight_as_memory(placement, in_flight)
        if limited is None:
            break
        result = search(
            limited,
            1,
            most_micro_batches_per_repetend=MOST_MICRO_BATCHES,
            objectives=("period",),
            solver=options.solver,
            time_limit_s=options.time_limit_s / case.most_in_flight,
            polish_time_limit_s=0.0,
            seed=options.seed,
        )
        repetend = result.repetend
        rows.append(
            Row(
                shape=case.shape,
                num_devices=placement.num_devices,
                memory=None,
                in_flight=in_flight,
                searched_by=OURS_SEVERAL,
                micro_batches=repetend.micro_batches if repetend else None,
                period=repetend.period if repetend else None,
                bubble_rate=repetend.bubble_rate if repetend else None,
                least_bubble_rate=bubble_rate_at(placement, result.period_bound),
                decided=result.status is Status.OPTIMAL,
                seconds=result.seconds,
            )
        )
        if result.interrupted:
            return Found(tuple(rows), interrupted=True)
    return Found(tuple(rows))
