"""The task of `experiments.bubble_by_memory`: the bubble by memory per device."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from experiments.config.options import OptionError, read_record, require, require_least
from experiments.figures.cases import (
    FigureCase,
    SteadyStateRow,
    ours,
    placement_of,
    remembered_rows,
    tessel_row,
)
from experiments.figures.options import MemorySweepOptions
from experiments.figures.pool import SweepAnswer
from experiments.figures.sweep import check_sweep_options, draw_sweep
from experiments.search.schedule_finding import cache_directory
from schedsearch.bounds.memory_need import CapacityError, minimum_memory
from schedsearch.modulo.result import Status
from schedsearch.tessel.candidates import max_in_flight

NAME = "bubble_by_memory"
"""Name of the command, its config and its files."""

TESSEL_BY_MEMORY = "Tessel, N_R up to the memory (Alg. 1)"
"""The first curve: as many micro-batches in its repetend as Tessel would try with so much memory."""

TESSEL_S = 35.0
"""Time limit of Tessel's search, for each shape and memory."""

MORE_THAN_DEVICES = 2
"""Micro-batches in flight beyond the number of devices that Tessel's placements need for no bubble at all."""


def task(config: DictConfig) -> None:
    """Search, and save as CSV, PNG and SVG."""
    options = read_record(config, MemorySweepOptions)
    check_sweep_options(options)
    if options.tessel_time_limit_s is None and options.stages is None:
        options = replace(options, tessel_time_limit_s=TESSEL_S)
    several = options.max_micro_batches_per_repetend
    require_least("max_micro_batches_per_repetend", several, 1)
    cache = cache_directory(options.cache_dir)
    num_devices = placement_of(options.shapes[0], options).num_devices
    most = options.max_in_flight or num_devices + MORE_THAN_DEVICES
    cases = [
        FigureCase(NAME, shape, most, options, memory)
        for shape in options.shapes
        for memory in memories(shape, options)
    ]
    tessel_cases = [] if options.tessel_time_limit_s is None else cases[::-1]
    searches: list[partial[SweepAnswer[SteadyStateRow]]] = [
        partial(tessel_search, case, cache) for case in tessel_cases
    ]
    searches += [
        partial(own_search, case, cache, number) for number in sorted({1, several}) for case in cases
    ]
    draw_sweep(
        NAME,
        searches,
        options,
        "memory",
        f"memory per device ({'activations of a stage' if options.stages is None else 'MiB'})",
        "Bubble by memory",
        "Tessel, Fig. 12",
    )


def memories(shape: str, options: MemorySweepOptions) -> list[float]:
    """Return the capacities: those of the options, or from the least to more than enough."""
    if options.memories is not None:
        for memory in options.memories:
            is_number = type(memory) in ((int,) if options.stages is None else (int, float)) and memory >= 0
            wanted = "a whole number" if options.stages is None else "a number of MiB"
            require(is_number, "memories", memory, f"{wanted} of 0 or more")
        if not options.memories:
            raise OptionError("memories: is empty; give some, or null")
        return sorted(set(options.memories))
    placement = placement_of(shape, options)
    devices = range(placement.num_devices)
    if options.stages is None:
        least = max(minimum_memory(placement, device) for device in devices)
        return [*range(least, placement.num_devices * 3 // 2 + 1)]
    held = [sum(max(block.memory_on(d), 0) for block in placement.on(d)) for d in devices]
    return [
        placement.mib(max(placement.static[d] + number * held[d] for d in devices))
        for number in range(1, placement.num_devices + 2)
    ]


def tessel_in_full(most: int) -> str:
    """Return the name of the curve with as many micro-batches in flight at any memory, as in Fig. 12."""
    return f"Tessel, N_R up to {most} (Fig. 12)"


def tessel_search(case: FigureCase, cache: Path | None) -> SweepAnswer[SteadyStateRow]:
    """Return Tessel's two rows, which are one search: repetends of fewer micro-batches come first."""
    limit_s = case.options.tessel_time_limit_s or 0.0
    return remembered_rows(cache, case, "tessel", limit_s, partial(_by_tessel, case))


def own_search(case: FigureCase, cache: Path | None, max_micro_batches: int) -> SweepAnswer[SteadyStateRow]:
    """Return our row for repetends of up to so many micro-batches."""
    name, limit = ours(max_micro_batches), case.options.work_limit
    return remembered_rows(cache, case, name, limit, partial(_by_us, case, max_micro_batches))


def _by_tessel(case: FigureCase) -> SweepAnswer[SteadyStateRow]:
    most = case.max_in_flight
    by_memory = min(most, max_in_flight(case.placement, most))
    curves = [(TESSEL_BY_MEMORY, by_memory), (tessel_in_full(most), most)]
    impossible = SweepAnswer(tuple(case.impossible(name, number) for name, number in curves))
    try:
        result = case.by_tessel()
    except CapacityError:
        return impossible
    if result.status is Status.INFEASIBLE:
        return impossible
    rows = (tessel_row(case, name, number, result) for name, number in curves)
    return SweepAnswer(tuple(rows), result.interrupted)


def _by_us(case: FigureCase, max_micro_batches: int) -> SweepAnswer[SteadyStateRow]:
    name = ours(max_micro_batches)
    try:
        result = case.by_us(case.placement, max_micro_batches)
    except CapacityError:
        return SweepAnswer((case.impossible(name, None),))
    if result.status is Status.INFEASIBLE:
        return SweepAnswer((case.impossible(name, None),))
    return SweepAnswer((case.row_of(name, None, result),), result.interrupted)
