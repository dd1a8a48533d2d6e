"""The task of `experiments.bubble_by_memory`: the bubble by memory per device."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from experiments.config.options import OptionError, read_record
from experiments.config.records import MemorySweepOptions
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
from placements import Placement
from placements.shapes import SHAPES
from schedsearch.bounds.memory_need import CapacityError, minimum_memory
from schedsearch.modulo.result import SearchResult, Status
from schedsearch.modulo.search import search
from schedsearch.tessel import tessel
from schedsearch.tessel.candidates import most_in_flight

log = logging.getLogger(__name__)

NAME = "bubble_by_memory"
"""Of the command, its config and its files."""

TESSEL_BY_MEMORY = "Tessel, N_R up to the memory (Alg. 1)"
"""The first curve: as many micro-batches in its repetend as Tessel would try with so much memory."""

MORE_THAN_DEVICES = 2
"""Micro-batches in flight beyond the number of devices that Tessel's placements need for no bubble at all."""


def task(config: DictConfig) -> None:
    """Search, and save as CSV, PNG and SVG."""
    options = read_record(config, MemorySweepOptions)
    check_sweep_options(options)
    if options.most_micro_batches_per_repetend < 1:
        number = options.most_micro_batches_per_repetend
        raise OptionError(f"most_micro_batches_per_repetend: {number} is not at least 1")
    directory, cache = output_directory(), cache_directory(options.cache_dir)
    cases = [Case(shape, memory, options) for shape in options.shapes for memory in memories(shape, options)]
    searches = [partial(tessel_search, case, cache) for case in reversed(cases)]
    for most in sorted({1, options.most_micro_batches_per_repetend}):
        searches += [partial(own_search, case, cache, most) for case in cases]
    rows = run_sweep(NAME, searches, options, directory / f"{NAME}.csv")
    log.info("%s", to_table(rows, "memory"))
    save_curves(
        rows,
        "memory",
        "memory per device (activations of a stage)",
        f"Bubble by memory, {options.num_devices} devices (Tessel, Fig. 12)",
        directory / NAME,
    )
    log.info("figure in %s, rows in %s", directory / f"{NAME}.png", directory / f"{NAME}.csv")


def memories(shape: str, options: MemorySweepOptions) -> list[int]:
    """Return the capacities: those of the options, or from the least to more than enough."""
    if options.memories is not None:
        for memory in options.memories:
            if isinstance(memory, bool) or not isinstance(memory, int) or memory < 0:
                raise OptionError(f"memories: {memory!r} is not a whole number of 0 or more")
        if not options.memories:
            raise OptionError("memories: is empty; give some, or null")
        return sorted(set(options.memories))
    placement = SHAPES[shape](num_devices=options.num_devices)
    least = max(minimum_memory(placement, device) for device in range(placement.num_devices))
    return list(range(least, options.num_devices * 3 // 2 + 1))


@dataclass(frozen=True)
class Case:
    """One placement of the figure with one memory.

    Attributes:
        shape: Of the placement.
        memory: Of each device.
        options: Limits and seed.
    """

    shape: str
    memory: int
    options: MemorySweepOptions

    @property
    def placement(self) -> Placement:
        """What to search for."""
        return SHAPES[self.shape](num_devices=self.options.num_devices).with_memory(self.memory)

    @property
    def most_in_flight(self) -> int:
        """The most micro-batches of Tessel's repetends."""
        return self.options.most_in_flight or self.options.num_devices + MORE_THAN_DEVICES

    def key(self, time_limit_s: float) -> dict[str, object]:
        """Return all that a search of the case depends on."""
        options = self.options
        return {
            "figure": NAME,
            "shape": self.shape,
            "num_devices": options.num_devices,
            "memory": self.memory,
            "most_in_flight": self.most_in_flight,
            "time_limit_s": time_limit_s,
            "solver": options.solver,
            "seed": options.seed,
        }

    def impossible(self, searched_by: str, in_flight: int | None) -> Row:
        """Return the row of a memory that does not hold one micro-batch."""
        return Row(
            shape=self.shape,
            num_devices=self.options.num_devices,
            memory=self.memory,
            in_flight=in_flight,
            searched_by=searched_by,
            micro_batches=None,
            period=None,
            bubble_rate=None,
            least_bubble_rate=1.0,
            decided=True,
            seconds=0.0,
        )


def tessel_in_full(most: int) -> str:
    """Return the name of the curve with as many micro-batches in flight at any memory, as in Fig. 12."""
    return f"Tessel, N_R up to {most} (Fig. 12)"


def ours(most: int) -> str:
    """Return the name of our curve with up to so many micro-batches per repetend."""
    return f"ours, 1 to {most} micro-batches per repetend" if most > 1 else "ours, 1 micro-batch per repetend"


def tessel_search(case: Case, cache: Path | None) -> Found:
    """Return Tessel's two rows, which are one search: repetends of fewer micro-batches come first."""
    key = case.key(case.options.tessel_time_limit_s) | {"searched_by": "tessel"}
    return remembered_rows(cache, key, partial(_by_tessel, case))


def own_search(case: Case, cache: Path | None, most_micro_batches: int) -> Found:
    """Return our row for repetends of up to so many micro-batches."""
    key = case.key(case.options.time_limit_s) | {"searched_by": ours(most_micro_batches)}
    return remembered_rows(cache, key, partial(_by_us, case, most_micro_batches))


def _by_tessel(case: Case) -> Found:
    placement, most = case.placement, case.most_in_flight
    by_memory = min(most, most_in_flight(placement, most))
    curves = [(TESSEL_BY_MEMORY, by_memory), (tessel_in_full(most), most)]
    try:
        result = tessel(
            placement,
            most,
            most_in_flight=most,
            time_limit_s=case.options.tessel_time_limit_s,
            seed=case.options.seed,
        )
    except CapacityError:
        return Found(tuple(case.impossible(name, number) for name, number in curves))
    if result.status is Status.INFEASIBLE:
        return Found(tuple(case.impossible(name, number) for name, number in curves))
    rows = (tessel_row(placement, case.shape, number, name, result) for name, number in curves)
    return Found(tuple(rows), result.interrupted)


def _by_us(case: Case, most_micro_batches: int) -> Found:
    options, name = case.options, ours(most_micro_batches)
    try:
        result = search(
            case.placement,
            1,
            most_micro_batches_per_repetend=most_micro_batches,
            objectives=("period",),
            solver=options.solver,
            time_limit_s=options.time_limit_s,
            polish_time_limit_s=0.0,
            seed=options.seed,
        )
    except CapacityError:
        return Found((case.impossible(name, None),))
    if result.status is Status.INFEASIBLE:
        return Found((case.impossible(name, None),))
    return Found((_own_row(case, name, result),), result.interrupted)


def _own_row(case: Case, name: str, result: SearchResult) -> Row:
    repetend = result.repetend
    return Row(
        shape=case.shape,
        num_devices=case.options.num_devices,
        memory=case.memory,
        in_flight=None,
        searched_by=name,
        micro_batches=repetend.micro_batches if repetend else None,
        period=repetend.period if repetend else None,
        bubble_rate=repetend.bubble_rate if repetend else None,
        least_bubble_rate=bubble_rate_at(case.placement, result.period_bound),
        decided=result.status is Status.OPTIMAL,
        seconds=result.seconds,
    )
