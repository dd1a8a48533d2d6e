"""A layout as a training framework runs it: its stages as blocks, and the schedule that times them.

The schedule is made by hand unless another order is given. An iteration's time is its makespan, with every
rule checked, plus the exchanges outside it. The module does not know what a layer costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

from placements import Placement
from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
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

NEAR_TIE = 0.01
"""Share by which an iteration may be longer and still counts as equal: costs are no more exact. Of equal
plans the simplest comes first."""


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
        order: A schedule of its blocks in the place of the hand-made one; see
            `schedsearch.planning.ranking.rank`.
    """

    model: ModelShape
    cluster: Cluster
    layout: Layout
    options: CostOptions = field(default_factory=CostOptions)
    overlap: bool | None = None
    schedule_name: str | None = None
    order: Schedule | None = field(default=None, repr=False)

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
        shape = "wave_shape" if NEEDS[self._name][0] == "wave_shape" else "loop_shape"
        (chain,) = PIPELINES["v_shape" if degrees.chunks == 1 else shape](degrees.pipeline, degrees.chunks)
        return tuple(chain)

    def chunks_on(self, stage: int) -> list[int]:
        """Return the numbers of a stage's chunks."""
        return [i for i, device in enumerate(self.devices) if device == stage]

    @cached_property
    def _name(self) -> str:
        degrees = self.layout.degrees
        usual = "one_f_one_b" if 1 in (degrees.chunks, degrees.pipeline) else "interleaved_one_f_one_b"
        name = usual if self.schedule_name is None else self.schedule_name
        if name not in NEEDS:
            raise PlanError(f"schedule: {name!r} is not known; use one of {', '.join(NEEDS)}")
        return name

    @cached_property
    def pieces(self) -> list[PieceCost]:
        """Costs of the stages, or of the chunks."""
        pieces = chunk_pieces(self.plan, self.costs, self.chunks, self.devices, are_whole=True)
        if not NEEDS[self._name][1]:
            return pieces
        shares = [_weight_share(self.layers_in(chunk)) for chunk in self.chunks]
        return [piece._replace(weight_share=share) for piece, share in zip(pieces, shares, strict=True)]

    def layers_in(self, chunk: range) -> list[tuple[Layer, LayerStrategy]]:
        """Return the layers of a chunk, each with its strategy."""
        layers = layers_of_stage(self.model.layers, chunk.start, chunk.stop)
        return list(zip(layers, self.plan.strategies[chunk.start : chunk.stop], strict=True))

    @property
    def loads_ms(self) -> list[float]:
        """Time that each stage computes."""
        each_ms = [piece.cost.forward.time_ms + piece.cost.backward.time_ms for piece in self.pieces]
        m, stages = self.layout.num_micro_batches, range(self.layout.degrees.pipeline)
        return [m * sum(each_ms[i] for i in self.chunks_on(stage)) for stage in stages]

    @cached_property
    def placement(self) -> Placement:
        """The placement of the layout's stages or chunks, without a limit of memory."""
        return placement_of_pieces("run", self.plan, self.pieces).with_memory(None)

    @cached_property
    def schedule(self) -> Schedule:
        """The validated schedule of the layout; interleaved 1F1B has Megatron-LM's groups of micro-batches.

        Raises:
            PlanError: It has too many blocks.
            UnsuitablePlacementError: There are fewer micro-batches than it needs.
        """
        placement, number, p = self.placement, self.layout.num_micro_batches, self.layout.degrees.pipeline
        if self.order is not None:
            return validate(replace(self.order, placement=placement))
        if (count := len(placement.blocks) * number) > _MAX_BLOCKS:
            raise PlanError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated; use fewer")
        if self._name != interleaved_one_f_one_b.__name__ or number < p:
            return validate(HAND_MADE[self._name](placement, number))
        plain = interleaved_one_f_one_b(placement.per_micro_batch, number, group_size(p, number))
        return validate(with_optimizer(placement, plain))

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
        micro_batches, by_stage = range(self.layout.num_micro_batches), []
        for stage in range(placement.num_devices):
            chunks = self.chunks_on(stage)
            last = [placement.by_name[f"{'W' if NEEDS[self._name][1] else 'B'}{i}"] for i in chunks]
            ends = (max(starts[block.name, n] for n in micro_batches) + block.time for block in last)
            ends_ms = [placement.ms(end) for end in ends]
            costs, now_ms = [self.pieces[i].cost for i in chunks], 0.0
            for end_ms, cost in sorted(zip(ends_ms, costs, strict=True), key=lambda pair: pair[0]):
                now_ms = max(now_ms, end_ms) + cost.scatter_ms
            exposed_ms = self._exposed_ms(costs, now_ms - max(ends_ms))
            by_stage.append((max(ends_ms), placement.ms(placement.by_name[f"O{stage}"].time) + exposed_ms))
        return tuple(by_stage)

    @property
    def shortest_updates_ms(self) -> list[float]:
        """Time of each stage after its last backward: its update and the exchanges that no order hides."""
        placement, updates_ms = self.placement, []
        for stage in range(placement.num_devices):
            costs = [self.pieces[i].cost for i in self.chunks_on(stage)]
            exposed_ms = self._exposed_ms(costs, min(cost.scatter_ms for cost in costs))
            updates_ms.append(placement.ms(placement.by_name[f"O{stage}"].time) + exposed_ms)
        return updates_ms

    def within(self, memory: tuple[int, ...]) -> Schedule:
        """Return the schedule on devices with so much memory, with whole updates and exchanges."""
        placement = self._placement_with([after_ms for _, after_ms in self.ends], memory)
        return replace(self.schedule, placement=placement)

    def to_order(self, memory: tuple[int, ...]) -> Placement:
        """Return the placement to compare orders in: updates take only the time that no order hides."""
        return self._placement_with(self.shortest_updates_ms, memory)

    def _placement_with(self, updates_ms: Sequence[float], memory: tuple[int, ...]) -> Placement:
        """Return the placement whose stages need these times (ms) after their last backwards."""
        tick_ms, blocks = self.placement.tick_ms, self.placement.blocks
        times = {f"O{stage}": max(1, round(ms / tick_ms)) for stage, ms in enumerate(updates_ms)}
        blocks = tuple(replace(block, time=times.get(block.name, block.time)) for block in blocks)
        return replace(self.placement, blocks=blocks, memory=memory)

    def _exposed_ms(self, costs: Sequence[Cost], scatter_ms: float) -> float:
        """Return the time that a stage's exchanges add, if `scatter_ms` of its sums come after its backwards.

        Hidden exchanges slow down the products that they run beside. Exchanges inside the update add nothing.
        """
        exposed_ms = scatter_ms + costs[0].gather_ms
        whole_ms = sum(cost.scatter_ms + cost.gather_ms for cost in costs)
        return exposed_ms + (self.costs.options.overlap_slowdown - 1) * max(whole_ms - exposed_ms, 0.0)

    @cached_property
    def gib_by_stage(self) -> tuple[float, ...]:
        """Peak memory of a GPU of each stage, in GiB."""
        return tuple(self.placement.mib(int(most)) / 1024 for most in peak_memory(self.schedule))


def division_bound_ms(layout: Layout, mean_load_ms: float) -> float:
    """Return a lower bound (ms) on a layout's iteration in any division and order, backwards whole.

    Some stage computes as long as the mean. With one chunk a stage, stage d also waits for the forwards of
    those before it, which end with their backwards after it. The least time T, at which all stages end
    together, has stage d compute ``T / m * (1 - 1 / m) ** d`` ms for each of m micro-batches.

    >>> from placements.planners.hybrid.uniform import Degrees
    >>> round(division_bound_ms(Layout(Degrees(pipeline=8), 1, 8), 1000.0), 1)
    1523.5
    """
    p, m = layout.degrees.pipeline, layout.num_micro_batches
    return mean_load_ms if layout.degrees.chunks > 1 else mean_load_ms * p / m / (1 - (1 - 1 / m) ** p)


def layout_in_words(layout: Layout) -> str:
    """Return a layout by the names that frameworks use, without degrees of 1.

    >>> from placements.planners.hybrid.uniform import Degrees
    >>> layout_in_words(Layout(Degrees(4, 8, 2, chunks=3), 1, 16, recompute="full"))
    'TP4 PP8 VP3 DP2, 16x1, recompute full'
    """
    d, number = layout.degrees, layout.recomputed_layers
    degrees = degrees_in_words(d.tensor, d.pipeline, d.chunks, d.context, d.expert, d.data)
    words = [*degrees, "whole"] if d.whole_experts else degrees
    words += [f"ZeRO-{layout.zero}"] if layout.zero != 1 else []
    words += [f"over {layout.shard_gpus}"] if layout.shard_gpus else []
    words += ["not gathered again"] if layout.zero == 3 and not layout.reshards else []
    words += ["no sequence parallelism"] if d.tensor > 1 and not layout.sequence_parallel else []
    words += ["uneven"] if layout.chunk_layers else []
    again = f", recompute {layout.recompute}" if layout.recompute != "none" else ""
    again += f" ({', '.join(layout.recompute_modules)})" if again and layout.recompute_modules else ""
    again += f" of {number} a chunk" if again and number is not None else ""
    return f"{' '.join(words)}, {layout.num_micro_batches}x{layout.micro_batch_size}{again}"


def degrees_in_words(*degrees: int) -> list[str]:
    """Return tensor, pipeline, virtual, context, expert and data parallelism as TP4 or DP8, but for 1."""
    names = ("TP", "PP", "VP", "CP", "EP", "DP")
    return [f"{name}{degree}" for name, degree in zip(names, degrees, strict=True) if degree > 1]


def _weight_share(layers: Iterable[tuple[Layer, LayerStrategy]]) -> float:
    """Return the share of a backward's operations that compute gradients of weights: cores have none."""
    products = cores = 0.0
    for layer, strategy in layers:
        work = layer.on(strategy.matrix_parallel)
        products += work.forward_flops - work.core_flops
        cores += work.core_flops
    return products / (2 * (products + cores)) if products else 0.0
