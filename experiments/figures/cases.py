"""Placements of which the bubble rate is searched, by Tessel and by us, and what was found of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.figures.options import SweepOptions
from experiments.figures.pool import SweepAnswer
from placements import Placement
from placements.placement_file import placement_to_dict
from placements.shapes import SHAPES
from placements.stages.stage_chain import place
from placements.stages.stage_file import read_stages
from schedsearch.bounds.load_and_path import period_bound
from schedsearch.modulo.result import SearchResult, Status
from schedsearch.modulo.search import search
from schedsearch.repetend import Repetend
from schedsearch.searches.cache import remembered
from schedsearch.tessel import tessel


@dataclass(frozen=True)
class SteadyStateRow:
    """The best steady state that one search found.

    Attributes:
        shape: Name of the placement's shape.
        num_devices: Likewise.
        memory: Capacity of each device; None for no limit.
        in_flight: Micro-batches that a repetend could span; None for any number.
        searched_by: Name of the search.
        micro_batches: Per repetend; None where none was found, as for the next two.
        period: In ticks; of stages in ms.
        bubble_rate: Idle share of the steady state.
        least_bubble_rate: What no repetend of those searched beats.
        decided: Whether that there is no better one of those searched is proved.
        seconds: Wall-clock time of the search.
    """

    shape: str
    num_devices: int
    memory: float | None
    in_flight: int | None
    searched_by: str
    micro_batches: int | None
    period: float | None
    bubble_rate: float | None
    least_bubble_rate: float
    decided: bool
    seconds: float


def placement_of(shape: str, options: SweepOptions) -> Placement:
    """Return a placement of a sweep without a limit on memory: of unit times, or of the user's stages.

    Raises:
        ValueError: The stages are wrong, or do not fit the shape.
    """
    if options.stages is None:
        return SHAPES[shape](num_devices=options.num_devices)
    return place(replace(read_stages(options.stages), memory_mib=None), shape).placement


def _period(repetend: Repetend) -> float:
    placement = repetend.placement
    return repetend.period if placement.memory_unit_mib is None else placement.ms(repetend.period)


@dataclass(frozen=True)
class FigureCase:
    """One placement of a sweep.

    Attributes:
        figure: For which it is searched.
        shape: Name of the placement's shape.
        max_in_flight: Micro-batches of the longest repetend.
        options: Limits, of work for our searches and of seconds for Tessel's, and seed.
        memory: Of each device; None for any.
    """

    figure: str
    shape: str
    max_in_flight: int
    options: SweepOptions
    memory: float | None = None

    @property
    def placement(self) -> Placement:
        """What to search for."""
        placement = placement_of(self.shape, self.options)
        if self.memory is None:
            return placement
        return placement.with_memory(math.floor(self.memory / (placement.memory_unit_mib or 1)))

    def by_tessel(self) -> SearchResult:
        """Return what Tessel's search finds: one for all numbers in flight, as each comes after the last."""
        most, options = self.max_in_flight, self.options
        limit_s = options.tessel_time_limit_s
        assert limit_s is not None, "it is asked for"
        return tessel(self.placement, most, max_in_flight=most, time_limit_s=limit_s, seed=options.seed)

    def by_us(self, placement: Placement, max_micro_batches: int, share: float = 1.0) -> SearchResult:
        """Return what our search finds for repetends of so many micro-batches, in a share of the work."""
        return search(
            placement,
            1,
            max_micro_batches_per_repetend=max_micro_batches,
            objectives=("period",),
            solver=self.options.solver,
            work_limit=self.options.work_limit * share,
            seed=self.options.seed,
        )

    def row(
        self,
        searched_by: str,
        in_flight: int | None,
        repetend: Repetend | None,
        bound: float,
        decided: bool,
        seconds: float,
    ) -> SteadyStateRow:
        """Return the row of a repetend that was found, or of none."""
        return SteadyStateRow(
            shape=self.shape,
            num_devices=self.placement.num_devices,
            memory=self.memory,
            in_flight=in_flight,
            searched_by=searched_by,
            micro_batches=repetend.micro_batches if repetend else None,
            period=_period(repetend) if repetend else None,
            bubble_rate=repetend.bubble_rate if repetend else None,
            least_bubble_rate=bubble_rate_at(self.placement, bound),
            decided=decided,
            seconds=seconds,
        )

    def row_of(self, searched_by: str, in_flight: int | None, result: SearchResult) -> SteadyStateRow:
        """Return the row of what our search found."""
        decided = result.status is Status.OPTIMAL
        bound, seconds = result.period_bound, result.seconds
        return self.row(searched_by, in_flight, result.repetend, bound, decided, seconds)

    def impossible(self, searched_by: str, in_flight: int | None) -> SteadyStateRow:
        """Return the row of a memory that does not hold one micro-batch."""
        return self.row(searched_by, in_flight, None, math.inf, decided=True, seconds=0.0)


def tessel_row(case: FigureCase, searched_by: str, in_flight: int, result: SearchResult) -> SteadyStateRow:
    """Return what Tessel's search knew when it had tried repetends of up to so many micro-batches."""
    until = [found for found in result.by_in_flight if found.in_flight <= in_flight]
    last = until[-1] if until else None
    repetend = last.repetend if last is not None else None
    refuted = last.bound if last is not None and last.in_flight == in_flight else 0
    decided = repetend is not None and repetend.period <= max(refuted, result.period_bound)
    seconds = last.seconds if last is not None else result.seconds
    bound = float(period_bound(case.placement))
    row = case.row(searched_by, in_flight, repetend, bound, decided, seconds)
    return replace(row, least_bubble_rate=row.bubble_rate) if decided and row.bubble_rate is not None else row


def remembered_rows(
    cache: Path | None,
    case: FigureCase,
    searched_by: str,
    limit: float,
    search: Callable[[], SweepAnswer[SteadyStateRow]],
) -> SweepAnswer[SteadyStateRow]:
    """Return what a search of a case brings, from the cache where it is there.

    Args:
        cache: Its folder; None for no cache.
        case: Case that is searched.
        searched_by: Name of the search.
        limit: Its units of work, or the seconds of Tessel's.
        search: The search itself.
    """
    key = {
        "what": "sweep",
        "figure": case.figure,
        "shape": case.shape,
        "placement": placement_to_dict(case.placement),
        "memory": case.memory,
        "max_in_flight": case.max_in_flight,
        "limit": limit,
        "solver": case.options.solver,
        "seed": case.options.seed,
        "searched_by": searched_by,
    }
    return remembered(
        cache,
        key,
        search,
        is_worth_keeping=lambda found: (
            not found.interrupted and all(row.decided or row.period is not None for row in found.rows)
        ),
        is_answer=lambda value: isinstance(value, SweepAnswer),
    )[0]


def ours(most: int) -> str:
    """Return the name of our curve with up to so many micro-batches per repetend."""
    return f"ours, 1 to {most} micro-batches per repetend" if most > 1 else "ours, 1 micro-batch per repetend"


def bubble_rate_at(placement: Placement, period: float) -> float:
    """Return the idle share of a steady state of so many ticks per micro-batch."""
    work = sum(placement.load(device) for device in range(placement.num_devices))
    return 1 - work / (placement.num_devices * period)
