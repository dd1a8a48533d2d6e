"""Costs of layers by the profiles of Galvatron, as a planner asks for it.

A forward is as measured for a GPU's samples, a backward twice as long, and a layer that t GPUs share takes
the time of a t-th of the samples. What GPUs exchange is computed from measured bandwidths. The step of the
optimizer is not in these profiles. The module knows no strategy of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placements.block import PlacementError
from placements.cluster import Cluster, DeviceGroup
from placements.measured.galvatron_profile import GalvatronMemory, GalvatronProfile
from placements.measured.layer_profile import NotProfiledError
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import HALF, SINGLE, Layer
from placements.models.parallel import Cost, LayerStrategy, Pass, SharingLevel
from placements.models.profiled_layer import ProfiledLayer
from placements.planners.hybrid.profiled.shared_states import SharedStates, is_laid_out_alike, samples_of_each

_MIB = 2**20

_MIN_MS = 1e-3
"""Time of the embedding: the profile has one time for both ends, which the output layer is given."""

_STATE_BYTES = 16
"""Bytes of a parameter; see `placements.models.layers.Precision`."""

_REDUCES = {"embedding": (1, 0), "block": (2, 2), "head": (0, 1)}
"""All-reduces of a layer's boundary in the forward and the backward of tensor-parallel GPUs."""


@dataclass(frozen=True)
class GalvatronCosts:
    """The costs of a model of equal layers that Galvatron measured.

    Attributes:
        profile: What was measured.
        cluster: The GPUs; nodes of equal size.
        num_layers: Layers of the model, besides embedding and output layer.
        output_numbers: Numbers of a sample between two layers; None for what a recomputed layer keeps, which
            is that or more.
    """

    profile: GalvatronProfile
    cluster: Cluster
    num_layers: int
    output_numbers: int | None = None

    def __post_init__(self) -> None:
        """Check that the links between stages were measured.

        Raises:
            NotProfiledError: They were not.
        """
        if self.cluster.num_gpus > 1:
            self._next_gb_s(self.cluster.num_gpus, self._num_nodes)

    @cached_property
    def model(self) -> ModelShape:
        """Embedding, layers and output layer."""
        memory, size = self._any_memory, self._number_bytes
        boundary = self.output_numbers
        if boundary is None:
            boundary = round(memory.input_mib * _MIB / size)
        ends = (("embedding", memory.first, 0), ("head", memory.last, 1))
        first, last = (
            ProfiledLayer(
                name=role,
                role="head" if after else "embedding",
                number=2 * after,
                num_weights=round(_of_one(held.states_mib) * _MIB / _STATE_BYTES),
                kept_bytes=round(_of_one(held.kept_mib) * _MIB),
                input_numbers=boundary * after,
                output_numbers=1 if after else boundary,
            )
            for role, held, after in ends
        )
        block = ProfiledLayer(
            name="block",
            role="block",
            number=1,
            num_weights=round(memory.parameter_mib * _MIB / 4),
            kept_bytes=round(_of_one(memory.kept_mib) * _MIB),
            input_numbers=boundary,
            output_numbers=boundary,
        )
        precision = SINGLE if self.profile.precision == "fp32" else HALF
        return ModelShape(self.profile.name, ((1, first), (self.num_layers, block), (1, last)), precision)

    @property
    def is_sequence_parallel(self) -> bool:
        """Whether layers that GPUs share were measured with sequence parallelism alone."""
        return False not in self.profile.memory

    @cached_property
    def _options(self) -> CostOptions:
        return replace(USUAL, overlap_slowdown=self.profile.overlap_slowdown)

    @property
    def _num_nodes(self) -> int:
        return sum(each.num_nodes for each in self.cluster.nodes)

    @property
    def _number_bytes(self) -> int:
        return (SINGLE if self.profile.precision == "fp32" else HALF).number_bytes

    @property
    def _any_memory(self) -> GalvatronMemory:
        return next(iter(self.profile.memory.values()))

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs each GPU of a group.

        Tensor-parallel GPUs all-reduce two boundaries in each pass of a layer, and in a forward that is
        computed again. ZeRO-3 gathers weights before each pass and scatters gradients with each backward,
        beside its products. Embedding and output layer are never computed again.

        Raises:
            PlacementError: The strategy is of a kind or of a degree that was not measured.
        """
        if not isinstance(layer, ProfiledLayer):
            raise PlacementError(f"layer: {layer.name!r} is not of the profile; use the profile's model")
        each = samples_of_each(strategy, samples, group.count)
        try:
            return self._cost(layer, strategy, each, num_micro_batches, group)
        except NotProfiledError as error:
            raise PlacementError(str(error)) from None

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay a layer's output out for the next strategy."""
        if is_laid_out_alike(before, after):
            return 0.0
        wider = max(before, after, key=lambda strategy: strategy.tensor_parallel)
        local = samples / wider.data_parallel * layer.output_elements() * self._number_bytes
        return 2 * self._gather_ms(group, local, wider.tensor_level)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        part_mib = samples * layer.output_elements() * self._number_bytes / after.count / _MIB
        used = {node for group in (before, after) for node in group.nodes}
        return part_mib / self._next_gb_s(before.count, self._num_nodes if len(used) > 1 else 1)

    def _cost(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Cost:
        memory, t = self._memory(strategy), strategy.tensor_parallel
        forward_ms = self._forward_ms(layer, size / t)
        boundary = size * self.model.layers[0].output_elements() * self._number_bytes
        reduce_ms = 2 * self._gather_ms(group, boundary, strategy.tensor_level)
        reduces = _REDUCES[layer.role]
        again = strategy.recompute == "full" and layer.role == "block"
        states_mib, kept_mib = self._held_mib(layer, memory, t, group)
        weight = states_mib * _MIB * self._number_bytes / _STATE_BYTES
        gather_ms = self._gather_ms(group, weight, strategy.weight_copies)
        sharded = strategy.zero == 3 and strategy.data_parallel > 1
        rounds = (1 if layer.role == "embedding" else 2) if sharded else 0
        backward = self._options.overlapped((2 + again) * forward_ms, rounds * gather_ms)
        reduces_ms = [reduces[0] * reduce_ms, (reduces[1] + again * reduces[0]) * reduce_ms]
        kept = size * kept_mib * _MIB
        input_bytes = size * memory.input_mib * _MIB / (t if strategy.sequence == "megatron" else 1)
        gathered = weight * (1 - 1 / strategy.data_parallel) if sharded else 0.0
        states = SharedStates(weight, weight, states_mib * _MIB - 2 * weight)
        return Cost(
            Pass(forward_ms, reduces_ms[0] + (gather_ms if sharded else 0.0)),
            Pass(backward.product_ms, backward.copy_ms + reduces_ms[1]),
            min(input_bytes, kept) if again else kept,
            gathered,
            2 * gathered + again * kept,
            states.on_each(strategy, m),
            0.0 if sharded else 2 * gather_ms,
        )

    def _forward_ms(self, layer: ProfiledLayer, samples: float) -> float:
        if layer.role == "embedding":
            return _MIN_MS
        return (self.profile.block if layer.role == "block" else self.profile.other).ms(samples)

    def _memory(self, strategy: LayerStrategy) -> GalvatronMemory:
        if strategy.tensor_parallel == 1:
            return self._any_memory
        shared = strategy.sequence == "megatron"
        if shared not in self.profile.memory:
            raise NotProfiledError(
                f"sequence_parallel: layers were measured {'without' if shared else 'with'} it alone; use "
                f"{'false' if shared else 'true'}"
            )
        return self.profile.memory[shared]

    def _held_mib(
        self, layer: ProfiledLayer, memory: GalvatronMemory, t: int, group: DeviceGroup
    ) -> tuple[float, float]:
        """Return what a layer holds all the time, and keeps of one sample.

        Where one stage has all GPUs, both ends together hold what was measured of one stage.
        """
        if layer.role == "block":
            return 4 * memory.parameter_mib / t, _at(memory.kept_mib, t)
        held = memory.first if layer.role == "embedding" else memory.last
        states_mib, kept_mib = _at(held.states_mib, t), _at(held.kept_mib, t)
        if layer.role == "head" and group.count == self.cluster.num_gpus:
            states_mib = max(0.0, _rest(memory.both.states_mib, memory.first.states_mib, t))
            kept_mib = max(0.0, _rest(memory.both.kept_mib, memory.first.kept_mib, t))
        return states_mib, kept_mib

    def _gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time of a ring all-gather, half that of an all-reduce."""
        degree, stride = level
        if degree == 1:
            return 0.0
        gb_s = self._ring_gb_s(group, degree, stride)
        return (degree - 1) / degree * num_bytes / _MIB / gb_s

    def _ring_gb_s(self, group: DeviceGroup, degree: int, stride: int) -> float:
        """Return the bandwidth of a ring: in a node as measured in one, else on as many nodes."""
        size = self.cluster.nodes[0].gpus_per_node
        inside = all(count % (degree * stride) == 0 for _, count in group.pattern)
        num_nodes = 1 if inside else len(group.pattern)
        machines = [each for each in self.profile.machines if each[0] == num_nodes]
        for machine in sorted(machines, key=lambda each: abs(each[1] - size)):
            if machine[1] != size and not inside:
                continue
            rings = self.profile.machines[machine].all_reduce
            for near in dict.fromkeys((stride == 1, True) if inside else (stride == 1,)):
                if (degree, near) in rings:
                    return rings[degree, near]
        raise NotProfiledError(
            f"no all-reduce bandwidth of {degree} GPUs, {stride} apart, on {num_nodes} nodes of {size} GPUs; "
            f"measured: {_listed(self.profile.machines)}"
        )

    def _next_gb_s(self, gpus_of_stage: int, num_nodes: int) -> float:
        """Return the bandwidth to the next stage, on as many nodes or on a number near it."""
        size, num_stages = self.cluster.nodes[0].gpus_per_node, self.cluster.num_gpus // gpus_of_stage
        machines = [
            each
            for each, found in self.profile.machines.items()
            if found.to_next and (each[0] > 1) == (num_nodes > 1)
        ]
        if not machines:
            where = "between nodes" if num_nodes > 1 else "in a node"
            raise NotProfiledError(
                f"no p2p bandwidth {where} was measured; add p2p_bandwidth_{num_nodes}nodes_"
                f"{size}gpus_per_node.json, or use a cluster of {_listed(self.profile.machines)}"
            )
        machine = min(machines, key=lambda each: (abs(each[0] - num_nodes), abs(each[1] - size)))
        known = self.profile.machines[machine].to_next
        return known[max((each for each in known if each <= num_stages), default=min(known))]


def _of_one(by_degree: Mapping[int, float]) -> float:
    """Return what one GPU would hold."""
    least = min(by_degree)
    return least * by_degree[least]


def _at(by_degree: Mapping[int, float], degree: int) -> float:
    if degree not in by_degree:
        known = ", ".join(str(each) for each in sorted(by_degree))
        raise NotProfiledError(f"tensor parallelism {degree} has no memory profile, only {known}")
    return by_degree[degree]


def _rest(whole: Mapping[int, float], part: Mapping[int, float], degree: int) -> float:
    return _at(whole, degree) - _at(part, degree)


def _listed(machines: Mapping[tuple[int, int], object]) -> str:
    return ", ".join(f"{nodes} x {gpus} GPUs" for nodes, gpus in sorted(machines))
