"""The best layouts of a model for the schedules that training frameworks run, beside the even one and others.

Every figure is that of the schedule itself, made by `schedsearch.baselines` and checked by
`schedsearch.validate`, which share no code with the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from placements.layouts.layer_file import ModelLayers
from placements.layouts.layout import (
    MTP,
    LayoutError,
    PipelineLayout,
    even_layout,
    layout_of_sizes,
)
from placements.layouts.measured_layers import read_measured
from placements.layouts.megatron_arguments import MegatronPipeline, group_size
from placements.layouts.megatron_notation import write_notation
from placements.stages.layout_stages import PLACES, place_layout, rounded
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.layouts.defaults import NUM_CHUNKS, WORK_LIMIT
from schedsearch.layouts.layout_model import LayoutProblem, Sizes
from schedsearch.layouts.layout_search import best_layout, min_capacity
from schedsearch.layouts.order_graph import graph_of, run
from schedsearch.metrics import peak_memory
from schedsearch.results import TableResult
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import validate

PROVED, BOUNDED, GIVEN = "proved", "bounded", "given"
"""Of a best layout: nothing is faster; or nothing is faster than its bound. Of one that was given."""

DOES_NOT_FIT = "does not fit"
"""No layout fits the memory, or the one that was given does not."""

NOT_FOUND = "not found"
"""None that fits was found, nor that there is none."""

NOT_APPLICABLE = "not applicable"
"""The schedule has no such layout, or too few micro-batches."""


@dataclass(frozen=True)
class LayoutRow:
    """A layout and what it takes; None where a figure does not apply.

    Attributes:
        schedule: ``one_f_one_b`` or ``interleaved_one_f_one_b``.
        num_chunks: Virtual stages of each device.
        layout: In Megatron-LM's notation; empty where there is none.
        iteration_ms: Time of an iteration.
        bound_ms: No layout for this schedule is faster.
        even_ms: Time of the layout that frameworks make themselves; None where it does not fit, or the stages
            do not divide the layers.
        peak_memory_mib: The most that any device holds.
        status: One of the words of this module.
        note: Why there is no layout.
        found: The layout.
        group: Micro-batches of a group of interleaved 1F1B.
        schedule_found: Its schedule.
    """

    schedule: str
    num_chunks: int
    layout: str = ""
    iteration_ms: float | None = None
    bound_ms: float | None = None
    even_ms: float | None = None
    peak_memory_mib: float | None = None
    status: str = NOT_APPLICABLE
    note: str = ""
    found: PipelineLayout | None = field(default=None, repr=False)
    group: int | None = None
    schedule_found: Schedule | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, object]:
        """Return its figures as plain data."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS = tuple(each.name for each in fields(LayoutRow))[:8]
"""Columns of the table."""


@dataclass(frozen=True)
class BestLayouts(TableResult):
    """The best layouts of a model.

    Attributes:
        layers: The model.
        num_devices: Devices of the pipeline.
        num_micro_batches: Micro-batches of an iteration.
        rows: A row for each number of chunks.
        given: A row for each layout that was given, by its name.
        interrupted: Whether a Ctrl-C ended the search; the rows are the best until then.
    """

    layers: ModelLayers
    num_devices: int
    num_micro_batches: int
    rows: tuple[LayoutRow, ...]
    given: Mapping[str, LayoutRow]
    interrupted: bool = False

    @property
    def named_rows(self) -> tuple[tuple[str, LayoutRow], ...]:
        """All rows: the best by the name of their schedule, and those that were given by their own."""
        return (*((row.schedule, row) for row in self.rows), *self.given.items())

    @property
    def best(self) -> LayoutRow | None:
        """The fastest; None where nothing fits."""
        timed = [row for row in self.rows if row.iteration_ms is not None]
        return min(timed, key=lambda row: row.iteration_ms or 0.0, default=None)


def layout(
    layers: ModelLayers | str | Path,
    num_devices: int,
    num_micro_batches: int,
    num_chunks: int | Sequence[int] = NUM_CHUNKS,
    memory_mib: float | None = None,
    transfer_ms: float = 0.0,
    given: Mapping[str, MegatronPipeline] | None = None,
    work_limit: float = WORK_LIMIT,
    on_row: Callable[[LayoutRow], None] | None = None,
) -> BestLayouts:
    """Return the best layouts of a model, by its layers' times and memory.

    Args:
        layers: The layers, or the path of their CSV file, or of what was measured; see
            `placements.layouts.measured_layers.read_measured`.
        num_devices: Devices of the pipeline.
        num_micro_batches: Micro-batches of an iteration.
        num_chunks: Virtual stages of each device: 1 for 1F1B, more for interleaved 1F1B; one number or some.
        memory_mib: Memory of each device for weights and activations; None for no limit.
        transfer_ms: Time from the end of a block to where its output is on the next device.
        given: Layouts of one's own by name, to put beside the best.
        work_limit: Units of work, of about a second each, for all numbers of chunks together.
        on_row: Told of each row of a number of chunks.

    Raises:
        LayoutError: A number or a file is wrong, or a layout is of another model.
    """
    model = layers if isinstance(layers, ModelLayers) else read_measured(layers).layers
    if memory_mib is not None and not model.has_memory:
        raise LayoutError(
            "memory_mib: the layers have no memory, so that nothing is over it; fill activation_mib and "
            "weight_mib into the layers.csv that is written without memory_mib, and give that as layers"
        )
    chunks = (num_chunks,) if isinstance(num_chunks, int) else tuple(num_chunks)
    for name, numbers in (
        ("num_devices", (num_devices,)),
        ("num_micro_batches", (num_micro_batches,)),
        ("num_chunks", chunks),
    ):
        for number in numbers or (0,):
            if type(number) is not int or number < 1:
                raise LayoutError(f"{name}: {number!r} is not a whole number above 0; give one")
    limits = SharedLimits(work_limit, searches=len(set(chunks)))
    setting = _Setting(model, num_devices, num_micro_batches, memory_mib, transfer_ms, limits)
    own = {name: setting.given(each) for name, each in (given or {}).items()}
    rows = []
    with INTERRUPTS.answered() as ending:
        for number in dict.fromkeys(chunks):
            starts = [row.found for row in own.values() if row.found and row.found.num_chunks == number]
            rows.append(setting.best(number, starts))
            if on_row is not None:
                on_row(rows[-1])
    return BestLayouts(model, num_devices, num_micro_batches, tuple(rows), own, ending.interrupted)


@dataclass(frozen=True)
class _Setting:
    """A model, its devices and its micro-batches."""

    layers: ModelLayers
    num_devices: int
    num_micro_batches: int
    memory_mib: float | None
    transfer_ms: float
    limits: SharedLimits

    def best(self, num_chunks: int, starts: Sequence[PipelineLayout]) -> LayoutRow:
        """Return the row of the best layout with so many chunks."""
        empty = LayoutRow(_name(num_chunks), num_chunks)
        if reason := self._why_not(num_chunks):
            self.limits.searches -= 1
            return replace(empty, note=reason)
        group = group_size(self.num_devices, self.num_micro_batches) if num_chunks > 1 else None
        empty = replace(empty, group=group)
        even = even_layout(self.num_devices, num_chunks, self.layers.parts)
        if even is not None:
            priced = self._priced(even, empty)
            empty = replace(empty, even_ms=priced.iteration_ms if priced.status == GIVEN else None)
        problem = self._problem(num_chunks, group)
        first = tuple(self._sizes(each) for each in (*starts, *([even] if even else [])))
        work_limit = self.limits.share()["work_limit"]
        assert work_limit is not None, "a layout has a limit"
        answer = best_layout(problem, tuple(each for each in first if each), work_limit)
        self.limits.spend(answer.work)
        if answer.sizes is None:
            status = DOES_NOT_FIT if answer.is_proved else NOT_FOUND
            min_mib = math.ceil(min_capacity(self._problem(1, None)) / 10**PLACES)
            note = f"memory_mib: {self.memory_mib:g} holds no layout; num_chunks=1 needs {min_mib:,} MiB"
            return replace(empty, status=status, note=note)
        row = self._priced(self._layout(answer.sizes), empty)
        assert row.schedule_found is not None and row.iteration_ms is not None, "it fits"
        assert round(row.iteration_ms * 10**PLACES) == answer.ticks, "the schedule takes what was searched"
        bound_ms = row.iteration_ms if answer.is_proved else math.ceil(answer.bound) / 10**PLACES
        return replace(row, bound_ms=bound_ms, status=PROVED if answer.is_proved else BOUNDED)

    def given(self, pipeline: MegatronPipeline) -> LayoutRow:
        """Return the row of a layout that was given.

        Raises:
            LayoutError: It is of another model or number of devices, or has too few micro-batches.
        """
        own, group = pipeline
        if own.num_devices != self.num_devices:
            raise LayoutError(
                f"layout: has {own.num_devices} pipeline ranks, and num_devices is {self.num_devices}; give "
                "the same"
            )
        if reason := self._why_not(own.num_chunks):
            raise LayoutError(reason)
        size = group or group_size(self.num_devices, self.num_micro_batches)
        empty = LayoutRow(_name(own.num_chunks), own.num_chunks, group=size if own.num_chunks > 1 else None)
        return self._priced(own, empty)

    def _why_not(self, num_chunks: int) -> str:
        num_stages, pieces = self.num_devices * num_chunks, len(self._pieces())
        if self.num_devices > pieces:
            return (
                f"num_devices: {self.num_devices} are more than the {pieces} pieces of the model; use fewer"
            )
        if num_stages > pieces:
            return (
                f"num_chunks: {num_stages} stages are more than the {pieces} pieces of the model; use fewer"
            )
        if num_chunks > 1 and self.num_devices == 1:
            return "num_chunks: one device has one stage; use num_chunks=1"
        if num_chunks > 1 and self.num_micro_batches < self.num_devices:
            return (
                f"num_micro_batches: interleaved 1F1B needs at least {self.num_devices}, as many as devices; "
                "raise it"
            )
        return ""

    def _priced(self, found: PipelineLayout, row: LayoutRow) -> LayoutRow:
        """Return a row with what a layout takes, by its schedule."""
        placement = place_layout(found, self.layers, None, self.transfer_ms).placement
        schedule = validate(run(placement, found.num_chunks, self.num_micro_batches, row.group))
        peak_mib = placement.mib(int(peak_memory(schedule).max()))
        fits = self.memory_mib is None or peak_mib <= self.memory_mib
        if fits and self.memory_mib is not None:
            limited = place_layout(found, self.layers, self.memory_mib, self.transfer_ms).placement
            validate(schedule.under(limited))
        return replace(
            row,
            layout=write_notation(found),
            iteration_ms=placement.ms(schedule.makespan),
            peak_memory_mib=peak_mib,
            status=GIVEN if fits else DOES_NOT_FIT,
            found=found,
            schedule_found=schedule,
        )

    def _pieces(self) -> list[tuple[int, int]]:
        """Return the first and the last part of each piece; all parts of MTP are one."""
        parts = self.layers.parts
        first, number = parts.find(MTP), parts.count(MTP)
        pieces = [(i, i + 1) for i in range(len(parts)) if parts[i] != MTP]
        return pieces if not number else [*pieces[:-1], (first, first + number), pieces[-1]]

    def _problem(self, num_chunks: int, group: int | None) -> LayoutProblem:
        pieces, layers = self._pieces(), self.layers.layers

        def figures(name: str) -> tuple[int, ...]:
            of_parts = [int(rounded(getattr(each, name)) * 10**PLACES) for each in layers]
            least = 1 if name.endswith("_ms") else 0
            return tuple(max(least, sum(of_parts[first:end])) for first, end in pieces)

        return LayoutProblem(
            graph_of(self.num_devices, num_chunks, self.num_micro_batches, group),
            figures("forward_ms"),
            figures("backward_ms"),
            figures("activation_mib"),
            figures("weight_mib"),
            None if self.memory_mib is None else int(rounded(self.memory_mib) * 10**PLACES),
            int(rounded(self.transfer_ms) * 10**PLACES),
            len(pieces) - 2 if self.layers.num_mtp else None,
        )

    def _layout(self, sizes: Sizes) -> PipelineLayout:
        pieces, at, found = self._pieces(), 0, []
        for size in sizes:
            found.append(sum(end - first for first, end in pieces[at : at + size]))
            at += size
        return layout_of_sizes(self.num_devices, self.layers.parts, tuple(found))

    def _sizes(self, found: PipelineLayout) -> Sizes | None:
        """Return the pieces of each stage of a layout; None where it has an empty stage."""
        merged = max(self.layers.num_mtp - 1, 0)
        sizes = tuple(len(stage) - merged * (MTP in stage) for stage in found.stages)
        return sizes if min(sizes) > 0 else None


def _name(num_chunks: int) -> str:
    return "one_f_one_b" if num_chunks == 1 else "interleaved_one_f_one_b"
