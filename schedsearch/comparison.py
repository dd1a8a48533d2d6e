"""Schedules of one model side by side, each on the placement that it needs, with equal samples and memory."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, SupportsIndex

from placements import Placement
from placements.block import COMPUTE
from placements.pieces import PIPELINES
from placements.plain_data import Field, json_file
from placements.slices.slices import place_in_slices
from placements.stages.stage_chain import DevicePower, PlacedStages, StageChain, StagesError, place
from schedsearch.baselines import HAND_MADE, NEEDS, SLICED, UnsuitablePlacementError
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.baselines.structure import TooFewMicroBatchesError
from schedsearch.bounds.makespan import makespan_bound
from schedsearch.bounds.memory_need import minimum_memory
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.modulo.result import SearchError, SearchProgress, SearchResult, Status, proved_text
from schedsearch.results import FileResult
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import ScheduleFileError, schedule_from_dict, schedule_to_dict
from schedsearch.searches.methods import SearchReport, SearchRequest, find
from schedsearch.validate import validate

SCHEMA_VERSION = 1
"""Version of the file form of a comparison."""

SEARCHED = "searched"
"""The name of a schedule that is searched; with a shape behind an @ it is searched on that one alone."""

DOES_NOT_FIT = "does not fit"
"""Word beside a hand-made schedule that needs more memory than there is."""

NOT_APPLICABLE = "not applicable"
"""Likewise, of one that is not defined for the model, the devices or the number of micro-batches."""

Maker = Callable[[Placement, int], Schedule]
"""A hand-made schedule."""

Method = Callable[[SearchRequest, SearchReport], SearchResult]
"""A way to answer a search."""

ComparisonReport = Callable[[str, Placement, SearchProgress], None]
"""Told which schedule is searched, the placement that it is searched on, and how far that is."""


@dataclass(frozen=True)
class ComparedRow:
    """One schedule of a comparison, in ms and MiB; None where a figure does not apply.

    Attributes:
        schedule: Its name, as asked for.
        placement: The shape that it is on; empty where there is none.
        proved: ``makespan proved`` where the makespan meets its bound, ``not proved`` where it does not,
            `DOES_NOT_FIT`, `NOT_APPLICABLE`; of a search also ``infeasible`` and ``unknown``.
        makespan_ms: Time from the first start to the last end.
        makespan_bound_ms: No schedule of these micro-batches on the same shape, or for ``searched`` on any
            shape tried, is shorter.
        bubble_rate: Idle share of makespan times devices.
        period_ms: By how much one more micro-batch lengthens it in the steady state.
        device_span_ms: The longest time from a device's own first start to its last end, with the orders of
            the schedule and its devices' first starts chosen for it: an iteration's time without a barrier.
        peak_memory_mib: The most that any device holds, weights included.
        energy_j: Energy of all devices from the first start to the last end; None where their power is not
            known.
        search_seconds: Wall-clock time of the search.
        note: What was assumed, cut, chosen or missing.
        found: The schedule itself; None where there is none.
    """

    schedule: str
    placement: str = ""
    proved: str = NOT_APPLICABLE
    makespan_ms: float | None = None
    makespan_bound_ms: float | None = None
    bubble_rate: float | None = None
    period_ms: float | None = None
    device_span_ms: float | None = None
    peak_memory_mib: float | None = None
    energy_j: float | None = None
    search_seconds: float | None = None
    note: str = ""
    found: Schedule | None = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """The title of its timeline."""
        assert self.makespan_ms is not None and self.bubble_rate is not None, "a schedule has these"
        figures = f"{self.makespan_ms:,.6g} ms, {self.bubble_rate:.1%} bubble"
        return f"{self.schedule} ({self.placement}): {figures}"

    def to_dict(self) -> dict[str, Any]:
        """Return its figures as plain data, without the schedule."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS = tuple(each.name for each in fields(ComparedRow) if each.name != "found")
"""Columns of the table, in order."""


@dataclass(frozen=True)
class Comparison(FileResult):
    """Schedules of one model side by side.

    Attributes:
        num_micro_batches: Micro-batches of each schedule.
        rows: Rows in the order in which they were asked for.
        interrupted: Whether Ctrl-C ended the searches; then these have what they found until then.
    """

    num_micro_batches: int
    rows: tuple[ComparedRow, ...]
    interrupted: bool = False

    @property
    def by_title(self) -> dict[str, Schedule]:
        """The schedules that fit, by what stands above their timelines."""
        return {row.title: row.found for row in self.rows if row.found is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the file form as plain data; schedules by the name of their row."""
        return {
            "schema_version": SCHEMA_VERSION,
            "num_micro_batches": self.num_micro_batches,
            "interrupted": self.interrupted,
            "rows": [row.to_dict() for row in self.rows],
            "schedules": {row.schedule: schedule_to_dict(row.found) for row in self.rows if row.found},
        }

    @classmethod
    def from_json(cls, path: str | Path) -> Comparison:
        """Read a comparison from a JSON file, and validate its schedules.

        Raises:
            ScheduleFileError: The file cannot be read or is wrong; the message begins with its path.
        """
        with json_file(path, "a compare.json", ScheduleFileError) as top:
            top.version(SCHEMA_VERSION)
            schedules = top.get("schedules", {})
            return cls(
                top["num_micro_batches"].whole(),
                tuple(_read_row(row, schedules) for row in top["rows"].items()),
                top.get("interrupted").value is True,
            )


def _read_row(row: Field, schedules: Field) -> ComparedRow:
    found = schedules.get(str(row["schedule"].value)).value
    return row.record(ComparedRow, found=None if found is None else schedule_from_dict(found))


def compare(
    stages: StageChain,
    schedules: Sequence[str] = (SEARCHED, "one_f_one_b"),
    num_micro_batches: int = 16,
    *,
    num_chunks: int = 2,
    given: Mapping[str, tuple[PlacedStages, Schedule]] | None = None,
    on_progress: ComparisonReport | None = None,
    answer: Method = find,
    **options: Any,
) -> Comparison:
    """Put schedules of one model side by side: the same samples, devices and memory, weights included.

    Each hand-made schedule is put on the shape that it needs (see `schedsearch.baselines.NEEDS`): the V, a
    loop or wave of `num_chunks` pieces on each device, or the X, on which each device holds the weights of
    two stages and every pair of micro-batches runs in both directions. ``searched`` is the best that is found
    on the shapes of all others; ``searched@v_shape`` and the like search one shape. A search begins with the
    best schedule of the list that is made by hand for its shape and fits: none of them is shorter than what
    it finds.

    Args:
        stages: The model.
        schedules: Names: ``searched``, ``searched@SHAPE``, or keys of `schedsearch.baselines.HAND_MADE`.
        num_micro_batches: Micro-batches of every schedule.
        num_chunks: Pieces of the model on each device of a loop or wave.
        given: Schedules of one's own by name, each with the model on its devices. Their rows come first.
        on_progress: Told how far the searches are.
        answer: What answers the searches, such as one with a cache.
        options: Options of each search: the fields of `SearchRequest`, such as ``time_limit_s``.

    Raises:
        SearchError: A name is not known or there twice, or a number is out of its range.
    """
    _check(stages, schedules, num_micro_batches, num_chunks)
    running = _Course(
        stages, num_micro_batches, num_chunks, answer, options, on_progress or (lambda *_: None)
    )
    rows = {name: running.hand_made(name) for name in schedules if name in HAND_MADE}
    variants = list(dict.fromkeys(_VARIANTS[name] for name in rows if name in _VARIANTS)) or [
        ("v_shape", False)
    ]
    for name in schedules:
        if name not in rows:
            shape = name.partition("@")[2]
            of_shape = [*running.variants(shape), *(each for each in variants if each[0] == shape)]
            rows[name] = running.searched(name, list(dict.fromkeys(of_shape)) if shape else variants)
    proved = running.bound_ms
    own = [_given(name, *each) for name, each in (given or {}).items()]
    judged = (_judged(rows[name], proved.get(_VARIANTS.get(name, ("", False)), 0.0)) for name in schedules)
    rated = (*own, *judged)
    powered = (replace(row, energy_j=_energy_j(row.found, stages.power_w)) for row in rated)
    return Comparison(num_micro_batches, tuple(powered), running.interrupted)


def _check(stages: StageChain, schedules: Sequence[str], num_micro_batches: int, num_chunks: int) -> None:
    if not isinstance(stages, StageChain):
        raise SearchError(
            f"stages: a {type(stages).__name__} is not a chain of stages; give what stages_of or read_stages "
            "returns"
        )
    if isinstance(schedules, str):
        raise SearchError(f"schedules: {schedules!r} is not a list; write [{schedules!r}]")
    known = [SEARCHED, *(f"{SEARCHED}@{shape}" for shape in PIPELINES), *HAND_MADE]
    for name in schedules:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"use some of {', '.join(known)}"
            raise SearchError(f"schedules: {name!r} is not a schedule; {remedy}")
        if list(schedules).count(name) > 1:
            raise SearchError(f"schedules: {name!r} is named twice; name each once")
    if not schedules:
        raise SearchError(f"schedules: is empty; use some of {', '.join(known)}")
    for what, number in (("search.num_micro_batches", num_micro_batches), ("num_chunks", num_chunks)):
        if not isinstance(number, SupportsIndex):
            raise SearchError(f"{what}: {number!r} is not a whole number")
        if number < 1:
            raise SearchError(f"{what}: {number} is not at least 1")


class _UnplacedError(ValueError):
    """The model cannot be put on a shape as asked; the message says why."""


Variant = tuple[str, bool]
"""A shape, perhaps in slices, and whether its backward is split."""

_IN_SLICES = " in slices"

_VARIANTS = {**NEEDS, **{name: (f"{shape}{_IN_SLICES}", split) for name, (shape, split) in SLICED.items()}}
"""The shape that each hand-made schedule needs."""


@dataclass
class _Attempt:
    """A shape that is searched.

    Attributes:
        placed: The model on it.
        number: Micro-batches of the placement.
        bound_ms: No schedule on it is shorter.
        result: Result of the search, once it was made.
    """

    placed: PlacedStages
    number: int
    bound_ms: float
    result: SearchResult | None = None

    @property
    def makespan_ms(self) -> float:
        """Makespan of the best schedule found, infinite where there is none."""
        if self.result is None or self.result.schedule is None:
            return math.inf
        return self.placed.placement.ms(self.result.schedule.makespan)


@dataclass
class _Course:
    """A comparison that goes on; see `compare` for the attributes.

    Attributes:
        bound_ms: What searches proved of each variant.
        made: The shortest schedule made by hand for each variant, of those that fit.
        interrupted: Whether Ctrl-C ended it; then nothing more is searched.
    """

    stages: StageChain
    num_micro_batches: int
    num_chunks: int
    answer: Method
    options: Mapping[str, Any]
    report: ComparisonReport
    bound_ms: dict[Variant, float] = field(default_factory=dict)
    made: dict[Variant, Schedule] = field(default_factory=dict)
    interrupted: bool = False

    def hand_made(self, name: str) -> ComparedRow:
        """Return the row of a hand-made schedule."""
        if name not in _VARIANTS:
            return ComparedRow(name, note="needs stages on all devices, and a chain of stages has none")
        shape, _ = _VARIANTS[name]
        try:
            placed, number = self._placed(_VARIANTS[name])
        except _UnplacedError as error:
            return ComparedRow(name, shape, note=str(error))
        if placed.placement.decisions:
            return self._hand_made_with_modes(name, placed, number)
        try:
            schedule = HAND_MADE[name](placed.placement, number)
        except TooFewMicroBatchesError as error:
            return ComparedRow(name, shape, note=error.in_samples(placed.num_samples))
        except UnsuitablePlacementError as error:
            return ComparedRow(name, shape, note=error.reason)
        if missing := _missing_memory(placed, peak_memory(schedule).tolist()):
            return ComparedRow(name, shape, DOES_NOT_FIT, note="; ".join([missing, *placed.notes]))
        row = _row(name, placed, validate(schedule), "; ".join(placed.notes))
        best = self.made.setdefault(_VARIANTS[name], schedule)
        self.made[_VARIANTS[name]] = min(best, schedule, key=lambda each: each.makespan)
        bound = placed.placement.ms(makespan_bound(placed.placement, number))
        return replace(row, makespan_bound_ms=bound, period_ms=_growth_ms(HAND_MADE[name], placed, number))

    def _hand_made_with_modes(self, name: str, placed: PlacedStages, number: int) -> ComparedRow:
        """Return the row of a hand-made schedule with the best of the ways in which people choose modes."""
        made = with_chosen_modes(placed.placement, number, {name: HAND_MADE[name]})
        best = min(made, key=lambda each: each[1].makespan, default=None)
        shape = _VARIANTS[name][0]
        if best is None:
            note = "no modes chosen by hand fit its memory, or it is not defined for this model"
            return ComparedRow(name, shape, DOES_NOT_FIT, note="; ".join([note, *placed.notes]))
        how = best[0].partition(", ")[2]
        earlier = self.made.setdefault(_VARIANTS[name], best[1])
        self.made[_VARIANTS[name]] = min(earlier, best[1], key=lambda each: each.makespan)
        row = _row(name, placed, best[1], "; ".join([f"modes: {how}", *placed.notes]))
        return replace(row, makespan_bound_ms=placed.placement.ms(makespan_bound(placed.placement, number)))

    def variants(self, shape: str) -> list[Variant]:
        """Return a shape with whole backward blocks, and split where the stages tell the halves."""
        return [(shape, False)] + [(shape, True)] * self.stages.knows_halves

    def searched(self, name: str, variants: Sequence[Variant]) -> ComparedRow:
        """Return the row of the best that is found on some shapes; those of the least bound come first."""
        began = time.monotonic()
        tried: dict[Variant, _Attempt] = {}
        reasons = []
        for variant in variants:
            try:
                placed, number = self._placed(variant)
                _require_room(placed)
                bound = makespan_bound(placed.placement, number)
                tried[variant] = _Attempt(placed, number, placed.placement.ms(bound))
            except _UnplacedError as error:
                reasons.append(f"{variant[0]}: {error}")
        for variant, each in sorted(tried.items(), key=lambda item: item[1].bound_ms):
            if self.interrupted or min(other.makespan_ms for other in tried.values()) <= each.bound_ms:
                break  # nothing shorter is possible on the others
            result = each.result = self._search(name, each, self.made.get(variant))
            each.bound_ms = max(each.bound_ms, each.placed.placement.ms(result.makespan_bound))
            self.bound_ms[variant] = each.bound_ms
            self.interrupted = result.interrupted
        row = _best_row(name, list(tried.values()), reasons)
        return replace(row, search_seconds=time.monotonic() - began)

    @property
    def _is_ours(self) -> bool:
        """Whether our own method searches; others begin with nothing."""
        return bool(self.options.get("method", "modulo") == "modulo")

    def _search(self, name: str, tried: _Attempt, made: Schedule | None) -> SearchResult:
        placement = tried.placed.placement
        begin_with = {"begin_with": made} if self._is_ours else {}
        request = SearchRequest(placement, tried.number, **begin_with | dict(self.options))
        return self.answer(request, lambda progress: self.report(name, placement, progress))

    def _placed(self, variant: Variant) -> tuple[PlacedStages, int]:
        """Return the model on a shape, and the placement's number of micro-batches."""
        try:
            shape, _, in_slices = variant[0].partition(_IN_SLICES[:1])
            make = place_in_slices if in_slices else place
            placed = make(self.stages, shape, variant[1], self.num_chunks)
        except StagesError as error:
            raise _UnplacedError(str(error)) from None
        number, rest = divmod(self.num_micro_batches, placed.num_samples)
        if rest:
            raise _UnplacedError(
                "runs pairs of micro-batches, one in each direction; "
                f"set search.num_micro_batches={self.num_micro_batches + rest}"
            )
        return placed, number


def _best_row(name: str, tried: Sequence[_Attempt], reasons: Sequence[str]) -> ComparedRow:
    """Return the row of the best schedule on any of the shapes that were tried, or why there is none.

    Args:
        name: Name of the row.
        tried: The shapes.
        reasons: Why others could not be tried.
    """
    best = min(tried, key=lambda each: each.makespan_ms, default=None)
    if best is None:
        return ComparedRow(name, proved="infeasible", note="; ".join(reasons))
    if best.result is None or best.result.schedule is None:
        found = [each.result for each in tried if each.result is not None]
        undecided = [each.reason for each in found if each.status is not Status.INFEASIBLE]
        proved = "unknown" if undecided or len(found) < len(tried) else "infeasible"
        return ComparedRow(name, proved=proved, note="; ".join([*undecided, *reasons]))
    placed, repetend = best.placed, best.result.repetend
    notes = [f"best on {placed.placement.name}", *placed.notes, *reasons]
    if best.result.interrupted:
        notes.append("interrupted")
    elif any(each.result.is_cut for each in tried if each.result is not None):
        notes.append("stopped by a time limit; another run may find a better one")
    row = _row(name, placed, best.result.schedule, "; ".join(notes))
    period_ms = None
    if repetend is not None:
        period_ms = placed.placement.ms(repetend.period) / repetend.micro_batches / placed.num_samples
    return replace(row, makespan_bound_ms=min(each.bound_ms for each in tried), period_ms=period_ms)


def _row(name: str, placed: PlacedStages, schedule: Schedule, note: str) -> ComparedRow:
    """Return what a schedule itself tells."""
    back_to_back = with_least_device_span(schedule)
    return ComparedRow(
        name,
        placed.placement.name,
        proved_text(),
        makespan_ms=placed.placement.ms(schedule.makespan),
        bubble_rate=bubble_rate(schedule),
        device_span_ms=placed.placement.ms(int(device_spans(back_to_back).max())),
        peak_memory_mib=placed.placement.mib(int(peak_memory(schedule).max())),
        note=note,
        found=schedule,
    )


def _given(name: str, placed: PlacedStages, schedule: Schedule) -> ComparedRow:
    """Return the row of a schedule of one's own; its bound is for the model as it has it on devices."""
    if missing := _missing_memory(placed, peak_memory(schedule).tolist()):
        return ComparedRow(
            name, placed.placement.name, DOES_NOT_FIT, note="; ".join([missing, *placed.notes])
        )
    row = _row(name, placed, validate(schedule.under(placed.placement)), "; ".join(placed.notes))
    bound = makespan_bound(placed.placement, schedule.num_micro_batches)
    return _judged(replace(row, makespan_bound_ms=placed.placement.ms(bound)), 0.0)


def _growth_ms(make: Maker, placed: PlacedStages, number: int) -> float | None:
    """Return by how much one more micro-batch lengthens a hand-made schedule once all devices are filled."""
    more = 2 * placed.placement.num_devices
    many = number + 2 * more
    try:
        short, long = (make(placed.placement, each).makespan for each in (many, many + more))
    except UnsuitablePlacementError:
        return None
    return placed.placement.ms(long - short) / more / placed.num_samples


def _missing_memory(placed: PlacedStages, needed: Sequence[int]) -> str:
    """Return which device lacks most of the memory that it needs; empty where none lacks any."""
    memory = placed.placement.memory or needed
    device = max(range(len(needed)), key=lambda device: needed[device] - memory[device])
    if needed[device] <= memory[device]:
        return ""
    needs, has = placed.placement.mib(needed[device]), placed.placement.mib(memory[device])
    return f"needs {needs:,.10g} MiB on device {device}, which has {has:,.10g} MiB"


def _require_room(placed: PlacedStages) -> None:
    placement = placed.placement
    best = placement.at_best
    needed = [minimum_memory(best, d) + placement.static[d] for d in range(placement.num_devices)]
    if missing := _missing_memory(placed, needed):
        one = "one micro-batch" if placed.num_samples == 1 else "one pair of micro-batches"
        raise _UnplacedError(f"even {one} {missing}")


def _energy_j(schedule: Schedule | None, power_w: DevicePower | None) -> float | None:
    """Return what all devices use while they compute and wait."""
    if schedule is None or power_w is None:
        return None
    placement = schedule.placement
    run = (schedule.block(name, n) for _, n, name in schedule.blocks)
    run = (block for block in run if block.stream == COMPUTE)
    busy = sum(len(block.devices) * block.time for block in run)
    waiting = placement.num_devices * schedule.makespan - busy
    return (placement.ms(busy) * power_w.running + placement.ms(waiting) * power_w.blocking) / 1e3


def _judged(row: ComparedRow, bound_ms: float) -> ComparedRow:
    """Return a row with the best bound that is known, and what that proves."""
    if row.makespan_ms is None or row.makespan_bound_ms is None:
        return row
    bound_ms = max(bound_ms, row.makespan_bound_ms)
    proved = proved_text("makespan") if row.makespan_ms <= bound_ms else proved_text()
    return replace(row, makespan_bound_ms=bound_ms, proved=proved)
