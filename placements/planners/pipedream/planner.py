"""PipeDream's planner: stages and their workers with the least time of the slowest stage.

It also makes the two usual plans: data parallel, and a straight pipeline, with a stage for each worker. The
answer is exact for the cost model (Sec. 2.4.1), which has no start-up and no idle time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from placements.planners.division import Floats
from placements.planners.hybrid.plan import PlanError
from placements.planners.pipedream.plan import Level, PipelinePlan, PlannedStage
from placements.planners.pipedream.profile_graph import ClosedSets, ProfiledNode, ProfileGraph, closed_sets

MAX_WORKERS = 1024

Sync = Literal["per_worker", "printed"]
"""Rule for the exchange of gradients: bytes of each worker, as in PipeDream's prose, or the printed formula,
which counts the bytes of all workers as if these shared one link."""

_MIB = 2**20

_ROUNDING = 1e-12
"""Rounding tolerance of a time that is summed in another order."""


def best_plan(
    graph: ProfileGraph,
    levels: Sequence[Level],
    sync: Sync = "per_worker",
    memory_mib: float | None = None,
    *,
    is_replicated: bool = True,
    is_cut: bool = True,
) -> PipelinePlan:
    """Return the plan of least time for one input, on all workers.

    Where several plans are equally good, it is one of fewest stages, with few workers for the last ones.

    Args:
        graph: The model; see `placements.planners.pipedream.profile_graph.read_profile_graph`.
        levels: Workers, from the innermost level to the outermost; at least one.
        sync: How the exchange of gradients counts.
        memory_mib: Memory of each worker, for weights and activations of all inputs in flight; None for no
            limit.
        is_replicated: Whether workers may share a stage; False for a straight pipeline.
        is_cut: Whether there may be several stages; False for data parallelism.

    Raises:
        PlanError: There are too many workers, or no plan fits the memory or has a node for each worker.

    >>> from placements.planners.pipedream.profile_graph import ProfiledNode, chain_graph
    >>> layers = [(6, 8e6, 0), (6, 1e6, 1e5), (4, 0, 8e7)]
    >>> graph = chain_graph(ProfiledNode(f"{i}", "", 1, t - 1, a, w) for i, (t, a, w) in enumerate(layers))
    >>> plan = best_plan(graph, [Level(4, gb_per_s=1.0)])
    >>> plan.configuration, plan.bottleneck
    ('3-1', (4.0, 'compute', 0))
    """
    workers = _num_workers(levels)
    if workers > MAX_WORKERS:
        raise PlanError(f"levels: have {workers} workers; give at most {MAX_WORKERS} in all levels together")
    if not is_replicated and workers > len(graph.nodes):
        fault = f"have {workers} workers for {len(graph.nodes)} nodes"
        raise PlanError(f"levels: {fault}; give at most one worker for each")
    sets = closed_sets(graph, is_cut=is_cut)
    whole = _Component(len(levels))
    programme = _Programme(sets, levels, sync, memory_mib, is_replicated)
    min_ms = float(programme.pipelines(whole)[-1, 0, -1])
    if not math.isfinite(min_ms):
        fault = f"{memory_mib:g} is too little for any plan"
        raise PlanError(f"memory_mib: {fault}; give more memory or workers, or smaller inputs")
    fewest = replace(programme, max_ms=min_ms * (1 + _ROUNDING))
    stages = [*fewest.stages(whole, 0, len(sets.members) - 1, 0.0, (0.0, 0.0))]
    return PipelinePlan(tuple(stages[::-1]), sets.is_complete)


def _num_workers(levels: Sequence[Level]) -> int:
    return math.prod(level.count for level in levels)


class _Component(NamedTuple):
    """The place of a component in the pipeline, which decides the number of inputs that its workers hold.

    Attributes:
        level: Level of the component; 0 is a worker.
        after: Workers of all stages behind it.
        copies: Components that do the same and take inputs in turn.
    """

    level: int
    after: int = 0
    copies: int = 1

    @property
    def in_flight(self) -> int:
        """Inputs that a worker holds at most."""
        return math.ceil((self.after + self.copies) / self.copies)


@dataclass(frozen=True)
class _Programme:
    """PipeDream's dynamic programme: the least time of the slowest stage, or the fewest stages in a time.

    Level by level from the innermost: the best value of a component with all of its workers is an input of
    the level above (Sec. 2.4.1). A pipeline of some components is one stage on all of
    them, or the best pipeline of fewer and one last stage.

    Attributes:
        max_ms: Most time for one input: values are numbers of stages then; None: values are times.
    """

    sets: ClosedSets
    levels: Sequence[Level]
    sync: Sync
    memory_mib: float | None
    is_replicated: bool
    max_ms: float | None = None
    _tables: dict[_Component, Floats] = field(default_factory=dict, init=False)

    def _cost(self, time_ms: Floats) -> Floats:
        """Return the value of times for one input; with a limit, 0 or infinite."""
        return time_ms if self.max_ms is None else np.where(time_ms <= self.max_ms, 0.0, np.inf)

    def _joined(self, one: Floats, other: Floats) -> Floats:
        return np.maximum(one, other) if self.max_ms is None else one + other

    def pipelines(self, place: _Component) -> Floats:
        """Return the least value of a pipeline on each number of components of the level below.

        Its shape is ``(components + 1, firsts, sets)``: from the set `first` to another. Of the outermost
        level only the empty set is a first. Infinite where nothing fits.
        """
        place = place if self.memory_mib is not None else place._replace(after=0)
        if place in self._tables:
            return self._tables[place]
        if self.memory_mib is None and self.max_ms is None and place.copies > 1:
            return self._tables.setdefault(place, self.pipelines(_Component(place.level)) / place.copies)
        count, size = self.levels[place.level - 1].count, len(self.sets.members)
        firsts = range(1 if place.level == len(self.levels) else size)
        self._tables[place] = table = np.full((count + 1, len(firsts), size), np.inf)
        for components in range(1, count + 1):
            if self.is_replicated or components == 1:
                table[components] = self._stage(place, components, components)[: len(firsts)]
            for copies in range(1, components if self.is_replicated else min(components, 2)):
                last = self._last_stage(place, components, copies)
                for first in firsts:
                    here = table[components, first, first:]
                    before = table[components - copies, first, first:, None]
                    np.minimum(here, self._joined(before, last[first:, first:]).min(axis=0), out=here)
        return table

    def _below(self, place: _Component, components: int, copies: int) -> _Component:
        """Return the place of a component of the last stage, in a pipeline of `components` components."""
        workers = _num_workers(self.levels[: place.level - 1])
        left = self.levels[place.level - 1].count - components
        return _Component(place.level - 1, place.after + place.copies * workers * left, place.copies * copies)

    def _stage(self, place: _Component, components: int, copies: int) -> Floats:
        """Return the value of each stage on several copies; shape ``(sets, sets)``."""
        below, sets = self._below(place, components, copies), self.sets
        if below.level:
            alone = self.pipelines(below)[-1]
        else:
            alone = self._cost(sets.time_ms / below.copies) + (self.max_ms is not None)
            if self.memory_mib is not None:
                held = below.in_flight * (sets.parameter_bytes + sets.activation_bytes)
                alone = np.where(held <= self.memory_mib * _MIB, alone, np.inf)
        return self._joined(alone, self._cost(self._sync_ms(place, copies)))

    def _last_stage(self, place: _Component, components: int, copies: int) -> Floats:
        """Return the value of each last stage with the transfer from the nodes before, the first index."""
        transfer_ms = 2 * self.levels[place.level - 1].ms(self.sets.cut_bytes) / place.copies
        return self._joined(self._stage(place, components, copies), self._cost(transfer_ms)[:, None])

    def _sync_ms(self, place: _Component, copies: int) -> Floats:
        """Return the time for one input of an exchange of gradients between copies (Sec. 2.4.1).

        Each worker sends and receives ``(copies - 1) / copies`` of the parameters; the printed formula
        leaves the division out.
        """
        sent = 2 * (copies - 1) / (copies if self.sync == "per_worker" else 1)
        sent_ms = self.levels[place.level - 1].ms(sent * self.sets.parameter_bytes)
        return sent_ms / (place.copies * copies)

    def _last(self, place: _Component, first: int, end: int, components: int) -> tuple[int, int]:
        """Return the first set and the copies of the last stage of least value: all components, or fewest."""
        values = self.pipelines(place)
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

    def stages(
        self, place: _Component, first: int, end: int, sync_ms: float, cut: tuple[float, float]
    ) -> Iterator[PlannedStage]:
        """Yield the stages of a component between two sets, the last one first.

        Its own copies exchange gradients, which holds up every stage in it; the cut is the transfer after its
        last stage.
        """
        level, sets = self.levels[place.level - 1], self.sets
        components = level.count
        while components:
            begin, copies = self._last(place, first, end, components)
            below = self._below(place, components, copies)
            held_up_ms = max(sync_ms, float(self._sync_ms(place, copies)[begin, end]))
            if below.level:
                yield from self.stages(below, begin, end, held_up_ms, cut)
            else:
                inside = np.flatnonzero(sets.members[end] & ~sets.members[begin])
                nodes = [sets.nodes[i] for i in inside]
                names = tuple(node.name for node in nodes)
                times_ms = _sum(nodes, "forward_ms"), _sum(nodes, "backward_ms")
                held = _sum(nodes, "parameter_bytes"), _sum(nodes, "activation_bytes")
                yield PlannedStage(names, below.copies, *times_ms, held_up_ms, *cut, *held, below.in_flight)
            components, end = components - copies, begin
            hop_ms = level.ms(float(sets.cut_bytes[begin]))
            cut = 2 * hop_ms / place.copies, hop_ms


def _sum(nodes: Sequence[ProfiledNode], name: str) -> float:
    return math.fsum(getattr(node, name) for node in nodes)
