"""PipeDream's dynamic programme: the least time of the slowest stage, and the fewest stages that reach it.

Level by level from the innermost: what a component can do at best with all of its workers is what the level
above shares among components (Sec. 2.4.1). A pipeline of some components is one stage on all of them, or
the best pipeline of fewer and one last stage. The module does not know what else a plan costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placements.planners.pipedream.closed_sets import ClosedSets, Floats
from placements.planners.pipedream.plan import PlanPart, synchronisation_bytes
from placements.planners.pipedream.topology import Level

_MIB = 2**20

_ROUNDING = 1e-12
"""Rounding tolerance of a time that is summed in another order."""


@dataclass(frozen=True)
class PipelinePlace:
    """Where a component stands in the pipeline, which decides how many inputs its workers hold.

    Attributes:
        level: Level of the component; 0 is a worker.
        after: Workers of all stages behind it.
        copies: Components that do the same and take inputs in turn.
    """

    level: int
    after: int = 0
    copies: int = 1


@dataclass(frozen=True)
class StageTables:
    """The least times of pipelines on the components of each level, for one input.

    Attributes:
        sets: Where the model can be cut.
        levels: From the innermost to the outermost.
        sync: See `placements.planners.pipedream.plan.SYNCS`.
        memory_mib: Memory of each worker; None for no limit.
        is_replicated: Whether several workers may share a stage.
    """

    sets: ClosedSets
    levels: Sequence[Level]
    sync: str
    memory_mib: float | None = None
    is_replicated: bool = True
    _tables: dict[PipelinePlace, Floats] = field(default_factory=dict, init=False)

    def best(self) -> float:
        """Return the least value of the whole model on all workers; infinite where no plan fits."""
        return float(self._pipelines(PipelinePlace(len(self.levels)))[-1, 0, -1])

    def parts(self) -> tuple[PlanPart, ...]:
        """Return the parts of a pipeline that has it, from the outermost level on."""
        return self._parts(PipelinePlace(len(self.levels)), 0, len(self.sets) - 1)

    def _worker(self, place: PipelinePlace) -> Floats:
        """Return the value of each stage on a worker, infinite where none fits; shape ``(sets, sets)``."""
        if self.memory_mib is None:
            return self.sets.time_ms
        in_flight = math.ceil((place.after + place.copies) / place.copies)
        held = in_flight * (self.sets.parameter_bytes + self.sets.activation_bytes)
        return np.where(held <= self.memory_mib * _MIB, self.sets.time_ms, np.inf)

    def _shared(self, place: PipelinePlace, alone: Floats, sync_ms: Floats, copies: int) -> Floats:
        """Return likewise on several copies of a component, from the value on one and an exchange's time."""
        return np.maximum(alone, sync_ms) / copies

    def _handed_on(self, place: PipelinePlace, stage: Floats, transfer_ms: Floats) -> Floats:
        """Return likewise of a stage to which the nodes before it, the first index, hand their output."""
        return np.maximum(stage, transfer_ms[:, None])

    def _joined(self, before: Floats, last: Floats) -> Floats:
        """Return the value of a pipeline and one more stage."""
        return np.maximum(before, last)

    def _key(self, place: PipelinePlace) -> PipelinePlace:
        """Return the place that has the same values."""
        return PipelinePlace(place.level) if self.memory_mib is None else place

    def _pipelines(self, place: PipelinePlace) -> Floats:
        """Return the least value of a pipeline on each number of components of the level below.

        Returns:
            Shape ``(components + 1, firsts, sets)``: from the set `first` to another. Of the outermost level
            only the empty set is a first.
        """
        key = self._key(place)
        if key not in self._tables:
            self._tables[key] = self._computed(key)
        return self._tables[key]

    def _computed(self, place: PipelinePlace) -> Floats:
        count, size = self.levels[place.level - 1].count, len(self.sets)
        firsts = range(1 if place.level == len(self.levels) else size)
        found = np.full((count + 1, len(firsts), size), np.inf)
        for components in range(1, count + 1):
            if self.is_replicated or components == 1:
                found[components] = self._stage(place, components, components)[: len(firsts)]
            for copies in range(1, components if self.is_replicated else min(components, 2)):
                last = self._last_stage(place, components, copies)
                for first in firsts:
                    here = found[components, first, first:]
                    before = found[components - copies, first, first:, None]
                    np.minimum(here, self._joined(before, last[first:, first:]).min(axis=0), out=here)
        return found

    def _below(self, place: PipelinePlace, components: int, copies: int) -> PipelinePlace:
        """Return the place of a component of the last stage, where the pipeline has `components` by then."""
        workers = math.prod(level.count for level in self.levels[: place.level - 1])
        left = self.levels[place.level - 1].count - components
        return PipelinePlace(
            place.level - 1, place.after + place.copies * workers * left, place.copies * copies
        )

    def _stage(self, place: PipelinePlace, components: int, copies: int) -> Floats:
        """Return the value of each stage on several copies."""
        below = self._below(place, components, copies)
        alone = self._pipelines(below)[-1] if below.level else self._worker(below)
        sent = synchronisation_bytes(1.0, copies, self.sync) * self.sets.parameter_bytes
        return self._shared(place, alone, sent / self._bytes_per_ms(place), copies)

    def _last_stage(self, place: PipelinePlace, components: int, copies: int) -> Floats:
        """Return likewise, with the transfer to it."""
        transfer_ms = 2 * self.sets.cut_bytes / self._bytes_per_ms(place)
        return self._handed_on(place, self._stage(place, components, copies), transfer_ms)

    def _bytes_per_ms(self, place: PipelinePlace) -> float:
        return self.levels[place.level - 1].gb_per_s * 1e6

    def _parts(self, place: PipelinePlace, first: int, end: int) -> tuple[PlanPart, ...]:
        """Return the parts of the best pipeline of a stage on a component, found again from its value."""
        found: list[PlanPart] = []
        components = self.levels[place.level - 1].count
        while components:
            begin, copies = self._last(place, first, end, components)
            below = self._below(place, components, copies)
            inner = self._parts(below, begin, end) if below.level else ()
            found.append(PlanPart(begin, end, copies, inner))
            components, end = components - copies, begin
        return tuple(reversed(found))

    def _last(self, place: PipelinePlace, first: int, end: int, components: int) -> tuple[int, int]:
        """Return where the last stage begins, and its copies: all components, or as few as possible."""
        values = self._pipelines(place)
        least = values[components, first, end]
        may_share = self.is_replicated or components == 1
        if may_share and self._stage(place, components, components)[first, end] == least:
            return first, components
        for copies in range(1, components):
            last = self._last_stage(place, components, copies)[:, end]
            reached = self._joined(values[components - copies, first], last)
            if reached.min() == least:
                return int(reached.argmin()), copies
        raise AssertionError("the value of a pipeline is that with one of its last stages")


@dataclass(frozen=True)
class FewestStages(StageTables):
    """The fewest stages of pipelines that take at most a given time.

    Attributes:
        max_ms: For one input.
    """

    max_ms: float = math.inf

    def _worker(self, place: PipelinePlace) -> Floats:
        return np.where(self._is_within(super()._worker(place) / place.copies), 1.0, np.inf)

    def _shared(self, place: PipelinePlace, alone: Floats, sync_ms: Floats, copies: int) -> Floats:
        return np.where(self._is_within(sync_ms / (place.copies * copies)), alone, np.inf)

    def _handed_on(self, place: PipelinePlace, stage: Floats, transfer_ms: Floats) -> Floats:
        return np.where(self._is_within(transfer_ms / place.copies)[:, None], stage, np.inf)

    def _joined(self, before: Floats, last: Floats) -> Floats:
        return before + last

    def _key(self, place: PipelinePlace) -> PipelinePlace:
        return PipelinePlace(place.level, 0, place.copies) if self.memory_mib is None else place

    def _is_within(self, time_ms: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return time_ms <= self.max_ms * (1 + _ROUNDING)
