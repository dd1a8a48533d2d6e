"""PipeDream's dynamic programme: the least time of the slowest stage, for every part of a model.

Level by level from the innermost: what a component can do at best with all of its workers is what the level
above shares among components (Sec. 3.1.2). A pipeline of m components is one stage on all of them, or the
best pipeline of fewer and one last stage. The module does not know what else a plan costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placements.planners.pipedream.closed_sets import ClosedSets, Floats
from placements.planners.pipedream.plan import Part, synchronisation_bytes
from placements.planners.pipedream.topology import Level

_MIB = 2**20


@dataclass(frozen=True)
class _Place:
    """A component in the pipeline, which decides how many inputs its workers hold.

    Attributes:
        level: Of the component; 0 is a worker.
        after: Workers of all stages behind it.
        copies: Components that do the same and take inputs in turn.
    """

    level: int
    after: int = 0
    copies: int = 1


@dataclass(frozen=True)
class StageTables:
    """The best pipelines on the components of each level.

    Attributes:
        sets: Where the model can be cut.
        levels: From the innermost to the outermost.
        sync: See `placements.planners.pipedream.plan.SYNCS`.
        memory_mib: Of each worker; None for no limit.
        is_replicated: Whether several workers may share a stage.
    """

    sets: ClosedSets
    levels: Sequence[Level]
    sync: str
    memory_mib: float | None = None
    is_replicated: bool = True
    _tables: dict[_Place, Floats] = field(default_factory=dict)

    def best(self) -> tuple[Part, ...] | None:
        """Return the parts of the best pipeline of the whole model; None where none fits."""
        top, end = _Place(len(self.levels)), len(self.sets) - 1
        if not math.isfinite(self._pipelines(top)[-1, 0, end]):
            return None
        return self._parts(top, 0, end)

    def _component(self, place: _Place) -> Floats:
        """Return the least time of each stage on a whole component; shape ``(sets, sets)``."""
        if place.level > 0:
            return self._pipelines(place)[-1]
        if self.memory_mib is None:
            return self.sets.time_ms
        in_flight = math.ceil((place.after + place.copies) / place.copies)
        held = in_flight * (self.sets.parameter_bytes + self.sets.activation_bytes)
        return np.where(held <= self.memory_mib * _MIB, self.sets.time_ms, np.inf)

    def _pipelines(self, place: _Place) -> Floats:
        """Return the least time of a pipeline on so many components of the level below.

        Returns:
            Shape ``(components + 1, firsts, sets)``: from the set `first` to another. Of the outermost level
            only the empty set is a first.
        """
        if self.memory_mib is None:
            place = _Place(place.level)
        if place not in self._tables:
            self._tables[place] = self._computed(place)
        return self._tables[place]

    def _computed(self, place: _Place) -> Floats:
        count, size = self.levels[place.level - 1].count, len(self.sets)
        firsts = range(1 if place.level == len(self.levels) else size)
        found = np.full((count + 1, len(firsts), size), np.inf)
        for components in range(1, count + 1):
            if self.is_replicated or components == 1:
                found[components] = self._stage(place, components, components)[: len(firsts)]
            for copies in range(1, components if self.is_replicated else min(components, 2)):
                last = self._last_stage(place, components, copies)
                for first in firsts:
                    before, here = found[components - copies, first, first:], last[first:, first:]
                    best = np.maximum(before[:, None], here).min(axis=0)
                    np.minimum(found[components, first, first:], best, out=found[components, first, first:])
        return found

    def _below(self, place: _Place, components: int, copies: int) -> _Place:
        """Return the place of a component of the last stage, where the pipeline has so many by then."""
        workers = math.prod(level.count for level in self.levels[: place.level - 1])
        left = self.levels[place.level - 1].count - components
        return _Place(place.level - 1, place.after + place.copies * workers * left, place.copies * copies)

    def _stage(self, place: _Place, components: int, copies: int) -> Floats:
        """Return the time of each stage on several copies, for one input."""
        alone = self._component(self._below(place, components, copies))
        sent = synchronisation_bytes(1.0, copies, self.sync) * self.sets.parameter_bytes
        return np.maximum(alone, sent / (self.levels[place.level - 1].gb_per_s * 1e6)) / copies

    def _last_stage(self, place: _Place, components: int, copies: int) -> Floats:
        """Return likewise, or the time of the transfer to it where that is longer."""
        transfer_ms = 2 * self.sets.cut_bytes / (self.levels[place.level - 1].gb_per_s * 1e6)
        return np.maximum(self._stage(place, components, copies), transfer_ms[:, None])

    def _parts(self, place: _Place, first: int, end: int) -> tuple[Part, ...]:
        """Return the parts of the best pipeline of a stage on a component, found again from its time."""
        found: list[Part] = []
        components = self.levels[place.level - 1].count if place.level else 0
        while components:
            begin, copies = self._last(place, first, end, components)
            below = self._below(place, components, copies)
            inner = self._parts(below, begin, end) if below.level else ()
            found.append(Part(begin, end, copies, inner))
            components, end = components - copies, begin
        return tuple(reversed(found))

    def _last(self, place: _Place, first: int, end: int, components: int) -> tuple[int, int]:
        """Return where the last stage begins, and its copies: all components where that is as good."""
        times = self._pipelines(place)
        least = times[components, first, end]
        may_share = self.is_replicated or components == 1
        if may_share and self._stage(place, components, components)[first, end] == least:
            return first, components
        for copies in range(1, components):
            last = self._last_stage(place, components, copies)[:, end]
            reached = np.maximum(times[components - copies, first], last)
            if reached.min() == least:
                return int(reached.argmin()), copies
        raise AssertionError("the time of a pipeline is that of one of its last stages")
