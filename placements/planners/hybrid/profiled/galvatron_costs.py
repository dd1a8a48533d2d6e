"""Costs of layers by the profiles of Galvatron, as a planner asks for it.

A forward is as measured for a GPU's samples, a backward twice as long, and a layer that t GPUs share takes
the time of a t-th of the samples. What GPUs exchange is computed from measured bandwidths. The step of the
optimizer is not in these profiles. The module knows no strategy of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placements.cluster import Cluster, DeviceGroup
from placements.measured.galvatron_profile import GalvatronMemory, GalvatronProfile
from placements.measured.layer_profile import NotProfiledError
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL
from placements.models.layers import HALF, SINGLE, Layer
from placements.models.parallel import Cost, LayerStrategy, SharingLevel
from placements.models.profiled_layer import ProfiledLayer, Role
from placements.planners.hybrid.profiled.measured_costs import MIN_MS, MeasuredCosts, MeasuredShare

_MIB = 2**20

_STATE_BYTES = 16
"""Bytes of a parameter; see `placements.models.layers.Precision`."""

_REDUCES = {"embedding": (1, 0), "block": (2, 2), "head": (0, 1)}
"""All-reduces of a layer's boundary in the forward and the backward of tensor-parallel GPUs."""


@dataclass(frozen=True)
class GalvatronCosts(MeasuredCosts):
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
        memory, boundary = self._any_memory, self.output_numbers
        if boundary is None:
            boundary = round(memory.input_mib * _MIB / self.number_bytes)
        precision = SINGLE if self.profile.precision == "fp32" else HALF

        def layer(number: int, role: Role, weights: float, kept_mib: Mapping[int, float]) -> ProfiledLayer:
            return ProfiledLayer(
                name=role,
                role=role,
                number=number,
                num_weights=round(weights),
                kept_bytes=round(_of_one(kept_mib) * _MIB),
                input_numbers=boundary if number else 0,
                output_numbers=boundary if number < 2 else 1,
            )

        ends = [_of_one(held.states_mib) * _MIB / _STATE_BYTES for held in (memory.first, memory.last)]
        first = layer(0, "embedding", ends[0], memory.first.kept_mib)
        block = layer(1, "block", memory.parameter_mib * _MIB / 4, memory.kept_mib)
        last = layer(2, "head", ends[1], memory.last.kept_mib)
        return ModelShape(self.profile.name, ((1, first), (self.num_layers, block), (1, last)), precision)

    @property
    def is_sequence_parallel(self) -> bool:
        """Whether layers that GPUs share were measured with sequence parallelism alone."""
        return False not in self.profile.memory

    @property
    def number_bytes(self) -> int:
        """As trained."""
        return (SINGLE if self.profile.precision == "fp32" else HALF).number_bytes

    @property
    def _num_nodes(self) -> int:
        return sum(each.num_nodes for each in self.cluster.nodes)

    @property
    def _any_memory(self) -> GalvatronMemory:
        return next(iter(self.profile.memory.values()))

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        part_mib = samples * layer.output_elements() * self.number_bytes / after.count / _MIB
        used = {node for group in (before, after) for node in group.nodes}
        return part_mib / self._next_gb_s(before.count, self._num_nodes if len(used) > 1 else 1)

    def share_cost(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost of a layer.

        Tensor-parallel GPUs all-reduce two boundaries in each pass of a layer, and in a forward that is
        computed again. Embedding and output layer are never computed again.
        """
        memory, t = self._memory(strategy), strategy.tensor_parallel
        times = self.profile.block if layer.role == "block" else self.profile.other
        forward_ms = MIN_MS if layer.role == "embedding" else times.ms(size / t)  # the head has both ends'
        boundary = size * self.model.layers[0].output_elements() * self.number_bytes
        reduce_ms, reduces = 2 * self.gather_ms(group, boundary, strategy.tensor_level), _REDUCES[layer.role]
        again = strategy.recompute == "full" and layer.role == "block"
        states_mib, kept_mib = self._held_mib(layer, memory, t, group)
        weight, kept = states_mib * _MIB * self.number_bytes / _STATE_BYTES, size * kept_mib * _MIB
        input_bytes = size * memory.input_mib * _MIB / (t if strategy.sequence == "megatron" else 1)
        measured = MeasuredShare(
            forward_ms,
            (2 + again) * forward_ms,
            min(input_bytes, kept) if again else kept,
            again * kept,
            (weight, weight, states_mib * _MIB - 2 * weight),
            1 if layer.role == "embedding" else 2,
            (reduces[0] * reduce_ms, (reduces[1] + again * reduces[0]) * reduce_ms),
        )
        options = replace(USUAL, overlap_slowdown=self.profile.overlap_slowdown)
        return measured.cost(strategy, m, self.gather_ms(group, weight, strategy.weight_copies), options)

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
        first, last, both = (
            (_at(held.states_mib, t), _at(held.kept_mib, t))
            for held in (memory.first, memory.last, memory.both)
        )
        if layer.role == "embedding":
            return first
        if group.count == self.cluster.num_gpus:
            return max(0.0, both[0] - first[0]), max(0.0, both[1] - first[1])
        return last

    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time of a ring all-gather, half that of an all-reduce.

        The bandwidth is that of rings in a node as measured in one, else on as many nodes.
        """
        degree, stride = level
        if degree == 1:
            return 0.0
        size = self.cluster.nodes[0].gpus_per_node
        inside = all(count % (degree * stride) == 0 for _, count in group.pattern)
        num_nodes = 1 if inside else len(group.pattern)
        machines = [
            each for each in self.profile.machines if each[0] == num_nodes and (inside or each[1] == size)
        ]
        for machine in sorted(machines, key=lambda each: abs(each[1] - size)):
            rings = self.profile.machines[machine].all_reduce
            for near in (stride == 1, True) if inside else (stride == 1,):
                if (degree, near) in rings:
                    return (degree - 1) / degree * num_bytes / _MIB / rings[degree, near]
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


def _listed(machines: Mapping[tuple[int, int], object]) -> str:
    return ", ".join(f"{nodes} x {gpus} GPUs" for nodes, gpus in sorted(machines))
