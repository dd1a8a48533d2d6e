"""A comparison in progress: hand-made schedules, each on its own shape, and searches on the same shapes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from placements import Placement
from placements.pieces import backwards_of
from placements.slices.slices import place_in_slices
from placements.stages.stage_chain import PlacedStages, StageChain, StagesError, place
from schedsearch.baselines import HAND_MADE, NEEDS, SLICED, UnsuitablePlacementError
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.baselines.structure import TooFewMicroBatchesError
from schedsearch.comparison.rows import (
    DOES_NOT_FIT,
    ComparedRow,
    joined,
    missing_memory,
    row_of,
)
from schedsearch.core.answer import Answer, SearchProgress, SearchReport, Status
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.metrics import peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.schedule import CyclicOrderError, Schedule, as_soon_as_possible
from schedsearch.solver.side_by_side import reported
from schedsearch.validate import InvalidScheduleError, validate

SEARCHED = "searched"
"""Name of a searched schedule; ``searched@SHAPE`` is searched on this one shape alone."""

Maker = Callable[[Placement, int], Schedule]
"""Makes a hand-made schedule for a placement and a number of micro-batches."""

Method = Callable[[Problem, SearchReport], Answer]
"""Answers a problem, and reports the progress of its search."""

ComparisonReport = Callable[[str, Placement, SearchProgress], None]
"""Called with the searched schedule's name, the placement, and the progress of its search."""


class UnplacedError(ValueError):
    """The model cannot be put on a shape as asked; the message has the reason."""


Variant = tuple[str, bool]
"""A shape, perhaps in slices, and whether its backward is split."""

IN_SLICES = " in slices"

VARIANTS = {**NEEDS, **{name: (f"{shape}{IN_SLICES}", split) for name, (shape, split) in SLICED.items()}}
"""The variant (shape, and whether the backward is split) that each hand-made schedule needs."""


@dataclass
class ShapeAttempt:
    """A shape to search, with its bound, its best hand-made schedule, and the answer.

    Attributes:
        placed: The model on it.
        number: Micro-batches of the placement.
        bound_ms: No schedule on it is shorter.
        made: The shortest schedule made by hand for it; None where none fits.
        result: Result of the search, once it was made.
    """

    placed: PlacedStages
    number: int
    bound_ms: float
    made: Schedule | None = None
    result: Answer | None = None

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that the search found; before a search, the best hand-made schedule."""
        return self.made if self.result is None else self.result.schedule

    @property
    def quality(self) -> tuple[float, float]:
        """Time (ms) and memory (MiB) of the best schedule; infinite without a schedule."""
        return (math.inf, math.inf) if self.schedule is None else quality(self.schedule)


@dataclass
class ComparisonCourse:
    """A comparison in progress; see `compare` for the other attributes.

    Attributes:
        bound_ms: Lower bound on the makespan of each variant, for variants whose bound was asked for.
        made: The best schedule made by hand for each variant, of those that fit.
        rows: The rows of each schedule made by hand so far.
        interrupted: Whether Ctrl-C ended a search; then no other search starts.
        limits: Work and seconds left, which all searches share.
    """

    stages: StageChain
    num_micro_batches: int
    num_chunks: int
    answer: Method
    options: Mapping[str, Any]
    report: ComparisonReport
    bound_ms: dict[Variant, float] = field(default_factory=dict)
    made: dict[Variant, Schedule] = field(default_factory=dict)
    rows: dict[str, list[ComparedRow]] = field(default_factory=dict)
    interrupted: bool = False

    def __post_init__(self) -> None:
        """Begin with the whole limits."""
        self.limits = SharedLimits.of(self.options)

    def rows_of(self, name: str) -> list[ComparedRow]:
        """Return the rows of a hand-made schedule, which is made once."""
        if name not in self.rows:
            self.rows[name] = list(self._made_rows(name))
        return self.rows[name]

    def _made_rows(self, name: str) -> Iterator[ComparedRow]:
        if name not in VARIANTS:
            yield ComparedRow(name, note="needs stages on all devices, and a chain of stages has none")
            return
        variant = VARIANTS[name]
        try:
            placed, number = self.placed(variant)
        except UnplacedError as error:
            yield ComparedRow(name, variant[0], note=str(error))
            return
        for row in self.by_hand(name, placed, number):
            if row.solution is None:
                yield replace(row, placement=variant[0])
                continue
            if row.solution.num_micro_batches == number:
                self.made[variant] = min(self.made.get(variant, row.solution), row.solution, key=quality)
            yield replace(row, makespan_bound_ms=self.bound_of(variant, placed))

    def by_hand(self, name: str, placed: PlacedStages, number: int) -> Iterator[ComparedRow]:
        """Yield the rows that a hand-made schedule gives for the model on its shape, without bounds."""
        placement, make = placed.placement, HAND_MADE[name]
        if placement.decisions:
            made = with_chosen_modes(placement, number, {name: make})
            how, best = min(made, key=lambda pair: quality(pair[1]), default=("", None))
            if best is None:
                note = "no modes chosen by hand fit its memory, or it is not defined for this model"
                yield ComparedRow(name, proved=DOES_NOT_FIT, note=joined(note, *placed.notes))
            else:
                yield row_of(name, placed, best, joined(f"modes: {how.partition(', ')[2]}", *placed.notes))
            return
        try:
            schedule = make(placement, number)
        except TooFewMicroBatchesError as error:
            title, *numbers = error.args
            in_samples = TooFewMicroBatchesError(title, *(count * placed.num_samples for count in numbers))
            yield ComparedRow(name, note=in_samples.reason)
        except UnsuitablePlacementError as error:
            yield ComparedRow(name, note=error.reason)
        else:
            if missing := missing_memory(placed, peak_memory(schedule).tolist()):
                yield ComparedRow(name, proved=DOES_NOT_FIT, note=joined(missing, *placed.notes))
                return
            row = row_of(name, placed, validate(schedule), joined(*placed.notes))
            yield replace(row, period_ms=_growth_ms(make, placed, number) or row.period_ms)

    def bound_of(self, variant: Variant, placed: PlacedStages) -> float:
        """Return the lower bound on the makespan on a shape, in ms."""
        if variant not in self.bound_ms:
            self.bound_ms[variant] = placed.placement.ms(self.bound(placed))
        return self.bound_ms[variant]

    def bound(self, placed: PlacedStages) -> int:
        """Return the lower bound on the makespan of the model on its shape, in ticks."""
        return makespan_bound(placed.placement, self.num_micro_batches // placed.num_samples)

    def _to_begin_with(self, shape: str, placement: Placement) -> Schedule | None:
        """Return the best hand-made schedule on a shape with split backwards; None if none fits.

        A schedule with whole backwards counts too: each backward becomes two blocks, one after the other.
        """
        for name, variant in VARIANTS.items():
            if variant[0] == shape:
                self.rows_of(name)
        schedules = [self.made[shape, True]] if (shape, True) in self.made else []
        if (shape, False) in self.made:
            with contextlib.suppress(CyclicOrderError, InvalidScheduleError):
                schedules.append(_with_split_backwards(self.made[shape, False], placement))
        return min(schedules, key=quality, default=None)

    def searched(self, name: str, shapes: Sequence[str]) -> ComparedRow:
        """Search shapes in the order of their bounds, the least first; return the row of the best schedule.

        The backward is always split, also where other rows have whole backwards: a split one is never slower.
        """
        began = time.monotonic()
        tried: dict[Variant, ShapeAttempt] = {}
        reasons, later = [], self.limits.searches - len(shapes)
        for variant in ((shape, True) for shape in shapes):
            try:
                placed, number = self.placed(variant)
                _require_room(placed)
                made = self._to_begin_with(variant[0], placed.placement)
                tried[variant] = ShapeAttempt(placed, number, self.bound_of(variant, placed), made)
            except UnplacedError as error:
                reasons.append(f"{variant[0]}: {error}")
        self.limits.searches = later + len(tried)
        by_bound = sorted(tried.values(), key=lambda attempt: attempt.bound_ms)
        while not self.interrupted:
            best_ms = min((attempt.quality[0] for attempt in by_bound if attempt.result), default=math.inf)
            # Nothing shorter is possible on the others.
            promising = [attempt for attempt in by_bound if not attempt.result and attempt.bound_ms < best_ms]
            if not promising:
                break
            self._search(name, promising[: self.options.get("workers", 1)])
        self.bound_ms |= {variant: attempt.bound_ms for variant, attempt in tried.items()}
        self.limits.searches = later
        row = best_row(name, list(tried.values()), reasons)
        return replace(row, search_seconds=time.monotonic() - began)

    def _search(self, name: str, tried: Sequence[ShapeAttempt]) -> None:
        """Search some shapes side by side; they share the workers, and each worker has the limits."""
        number, workers = len(tried), self.options.get("workers", 1)
        limits = self.limits.share(number) | {"workers": max(workers // number, 1)}
        reports = [partial(self.report, name, attempt.placed.placement) for attempt in tried]
        answers = reported([self.search(attempt, limits) for attempt in tried], reports)
        complete = [answer for answer in answers if answer is not None]
        if complete:
            work = fmean(answer.work for answer in complete)
            self.limits.spend(work, max(answer.seconds for answer in complete), number)
        self.interrupted = len(complete) < number or any(answer.interrupted for answer in complete)
        for attempt, answer in zip(tried, answers, strict=True):
            if answer is not None:
                attempt.result = answer
                attempt.bound_ms = max(attempt.bound_ms, attempt.placed.placement.ms(answer.makespan_bound))

    def search(self, tried: ShapeAttempt, limits: Mapping[str, Any]) -> Callable[[SearchReport], Answer]:
        """Return the search of a shape, a function of its listener; methods of others begin with nothing."""
        is_ours = self.options.get("method", "modulo") == "modulo"
        begin_with = {"begin_with": tried.made} if is_ours else {}
        options = {**begin_with, **self.options, **limits} | ({} if is_ours else {"workers": 1})
        return partial(self.answer, Problem(tried.placed.placement, tried.number, **options))

    def placed(self, variant: Variant) -> tuple[PlacedStages, int]:
        """Return the model on a shape, and the placement's number of micro-batches.

        Raises:
            UnplacedError: It cannot be put there.
        """
        try:
            shape, _, in_slices = variant[0].partition(IN_SLICES[:1])
            make = place_in_slices if in_slices else place
            placed = make(self.stages, shape, variant[1], self.num_chunks)
        except StagesError as error:
            raise UnplacedError(str(error)) from None
        number, rest = divmod(self.num_micro_batches, placed.num_samples)
        if rest:
            raise UnplacedError(
                "runs pairs of micro-batches, one in each direction; "
                f"set search.num_micro_batches={self.num_micro_batches + rest}"
            )
        return placed, number


def best_row(name: str, tried: Sequence[ShapeAttempt], reasons: Sequence[str]) -> ComparedRow:
    """Return the row of the best schedule on any shape tried; without a schedule, its note has the reason."""
    best = min(tried, key=lambda attempt: (attempt.quality, attempt.result is None), default=None)
    if best is None:
        return ComparedRow(name, proved="infeasible", note=joined(*reasons))
    if best.schedule is None:
        results = [attempt.result for attempt in tried if attempt.result is not None]
        undecided = [result.reason for result in results if result.status is not Status.INFEASIBLE]
        proved = "unknown" if undecided or len(results) < len(tried) else "infeasible"
        return ComparedRow(name, proved=proved, note=joined(*undecided, *reasons))
    placed = best.placed
    notes = [f"best on {placed.placement.name}", *placed.notes, *reasons]
    if best.result is None or best.result.interrupted:
        notes.append("interrupted")
    elif any(attempt.result.is_cut for attempt in tried if attempt.result is not None):
        notes.append("stopped by a time limit; another run may find a better one")
    row = row_of(name, placed, best.schedule, joined(*notes))
    return replace(row, makespan_bound_ms=min(attempt.bound_ms for attempt in tried))


def _growth_ms(make: Maker, placed: PlacedStages, number: int) -> float | None:
    """Return by how much one more micro-batch lengthens a hand-made schedule once all devices are filled."""
    more = 2 * placed.placement.num_devices
    many = number + 2 * more
    try:
        short, long = (make(placed.placement, count).makespan for count in (many, many + more))
    except UnsuitablePlacementError:
        return None
    return placed.placement.ms(long - short) / more / placed.num_samples


def quality(schedule: Schedule) -> tuple[float, float]:
    """Return the sort key of a schedule: makespan in ms, then peak memory in MiB; less is better."""
    unit_mib = schedule.placement.memory_unit_mib or 1.0
    return schedule.placement.ms(schedule.makespan), unit_mib * int(peak_memory(schedule).max())


def _with_split_backwards(schedule: Schedule, placement: Placement) -> Schedule:
    """Return a schedule whose whole backwards become the two blocks that a placement has for each."""
    halves = {}
    for forward in schedule.placement.by_name:
        names = backwards_of(forward)
        halves[names[0]] = [name for name in names if name in placement.by_name]
    orders = [
        [(half, n) for name, n in order for half in halves.get(name, [name])]
        for order in schedule.lane_orders
    ]
    return validate(as_soon_as_possible(placement, schedule.num_micro_batches, orders, schedule.chosen))


def _require_room(placed: PlacedStages) -> None:
    placement = placed.placement
    best = placement.at_best
    needed = [minimum_memory(best, d) + placement.static[d] for d in range(placement.num_devices)]
    if missing := missing_memory(placed, needed):
        one = "one micro-batch" if placed.num_samples == 1 else "one pair of micro-batches"
        raise UnplacedError(f"even {one} {missing}")
