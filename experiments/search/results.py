"""Results of the steps of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments.search.options import SearchOptions
from experiments.search.profile_reading import CostSource
from placements import Placement, Profile
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.device_span import device_spans
from schedsearch.energy.orders.ordering import OrderChoice, RatedOrder
from schedsearch.metrics import bubble_rate, peak_memory, steady_period
from schedsearch.schedule import Schedule


@dataclass(frozen=True)
class SelectionResult:
    """Result of the choice among several schedules.

    Attributes:
        chosen: The choice, and all that was judged.
        origins: Where each candidate came from; see `schedsearch.procedures.alternatives.ScheduleCandidate`.
        took_s: Seconds that it took.
        searched: The search's result, with its own schedule.
    """

    chosen: OrderChoice
    origins: tuple[str, ...]
    took_s: float
    searched: Answer

    def origin_of(self, judged: RatedOrder) -> str:
        """Return where a schedule came from, before any swaps."""
        return self.origins[judged.candidate]


@dataclass(frozen=True)
class SearchStepResult:
    """Result of the search step.

    Attributes:
        placement: With its memory, and the block times of the profile.
        profile: Profile that was read from a file; None where there was none.
        schedule: Valid.
        result: Of the search; None for a hand-made schedule.
        costs: Where costs come from.
        memory_unit: Unit of the placement's memory, where it is known.
        selection: Choice of the schedule by its energy; None where none was asked for.
        progress: Reports of the search on its way; empty where the result was at hand.
        by_hand: Schedules made by hand that fit, the best first, where the schedule was searched.
        options: Options of the search; None for an unknown search.
    """

    placement: Placement
    profile: Profile | None
    schedule: Schedule
    result: Answer | None
    costs: CostSource
    memory_unit: str = ""
    selection: SelectionResult | None = None
    progress: tuple[SearchProgress, ...] = ()
    by_hand: Mapping[str, Schedule] = field(default_factory=dict)
    options: SearchOptions | None = None

    @property
    def searched(self) -> Answer | None:
        """The search's result, with its own schedule; None where the schedule is made by hand."""
        return self.result if self.selection is None else self.selection.searched

    @property
    def figures(self) -> dict[str, float | str]:
        """The figures that stand for it in a table of runs; periods are of one micro-batch."""
        schedule, result = self.schedule, self.result
        tick_ms = schedule.placement.tick_ms
        figures: dict[str, float | str] = {"times_from": self.costs.times}
        figures["makespan_ms"] = schedule.makespan * tick_ms
        figures["device_span_ms"] = int(device_spans(schedule).max()) * tick_ms
        figures["bubble_rate"] = bubble_rate(schedule)
        if (steady := steady_period(schedule)) is not None:
            figures["period_ms"] = float(steady) * tick_ms
        if self.memory_unit == "MiB":
            figures["peak_memory_mib"] = float(peak_memory(schedule).max())
        if result is not None:
            figures["makespan_bound_ms"] = result.makespan_bound * tick_ms
            figures["device_span_bound_ms"] = result.device_span_bound * tick_ms
            figures["search_seconds"] = result.seconds
            if result.repetend is not None:
                figures["repetend_period_ms"] = float(result.repetend.period_per_micro_batch) * tick_ms
                figures["period_bound_ms"] = result.period_bound * tick_ms
            figures["proved"] = result.proved
        return figures
