"""The best layouts of a model for 1F1B and interleaved 1F1B, beside the even layout and given ones.

Every figure is that of the schedule itself, made by `schedsearch.baselines` and checked by
`schedsearch.validate`, which share no code with the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from placements.forms.reading import in_file
from placements.stages.layout_stages import PLACES, place_layout, rounded
from placements.trainers.layers import ModelLayers
from placements.trainers.layout import MTP, LayoutError, PipelineLayout, even_layout, layout_of_sizes
from placements.trainers.megatron_layout import MegatronPipeline, group_size, write_notation
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.layouts.defaults import NUM_CHUNKS, WORK_LIMIT
from schedsearch.layouts.layout_model import LayoutProblem, Sizes
from schedsearch.layouts.layout_search import best_layout
from schedsearch.layouts.order_graph import graph_of, run
from schedsearch.metrics import peak_memory
from schedsearch.results import TableResult
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.traces.measured_layers import read_measured
from schedsearch.validate import validate

PROVED, BOUNDED, GIVEN = "proved", "bounded", "given"
"""Status of a layout: proved the best, best so far with a bound, or given by the user."""

DOES_NOT_FIT, NOT_FOUND, NOT_APPLICABLE = "does not fit", "not found", "not applicable"
"""Status without a layout: proved that none fits the memory (or the given one does not fit); none found, but
no proof; the schedule has no layout of this size, or too few micro-batches."""


@dataclass(frozen=True)
class LayoutRow:
    """A layout with its iteration time (ms) and peak memory (MiB); None where a figure does not apply.

    Attributes:
        schedule: ``one_f_one_b`` or ``interleaved_one_f_one_b``.
        num_chunks: Virtual stages of each device.
        layout: In Megatron-LM's notation; empty where there is none.
        bound_ms: Lower bound on the iteration time of every layout for this schedule.
        even_ms: Time of the layout that frameworks make themselves; None where it does not fit, or the stages
            do not divide the layers.
        peak_memory_mib: Peak memory of the device that holds most.
        status: ``proved``, ``bounded``, ``given``, ``does not fit``, ``not found`` or ``not applicable``.
        note: Why there is no layout.
        group: Micro-batches of a group of interleaved 1F1B.
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
    pipeline: PipelineLayout | None = field(default=None, repr=False)
    group: int | None = None
    schedule_found: Schedule | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, object]:
        """Return its figures as plain data."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS = tuple(column.name for column in fields(LayoutRow))[:8]
"""Columns of the table."""


@dataclass(frozen=True)
class BestLayouts(TableResult):
    """The best layouts of a model.

    Attributes:
        num_micro_batches: Micro-batches of an iteration.
        rows: One for each number of chunks.
        given: One for each layout that was given, by its name.
        interrupted: A Ctrl-C ended the search; the rows are the best until then.
    """

    num_micro_batches: int
    rows: tuple[LayoutRow, ...]
    given: Mapping[str, LayoutRow]
    interrupted: bool = False

    @property
    def named_rows(self) -> tuple[tuple[str, LayoutRow], ...]:
        """All rows with names: best layouts by the name of the schedule, given layouts by their own names."""
        return (*((row.schedule, row) for row in self.rows), *self.given.items())

    @property
    def best(self) -> LayoutRow | None:
        """The fastest layout's row; None if no layout fits."""
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
) -> BestLayouts:
    """Return the best layouts of a model, by its layers' times and memory.

    Args:
        layers: The layers, or the path of their CSV file, or of what was measured; see
            `schedsearch.traces.measured_layers.read_measured`.
        num_devices: Devices of the pipeline.
        num_micro_batches: Micro-batches of an iteration.
        num_chunks: Virtual stages of each device: 1 for 1F1B, more for interleaved 1F1B; one number or some.
        memory_mib: Memory of each device for weights and activations; None for no limit.
        transfer_ms: Time from the end of a block to where its output is on the next device.
        given: Layouts of one's own by name, to put beside the best.
        work_limit: Units of work, of about a second each, for all numbers of chunks together.

    Raises:
        LayoutError: A number or a file is wrong, or a layout is of another model.
    """
    model = layers if isinstance(layers, ModelLayers) else read_measured(layers)
    if memory_mib is not None and not model.has_memory:
        raise LayoutError(
            "memory_mib: the layers have no memory, so that nothing is over it; fill activation_mib and "
            "weight_mib into the layers.csv that is written without memory_mib, and give that as layers"
        )
    chunks = (num_chunks,) if isinstance(num_chunks, int) else tuple(num_chunks)
    numbers: list[tuple[str, object]] = [("num_chunks", count) for count in chunks] or [("num_chunks", [])]
    numbers += [("num_devices", num_devices), ("num_micro_batches", num_micro_batches)]
    for name, value in numbers:
        if type(value) is not int or value < 1:
            raise LayoutError(f"{name}: {value!r} is not a whole number above 0; give one")
    limits = SharedLimits(work_limit, searches=len(set(chunks)))
    setting = _Setting(model, num_devices, num_micro_batches, memory_mib, transfer_ms)
    priced = {name: in_file(name, LayoutError)(setting.given)(own) for name, own in (given or {}).items()}
    rows = []
    with INTERRUPTS.answered() as ending:
        for number in dict.fromkeys(chunks):
            starts = [row.pipeline for row in priced.values() if row.pipeline and row.num_chunks == number]
            rows.append(setting.best(number, starts, limits))
    return BestLayouts(num_micro_batches, tuple(rows), priced, ending.interrupted)


@dataclass(frozen=True)
class _Setting:
    """A model, its devices and its micro-batches."""

    layers: ModelLayers
    num_devices: int
    num_micro_batches: int
    memory_mib: float | None
    transfer_ms: float

    def best(self, num_chunks: int, starts: Sequence[PipelineLayout], limits: SharedLimits) -> LayoutRow:
        """Return the row of the best layout with `num_chunks` chunks a device."""
        row = self._empty(num_chunks)
        if row.note:
            limits.searches -= 1
            return row
        if even := even_layout(self.num_devices, num_chunks, self.layers.parts):
            priced = self._priced(even, row)
            row = replace(row, even_ms=priced.iteration_ms if priced.status == GIVEN else None)
        sizes = map(self._sizes, (*starts, *([even] if even else [])))
        tried = [counts for counts in sizes if min(counts) > 0]
        answer = best_layout(self._problem(row), tried, limits.share()["work_limit"])
        limits.spend(answer.work)
        if answer.best is None:
            status, known = (DOES_NOT_FIT, "") if answer.is_proved else (NOT_FOUND, " that was found")
            note = f"memory_mib: no layout{known} fits in {self.memory_mib:g} MiB; give more, as 80GiB"
            return replace(row, status=status, note=note + ", or use num_chunks=1" * (num_chunks > 1))
        firsts = np.array([*self._pieces, len(self.layers.parts)])
        parts = np.diff(firsts[np.cumsum((0, *answer.best))])
        row = self._priced(layout_of_sizes(self.num_devices, self.layers.parts, tuple(parts.tolist())), row)
        assert row.iteration_ms is not None, "it fits"
        assert round(row.iteration_ms * 10**PLACES) == answer.ticks, "the schedule takes the searched time"
        bound_ms = math.ceil(min(answer.bound, answer.ticks)) / 10**PLACES
        return replace(row, bound_ms=bound_ms, status=PROVED if answer.is_proved else BOUNDED)

    def given(self, megatron: MegatronPipeline) -> LayoutRow:
        """Return the row of a layout that was given.

        Raises:
            LayoutError: It is of another model or number of devices, or has too few micro-batches.
        """
        pipeline, group = megatron
        if (count := pipeline.num_devices) != self.num_devices:
            raise LayoutError(f"has {count} pipeline ranks, not {self.num_devices}; give num_devices={count}")
        row = self._empty(pipeline.num_chunks)
        if row.note:
            raise LayoutError(row.note)
        group = group or row.group if pipeline.num_chunks > 1 else None
        return self._priced(pipeline, replace(row, group=group))

    def _empty(self, num_chunks: int) -> LayoutRow:
        """Return a row without a layout; if no layout is possible, its note has the reason."""
        p, m, pieces, note = self.num_devices, self.num_micro_batches, len(self._pieces), ""
        stages = p if p > pieces else p * num_chunks
        if stages > pieces:
            name = "num_chunks" if stages > p else "num_devices"
            note = f"{name}: {stages} stages are more than the {pieces} pieces of the model; use fewer"
        elif num_chunks > 1 and p == 1:
            note = "num_chunks: one device has one stage; use num_chunks=1"
        elif num_chunks > 1 and m < p:
            note = f"num_micro_batches: interleaved 1F1B needs at least {p}, as many as devices; raise it"
        group = group_size(p, m) if num_chunks > 1 and not note else None
        schedule = "interleaved_one_f_one_b" if num_chunks > 1 else "one_f_one_b"
        return LayoutRow(schedule, num_chunks, note=note, group=group)

    def _priced(self, pipeline: PipelineLayout, row: LayoutRow) -> LayoutRow:
        """Return a row with a layout's iteration time and peak memory, measured on its validated schedule."""
        placement = place_layout(pipeline, self.layers, None, self.transfer_ms).placement
        schedule = validate(run(placement, pipeline.num_chunks, self.num_micro_batches, row.group))
        peak_mib = placement.mib(int(peak_memory(schedule).max()))
        assert peak_mib is not None, "layers have memory"
        row = replace(row, layout=write_notation(pipeline), pipeline=pipeline, schedule_found=schedule)
        status = GIVEN if self.memory_mib is None or peak_mib <= self.memory_mib else DOES_NOT_FIT
        time_ms = placement.ms(schedule.makespan)
        return replace(row, iteration_ms=time_ms, peak_memory_mib=peak_mib, status=status)

    @property
    def _pieces(self) -> list[int]:
        """The first part of each piece; all parts of MTP are one."""
        parts = self.layers.parts
        return [i for i, part in enumerate(parts) if part != MTP or i == parts.find(MTP)]

    def _problem(self, row: LayoutRow) -> LayoutProblem:
        def ticks(value: float) -> int:
            return int(rounded(value) * 10**PLACES)

        names = ("forward_ms", "backward_ms", "activation_mib", "weight_mib")
        figures = [[ticks(getattr(layer, name)) for layer in self.layers.layers] for name in names]
        pieces = np.add.reduceat(np.array(figures), self._pieces, axis=1)
        pieces[:2] = np.maximum(pieces[:2], 1)
        graph = graph_of(self.num_devices, row.num_chunks, self.num_micro_batches, row.group)
        capacity = None if self.memory_mib is None else ticks(self.memory_mib)
        return LayoutProblem(graph, pieces, capacity, ticks(self.transfer_ms), self.layers.num_mtp > 0)

    def _sizes(self, pipeline: PipelineLayout) -> Sizes:
        """Return the pieces of each stage of a layout."""
        merged = max(self.layers.num_mtp - 1, 0)
        return tuple(len(stage) - merged * (MTP in stage) for stage in pipeline.stages)
