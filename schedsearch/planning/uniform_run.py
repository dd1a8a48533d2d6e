"""A layout as a training framework runs it: its stages as blocks, and a hand-made schedule that times them.

The time of an iteration is that of a schedule, with every rule checked, and what stands outside it. The
module does not know what a layer costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from placements import Kind, Placement
from placements.cluster import Cluster, DeviceGroup
from placements.layouts.megatron_arguments import group_size
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_memory
from placements.models.costing.options import CostOptions
from placements.models.layers import Layer
from placements.models.memory import STATE_KINDS, MemoryItem, MemoryKind
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.piece_placement import PieceCost
from placements.pieces import PIPELINES
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.plan import Plan, layers_of_stage
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.uniform import Layout, chunk_sizes, uniform_plan
from placements.planners.parallel_plan import PlanError
from schedsearch.baselines import HAND_MADE, NEEDS, interleaved_one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.validate import validate

_MAX_BLOCKS = 2_000_000
"""Blocks of a schedule that is made; more would take minutes and gigabytes."""

_UNLIMITED = 100.0
"""Memory of a device, of its GPU's: what does not fit is timed too."""


@dataclass(frozen=True)
class Factors:
    """Factors on modelled times, from a run of the user's.

    Attributes:
        compute: Factor of products and what runs between them.
        communication: Factor of what GPUs exchange.
    """

    compute: float = 1.0
    communication: float = 1.0

    def of(self, cost: Cost) -> Cost:
        """Return a cost with longer or shorter times."""
        return replace(
            cost,
            forward=self._of_pass(cost.forward),
            backward=self._of_pass(cost.backward),
            update_ms=self.communication * cost.update_ms,
            scatter_ms=self.communication * cost.scatter_ms,
            gather_ms=self.communication * cost.gather_ms,
        )

    def _of_pass(self, one: Pass) -> Pass:
        return Pass(self.compute * one.product_ms, self.communication * one.copy_ms)


NO_FACTORS = Factors()
"""Times as modelled."""


@dataclass(frozen=True)
class _FactoredCosts(ShapeCosts):
    """Costs by shape, multiplied."""

    factors: Factors = NO_FACTORS

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs."""
        return self.factors.of(super().cost(layer, strategy, samples, num_micro_batches, group))


class StageTensor(NamedTuple):
    """Tensors of one name on a GPU of a stage.

    Attributes:
        kind: See `placements.models.memory.MemoryKind`.
        name: What they are.
        gib: GiB of all of them together.
        held: Micro-batches of which they are held, of several chunks the most; 1 of states.
        rule: How they are counted.
    """

    kind: str
    name: str
    gib: float
    held: int
    rule: str


class StageEnd(NamedTuple):
    """What a stage does after its last backward.

    Attributes:
        backward_ms: When that ends.
        step_ms: Update of the weights; with all exchanges, where these do not run beside the pipeline.
        scatter_ms: Sum of gradients that the pipeline does not hide.
        gather_ms: Gathering of new weights, likewise.
        slowdown_ms: What products take longer for exchanges beside them.
    """

    backward_ms: float
    step_ms: float
    scatter_ms: float = 0.0
    gather_ms: float = 0.0
    slowdown_ms: float = 0.0

    @property
    def ms(self) -> float:
        """When all of it is done."""
        return self.backward_ms + self.scatter_ms + self.step_ms + self.gather_ms + self.slowdown_ms


@dataclass(frozen=True)
class UniformRun:
    """A model on a cluster under a layout.

    Attributes:
        model: Its layers.
        cluster: Its GPUs.
        layout: How they share it.
        options: What GPUs reach, and the framework.
        overlap: Gradients are summed, and new weights gathered, beside the pipeline. None: where the GPUs
            that hold the same weights are in several nodes, as large runs are configured; Megatron-LM does
            it only when asked.
        factors: Factors on times.
        schedule_name: A key of `schedsearch.baselines.HAND_MADE`; None for 1F1B, interleaved with several
            chunks.
    """

    model: ModelShape
    cluster: Cluster
    layout: Layout
    options: CostOptions = field(default_factory=CostOptions)
    overlap: bool | None = None
    factors: Factors = NO_FACTORS
    schedule_name: str | None = None

    @cached_property
    def plan(self) -> Plan:
        """Its layers on its GPUs.

        Raises:
            ValueError: A degree does not divide.
        """
        return uniform_plan(self.model, self.cluster, self.layout)

    @cached_property
    def overlaps_exchanges(self) -> bool:
        """Gradients are summed, and new weights gathered, beside the pipeline."""
        if self.overlap is not None:
            return self.overlap
        group = self.plan.group(0)
        return not group.fits_in_nodes(group.count)

    @cached_property
    def costs(self) -> ShapeCosts:
        """What its layers cost."""
        options = replace(self.options, exchanges_apart=self.overlaps_exchanges)
        return _FactoredCosts(self.model, options, self.factors)

    @cached_property
    def chunks(self) -> tuple[range, ...]:
        """The layers of each chunk."""
        degrees = self.layout.degrees
        sizes = chunk_sizes(self.model, degrees.pipeline * degrees.chunks)
        return tuple(range(first, end) for first, end in pairwise(accumulate(sizes, initial=0)))

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The stage of each chunk: they go around the devices, or to and fro where the schedule asks."""
        degrees = self.layout.degrees
        shape = "wave_shape" if self._needs[0] == "wave_shape" else "loop_shape"
        if degrees.chunks == 1:
            return tuple(range(degrees.pipeline))
        (found,) = PIPELINES[shape](degrees.pipeline, degrees.chunks)
        return tuple(found)

    @property
    def _name(self) -> str:
        degrees = self.layout.degrees
        usual = "one_f_one_b" if 1 in (degrees.chunks, degrees.pipeline) else "interleaved_one_f_one_b"
        return usual if self.schedule_name is None else self.schedule_name

    @property
    def _needs(self) -> tuple[str, bool]:
        if self._name not in NEEDS:
            raise PlanError(f"schedule: {self._name!r} is not known; use one of {', '.join(NEEDS)}")
        return NEEDS[self._name]

    @cached_property
    def pieces(self) -> list[PieceCost]:
        """What its stages or chunks cost."""
        pieces = chunk_pieces(self.plan, self.costs, self.chunks, self.devices, are_whole=True)
        if not self._needs[1]:
            return pieces
        return [
            piece._replace(weight_share=_weight_share(self.layers_of(chunk)))
            for piece, chunk in zip(pieces, self.chunks, strict=True)
        ]

    def layers_of(self, chunk: range) -> list[tuple[Layer, LayerStrategy]]:
        """Return the layers of a chunk and how each is shared."""
        layers = layers_of_stage(self.model.layers, chunk.start, chunk.stop)
        return list(zip(layers, self.plan.strategies[chunk.start : chunk.stop], strict=True))

    @cached_property
    def placement(self) -> Placement:
        """Its pieces as blocks, on devices that have any memory."""
        plan = self.plan
        gib = [_UNLIMITED * plan.group(0).memory_gib] * plan.num_stages
        return placement_of_pieces(f"{self.model.name} run", plan, self.pieces, gib)

    @cached_property
    def schedule(self) -> Schedule:
        """Its schedule, with every rule checked.

        Raises:
            PlanError: It has too many blocks.
            UnsuitablePlacementError: There are fewer micro-batches than it needs.
        """
        number = self.layout.num_micro_batches
        if (count := len(self.placement.blocks) * number) > _MAX_BLOCKS:
            raise PlanError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated; use fewer")
        return validate(self._made(number))

    def _made(self, number: int) -> Schedule:
        """Return the hand-made schedule; interleaved 1F1B in the groups that Megatron-LM is told."""
        placement, num_devices = self.placement, self.layout.degrees.pipeline
        if self._name != interleaved_one_f_one_b.__name__ or number < num_devices:
            return HAND_MADE[self._name](placement, number)
        found = interleaved_one_f_one_b(placement.per_micro_batch, number, group_size(num_devices, number))
        return with_optimizer(placement, found)

    @cached_property
    def iteration_ms(self) -> float:
        """Time of an iteration: the last of its devices' updates, and what no pipeline hides of exchanges."""
        return max(end.ms for end in self.ends)

    @cached_property
    def ends(self) -> tuple[StageEnd, ...]:
        """What each stage does after its last backward.

        A chunk's gradients are summed when its last backward has run, one chunk after the other. A device's
        weights are updated when all are, and the next iteration begins when those of its first chunk are
        gathered. What runs beside products slows them down (Galvatron-BMW, Sec. V).
        """
        placement, starts = self.placement, self.schedule.start_of
        last, slowdown = self.layout.num_micro_batches - 1, self.costs.options.overlap_slowdown - 1
        found = []
        for update in sorted(placement.optimizer_blocks, key=lambda block: block.devices):
            step_ms = placement.ms(update.time)
            if not self.overlaps_exchanges:
                found.append(StageEnd(placement.ms(starts[update.name, last]), step_ms))
                continue
            costs = [piece.cost for piece in self.pieces if piece.devices == update.devices]
            numbers = [i for i, piece in enumerate(self.pieces) if piece.devices == update.devices]
            blocks = [placement.by_name[f"{'W' if self._needs[1] else 'B'}{i}"] for i in numbers]
            ends_ms = [placement.ms(starts[block.name, last] + block.time) for block in blocks]
            now_ms = 0.0
            for end_ms, cost in sorted(zip(ends_ms, costs, strict=True), key=lambda each: each[0]):
                now_ms = max(now_ms, end_ms) + cost.scatter_ms
            scatter_ms, gather_ms = now_ms - max(ends_ms), costs[0].gather_ms
            whole_ms = sum(cost.scatter_ms + cost.gather_ms for cost in costs)
            hidden_ms = max(whole_ms - scatter_ms - gather_ms, 0.0)
            found.append(StageEnd(max(ends_ms), step_ms, scatter_ms, gather_ms, slowdown * hidden_ms))
        return tuple(found)

    @cached_property
    def gib_by_stage(self) -> tuple[float, ...]:
        """The most that a GPU of each stage holds."""
        return tuple(self.placement.mib(int(most)) / 1024 for most in peak_memory(self.schedule))

    def memory(self, stage: int) -> Iterator[StageTensor]:
        """Yield the tensors of a stage by kind, largest first in each.

        What its chunks keep is counted for as many micro-batches as each holds when the stage holds most.
        Where that is in a backward, layers whose backward has run already keep nothing of its micro-batch.

        Args:
            stage: Its number.
        """
        held, running = self._at_peak(stage)
        sums: dict[tuple[str, str, str], tuple[float, int]] = {}
        for chunk in (i for i, device in enumerate(self.devices) if device == stage):
            items = self._items(stage, chunk)
            last = _last_at_peak(items) if chunk == running else -1
            for i, of_layer in enumerate(items):
                for item in of_layer:
                    count = held.get(chunk, 0) + (i <= last) if item.kind == "kept" else 1
                    key, size = (item.kind, item.name, item.rule), count * item.num_bytes
                    before, most = sums.get(key, (0.0, 0))
                    if item.kind == "buffer":
                        sums[key] = size, 1
                    elif item.kind != "backward" or i == last:
                        sums[key] = before + size, max(most, count)
        order = (*STATE_KINDS, "kept", "backward", "buffer")
        for (kind, name, rule), (size, count) in sorted(
            sums.items(), key=lambda each: (order.index(each[0][0]), -each[1][0])
        ):
            if size:
                yield StageTensor(kind, name, size / 2**30, count, rule)

    def _at_peak(self, stage: int) -> tuple[dict[int, int], int | None]:
        """Return what a stage does when it holds most.

        Returns:
            Of how many micro-batches each chunk keeps tensors, without the one whose backward runs; and the
            chunk of that backward, None where a forward runs.
        """
        placement, held = self.placement, Counter[int]()
        most, found = -1.0, dict[int, int]()
        running: int | None = None
        for name, _ in self.schedule.order(stage):
            block = placement.by_name[name]
            if block.kind in (Kind.O, Kind.I):
                continue
            chunk, is_backward = int(name[1:]), block.kind in (Kind.B, Kind.W)
            cost = self.pieces[chunk].cost
            held[chunk] += -1 if is_backward else 1
            kept = sum(count * self.pieces[i].cost.kept_bytes for i, count in held.items())
            total = kept + (cost.backward_peak_bytes if is_backward else cost.forward_bytes)
            if total > most:
                most, found, running = total, dict(held), chunk if is_backward else None
        return found, running

    def _items(self, stage: int, chunk: int) -> list[tuple[MemoryItem, ...]]:
        """Return the tensors of each layer of a chunk."""
        plan, options = self.plan, self.costs.options
        sizes = plan.micro_batch_size, plan.num_micro_batches
        return [
            layer_memory(layer, strategy, *sizes, plan.group(stage), options)
            for layer, strategy in self.layers_of(self.chunks[chunk])
        ]


def _last_at_peak(items: list[tuple[MemoryItem, ...]]) -> int:
    """Return the layer in whose backward a chunk holds most; see `Cost.backward_peak_bytes`."""
    kept, most, found = 0.0, -1.0, 0
    for i, of_layer in enumerate(items):
        kept += _num_bytes(of_layer, "kept")
        if kept + _num_bytes(of_layer, "backward") > most:
            most, found = kept + _num_bytes(of_layer, "backward"), i
    return found


def _num_bytes(items: Iterable[MemoryItem], kind: MemoryKind) -> float:
    return sum(item.num_bytes for item in items if item.kind == kind)


def _weight_share(layers: Iterable[tuple[Layer, LayerStrategy]]) -> float:
    """Return the share of a backward's operations that compute gradients of weights: cores have none."""
    products = cores = 0.0
    for layer, strategy in layers:
        t = strategy.matrix_parallel
        core = layer.core_flops(t)
        products += layer.forward_flops(t) - core
        cores += core
    return products / (2 * (products + cores)) if products else 0.0
