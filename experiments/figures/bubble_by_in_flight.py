"""The task of `experiments.bubble_by_in_flight`: the bubble by micro-batches in flight."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from experiments.config.options import read_record
from experiments.figures.cases import (
    FigureCase,
    SteadyStateRow,
    ours,
    placement_of,
    remembered_rows,
    tessel_row,
)
from experiments.figures.options import SweepOptions
from experiments.figures.pool import SweepAnswer
from experiments.figures.sweep import check_sweep_options, draw_sweep
from experiments.search.schedule_finding import cache_directory
from schedsearch.modulo.period_by_in_flight import in_flight_as_memory, period_by_in_flight

NAME = "bubble_by_in_flight"
"""Name of the command, its config and its files."""

TESSEL = "Tessel"
"""The first curve; the others are `ours` with 1 and with `MAX_MICRO_BATCHES`."""

MAX_MICRO_BATCHES = 3
"""Micro-batches per repetend of the third curve, where those in flight are counted over all time."""

TESSEL_S = 90.0
"""Time limit of Tessel's search, for each shape."""

MORE_THAN_DEVICES = 3
"""Micro-batches in flight that are tried beyond the number of devices: Tessel's placements need up to two."""


def task(config: DictConfig) -> None:
    """Search, and save as CSV, PNG and SVG."""
    options = read_record(config, SweepOptions)
    check_sweep_options(options)
    if options.tessel_time_limit_s is None and options.stages is None:
        options = replace(options, tessel_time_limit_s=TESSEL_S)
    num_devices = placement_of(options.shapes[0], options).num_devices
    most = options.max_in_flight or num_devices + MORE_THAN_DEVICES
    cache = cache_directory(options.cache_dir)
    cases = [FigureCase(NAME, shape, most, options) for shape in options.shapes]
    curves = (tessel_search, own_search, several_search)[options.tessel_time_limit_s is None :]
    draw_sweep(
        NAME,
        [partial(curve, case, cache) for curve in curves for case in cases],
        options,
        "in_flight",
        "micro-batches in flight (Tessel's N_R)",
        "Bubble by micro-batches in flight with any memory",
        "Tessel, Fig. 11",
    )


def tessel_search(case: FigureCase, cache: Path | None) -> SweepAnswer[SteadyStateRow]:
    """Return Tessel's curve of a placement."""
    limit_s = case.options.tessel_time_limit_s or 0.0
    return remembered_rows(cache, case, TESSEL, limit_s, partial(_by_tessel, case))


def own_search(case: FigureCase, cache: Path | None) -> SweepAnswer[SteadyStateRow]:
    """Return our curve of a placement."""
    return remembered_rows(cache, case, ours(1), case.options.work_limit, partial(_by_us, case))


def several_search(case: FigureCase, cache: Path | None) -> SweepAnswer[SteadyStateRow]:
    """Return our curve of a placement for several micro-batches per repetend."""
    name, limit = ours(MAX_MICRO_BATCHES), case.options.work_limit
    return remembered_rows(cache, case, name, limit, partial(_by_us_with_several, case))


def _by_tessel(case: FigureCase) -> SweepAnswer[SteadyStateRow]:
    result = case.by_tessel()
    numbers = range(1, case.max_in_flight + 1)
    return SweepAnswer(
        tuple(tessel_row(case, TESSEL, number, result) for number in numbers), result.interrupted
    )


def _by_us(case: FigureCase) -> SweepAnswer[SteadyStateRow]:
    """Search with one micro-batch per repetend."""
    options = case.options
    try:
        found = period_by_in_flight(
            case.placement,
            case.max_in_flight,
            solver=options.solver,
            work_limit=options.work_limit / case.max_in_flight,
            seed=options.seed,
        )
    except KeyboardInterrupt:
        return SweepAnswer((), interrupted=True)
    return SweepAnswer(
        tuple(
            case.row(
                ours(1),
                each.in_flight,
                each.repetend,
                each.bound,
                each.repetend is not None and each.repetend.period <= each.bound,
                each.seconds,
            )
            for each in found
        )
    )


def _by_us_with_several(case: FigureCase) -> SweepAnswer[SteadyStateRow]:
    """Search with room for one micro-batch in flight, then for two, until there is no bubble."""
    rows: list[SteadyStateRow] = []
    for in_flight in range(1, case.max_in_flight + 1):
        limited = in_flight_as_memory(case.placement, in_flight)
        if limited is None:
            break
        result = case.by_us(limited, MAX_MICRO_BATCHES, 1 / case.max_in_flight)
        rows.append(case.row_of(ours(MAX_MICRO_BATCHES), in_flight, result))
        if result.interrupted:
            return SweepAnswer(tuple(rows), interrupted=True)
    return SweepAnswer(tuple(rows))
