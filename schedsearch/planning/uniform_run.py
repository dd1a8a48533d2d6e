"""A layout as a training framework runs it: its stages as blocks, and a hand-made schedule that times them.

An iteration's time is a schedule's makespan, with every rule checked, plus the exchanges outside it. The
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
from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_memory
from placements.models.costing.options import CostOptions
from placements.models.layers import Layer
from placements.models.memory import STATE_KINDS, MemoryItem
from placements.models.parallel import LayerStrategy
from placements.models.piece_placement import PieceCost
from placements.pieces import PIPELINES
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.plan import Plan, PlanError, layers_of_stage
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.uniform import Layout, chunk_sizes, uniform_plan
from placements.trainers.megatron_layout import group_size
from schedsearch.baselines import HAND_MADE, NEEDS, interleaved_one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.validate import validate

_MAX_BLOCKS = 2_000_000
"""Most blocks of a schedule; more would take minutes and gigabytes."""

UNLIMITED = 100.0
"""Memory limit as a multiple of the GPU's memory, so high that layouts that do not fit are timed too."""


NEAR_TIE = 0.01
"""Share by which an iteration may be longer and still counts as equal: costs are no more exact. Of equal
plans the simplest comes first."""


class StageTensor(NamedTuple):
    """Tensors of one name on a GPU of a stage, with their size in GiB.

    Attributes:
        kind: See `placements.models.memory.MemoryKind`.
        name: Name of the tensors.
        gib: GiB of all of them together.
        held: Micro-batches of which they are held, of several chunks the most; 1 of states.
        rule: The rule in words by which they are counted.
    """

    kind: str
    name: str
    gib: float
    held: int
    rule: str


@dataclass(frozen=True)
class UniformRun:
    """A model on a cluster under a layout of a training framework.

    Attributes:
        model: Its layers.
        cluster: Its GPUs.
        layout: Degrees of parallelism, stages and micro-batches.
        options: Rates of the GPUs, and the framework.
        overlap: Gradients are summed, and new weights gathered, beside the pipeline. None: where the GPUs
            that hold the same weights are in several nodes, as large runs are configured; Megatron-LM does
            it only when asked.
        schedule_name: A key of `schedsearch.baselines.HAND_MADE`; None for 1F1B, interleaved with several
            chunks.
    """

    model: ModelShape
    cluster: Cluster
    layout: Layout
    options: CostOptions = field(default_factory=CostOptions)
    overlap: bool | None = None
    schedule_name: str | None = None

    @cached_property
    def plan(self) -> Plan:
        """The layout as a plan: the model's layers on the cluster's GPUs.

        Raises:
            ValueError: A degree does not divide.
        """
        return uniform_plan(self.model, self.cluster, self.layout)

    @cached_property
    def overlaps_exchanges(self) -> bool:
        """Whether gradients are summed, and new weights gathered, beside the pipeline."""
        group = self.plan.group(0)
        return not group.fits_in_nodes(group.count) if self.overlap is None else self.overlap

    @cached_property
    def costs(self) -> ShapeCosts:
        """Costs of the model's layers."""
        return ShapeCosts(self.model, replace(self.options, exchanges_apart=self.overlaps_exchanges))

    @cached_property
    def chunks(self) -> tuple[range, ...]:
        """The layers of each chunk."""
        number = self.layout.degrees.pipeline * self.layout.degrees.chunks
        sizes = self.layout.chunk_layers or chunk_sizes(self.model, number)
        return tuple(range(first, end) for first, end in pairwise(accumulate(sizes, initial=0)))

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The stage of each chunk: chunks loop over the devices, or go to and fro for a wave schedule."""
        degrees = self.layout.degrees
        shape = "wave_shape" if self._needs[0] == "wave_shape" else "loop_shape"
        (found,) = PIPELINES["v_shape" if degrees.chunks == 1 else shape](degrees.pipeline, degrees.chunks)
        return tuple(found)

    def chunks_on(self, stage: int) -> list[int]:
        """Return the numbers of a stage's chunks."""
        return [i for i, device in enumerate(self.devices) if device == stage]

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
        """Costs of the stages, or of the chunks."""
        pieces = chunk_pieces(self.plan, self.costs, self.chunks, self.devices, are_whole=True)
        if not self._needs[1]:
            return pieces
        return [
            piece._replace(weight_share=_weight_share(self.layers_of(chunk)))
            for piece, chunk in zip(pieces, self.chunks, strict=True)
        ]

    def layers_of(self, chunk: range) -> list[tuple[Layer, LayerStrategy]]:
        """Return the layers of a chunk, each with its strategy."""
        layers = layers_of_stage(self.model.layers, chunk.start, chunk.stop)
        return list(zip(layers, self.plan.strategies[chunk.start : chunk.stop], strict=True))

    @property
    def load_ms(self) -> float:
        """Time that the fullest stage computes: no schedule of this placement is shorter."""
        each_ms = [piece.cost.forward.time_ms + piece.cost.backward.time_ms for piece in self.pieces]
        stages = range(self.layout.degrees.pipeline)
        return self.layout.num_micro_batches * max(sum(each_ms[i] for i in self.chunks_on(s)) for s in stages)

    @cached_property
    def placement(self) -> Placement:
        """The placement of the layout's stages or chunks, on devices with practically unlimited memory."""
        gib = [UNLIMITED * self.plan.group(0).memory_gib] * self.plan.num_stages
        return placement_of_pieces(f"{self.model.name} run", self.plan, self.pieces, gib)

    @cached_property
    def schedule(self) -> Schedule:
        """The validated schedule of the layout; interleaved 1F1B has Megatron-LM's groups of micro-batches.

        Raises:
            PlanError: It has too many blocks.
            UnsuitablePlacementError: There are fewer micro-batches than it needs.
        """
        placement, number, p = self.placement, self.layout.num_micro_batches, self.layout.degrees.pipeline
        if (count := len(placement.blocks) * number) > _MAX_BLOCKS:
            raise PlanError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated; use fewer")
        if self._name != interleaved_one_f_one_b.__name__ or number < p:
            return validate(HAND_MADE[self._name](placement, number))
        found = interleaved_one_f_one_b(placement.per_micro_batch, number, group_size(p, number))
        return validate(with_optimizer(placement, found))

    @cached_property
    def iteration_ms(self) -> float:
        """Iteration time in ms: the last stage to end its update and the exchanges that nothing hides."""
        return max(map(sum, self.ends))

    @cached_property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Times (ms) of each stage: the end of its last backward, then its update and exposed exchanges.

        A chunk's gradients are summed after its last backward, one chunk after the other. Then the device
        updates its weights, and the next iteration begins when the weights of its first chunk are
        gathered. Exchanges slow down the products that run beside them (Galvatron-BMW, Sec. V).
        """
        placement, starts = self.placement, self.schedule.start_of
        last, slowdown = self.layout.num_micro_batches - 1, self.costs.options.overlap_slowdown - 1
        found = []
        for update in sorted(placement.optimizer_blocks, key=lambda block: block.devices):
            step_ms = placement.ms(update.time)
            if not self.overlaps_exchanges:
                found.append((placement.ms(starts[update.name, last]), step_ms))
                continue
            chunks = self.chunks_on(update.devices[0])
            blocks = [placement.by_name[f"{'W' if self._needs[1] else 'B'}{i}"] for i in chunks]
            ends_ms = [placement.ms(starts[block.name, last] + block.time) for block in blocks]
            costs, now_ms = [self.pieces[i].cost for i in chunks], 0.0
            for end_ms, cost in sorted(zip(ends_ms, costs, strict=True), key=lambda each: each[0]):
                now_ms = max(now_ms, end_ms) + cost.scatter_ms
            seen_ms = now_ms - max(ends_ms) + costs[0].gather_ms
            whole_ms = sum(cost.scatter_ms + cost.gather_ms for cost in costs)
            found.append((max(ends_ms), step_ms + seen_ms + slowdown * max(whole_ms - seen_ms, 0.0)))
        return tuple(found)

    @cached_property
    def gib_by_stage(self) -> tuple[float, ...]:
        """Peak memory of a GPU of each stage, in GiB."""
        return tuple(self.placement.mib(int(most)) / 1024 for most in peak_memory(self.schedule))

    def memory(self, stage: int) -> Iterator[StageTensor]:
        """Yield the tensors of a stage by kind, largest first in each.

        What its chunks keep is counted for as many micro-batches as each holds when the stage holds most.
        Where that is in a backward, layers whose backward has run already keep nothing of its micro-batch.
        """
        plan, options = self.plan, self.costs.options
        held, running = self._at_peak(stage)
        found: dict[tuple[str, str, str], tuple[float, int]] = {}
        for chunk in self.chunks_on(stage):
            items = [
                layer_memory(
                    layer, how, plan.micro_batch_size, plan.num_micro_batches, plan.group(stage), options
                )
                for layer, how in self.layers_of(self.chunks[chunk])
            ]
            last = _last_at_peak(items) if chunk == running else -1
            for i, item in ((i, item) for i, of_layer in enumerate(items) for item in of_layer):
                count = held.get(chunk, 0) + (i <= last) if item.kind == "kept" else 1
                key: tuple[str, str, str] = item.kind, item.name, item.rule
                size, most = found.get(key, (0.0, 0)) if item.kind != "buffer" else (0.0, 0)
                if item.kind != "backward" or i == last:
                    found[key] = size + count * item.num_bytes, max(most, count)
        order = (*STATE_KINDS, "kept", "backward", "buffer")
        for key, (size, count) in sorted(
            found.items(), key=lambda each: (order.index(each[0][0]), -each[1][0])
        ):
            if size:
                yield StageTensor(key[0], key[1], size / 2**30, count, key[2])

    def _at_peak(self, stage: int) -> tuple[dict[int, int], int | None]:
        """Return the micro-batches that each chunk of a stage holds at the stage's memory peak.

        Returns:
            Micro-batches whose tensors each chunk keeps, without the one whose backward runs; and the chunk
            of this backward, None if a forward runs.
        """
        held, most = Counter[int](), -1.0
        found = dict[int, int]()
        running: int | None = None
        for name, _ in self.schedule.order(stage):
            kind, chunk = self.placement.by_name[name].kind, int(name[1:])
            if kind in (Kind.O, Kind.I):
                continue
            cost, is_backward = self.pieces[chunk].cost, kind is not Kind.F
            held[chunk] += -1 if is_backward else 1
            kept = sum(count * self.pieces[i].cost.kept_bytes for i, count in held.items())
            total = kept + (cost.backward_peak_bytes if is_backward else cost.forward_bytes)
            if total > most:
                most, found, running = total, dict(held), chunk if is_backward else None
        return found, running


def layout_in_words(layout: Layout) -> str:
    """Return a layout by the names that frameworks use, without degrees of 1.

    >>> from placements.planners.hybrid.uniform import Degrees
    >>> layout_in_words(Layout(Degrees(4, 8, 2, chunks=3), 1, 16, recompute="full"))
    'TP4 PP8 VP3 DP2, 16x1, recompute full'
    """
    each, number = layout.degrees, layout.recomputed_layers
    degrees = degrees_in_words(each.tensor, each.pipeline, each.chunks, each.context, each.expert, each.data)
    words = [*degrees, "whole"] if each.whole_experts else degrees
    words += [f"ZeRO-{layout.zero}"] if layout.zero != 1 else []
    words += ["uneven"] if layout.chunk_layers else []
    again = f", recompute {layout.recompute}" if layout.recompute != "none" else ""
    again += f" of {number} a chunk" if again and number is not None else ""
    return f"{' '.join(words)}, {layout.num_micro_batches}x{layout.micro_batch_size}{again}"


def degrees_in_words(*degrees: int) -> list[str]:
    """Return tensor, pipeline, virtual, context, expert and data parallelism as TP4 or DP8, but for 1."""
    names = ("TP", "PP", "VP", "CP", "EP", "DP")
    return [f"{name}{degree}" for name, degree in zip(names, degrees, strict=True) if degree > 1]


def _last_at_peak(items: list[tuple[MemoryItem, ...]]) -> int:
    """Return the layer whose backward has the chunk's memory peak; see `Cost.backward_peak_bytes`."""
    kept = list(accumulate(_num_bytes(of_layer, "kept") for of_layer in items))
    return max(range(len(items)), key=lambda i: kept[i] + _num_bytes(items[i], "backward"))


def _num_bytes(items: Iterable[MemoryItem], kind: str) -> float:
    return sum(item.num_bytes for item in items if item.kind == kind)


def _weight_share(layers: Iterable[tuple[Layer, LayerStrategy]]) -> float:
    """Return the share of a backward's operations that compute gradients of weights: cores have none."""
    products = cores = 0.0
    for layer, strategy in layers:
        work = layer.on(strategy.matrix_parallel)
        products += work.forward_flops - work.core_flops
        cores += work.core_flops
    return products / (2 * (products + cores)) if products else 0.0
