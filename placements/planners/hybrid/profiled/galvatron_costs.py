"""Costs of layers from Galvatron's profiles, in the form that planners use.

A forward is as measured for a GPU's samples, a backward twice as long, and a layer that t GPUs share takes
the time of a t-th of the samples. Exchanges of GPUs are computed from measured bandwidths. The step of the
optimizer is not in these profiles. The module knows no strategy of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placements.cluster import Cluster, DeviceGroup
from placements.measured.galvatron_profile import GalvatronProfile
from placements.measured.layer_profile import NotProfiledError
from placements.models.chain import ModelShape
from placements.models.end_layers import ProfiledLayer, Role
from placements.models.layers import HALF, SINGLE, Layer
from placements.models.parallel import Cost, LayerStrategy, Pass, SharingLevel
from placements.planners.hybrid.profiled.measured_costs import MIN_MS, MeasuredCosts

_MIB = 2**20

_STATE_BYTES = 16
"""Bytes of a parameter; see `placements.models.layers.Precision`."""

_REDUCES = {"embedding": (1, 0), "block": (2, 2), "head": (0, 1)}
"""All-reduces of a layer's boundary in the forward and the backward of tensor-parallel GPUs."""


@dataclass(frozen=True)
class GalvatronCosts(MeasuredCosts):
    """The costs of a model of equal layers that Galvatron measured.

    Attributes:
        profile: Measured times, memory and bandwidths.
        cluster: The GPUs; nodes of equal size.
        num_layers: Layers of the model, besides embedding and output layer.
        output_numbers: Numbers of a sample between two layers; None for a recomputed layer's kept memory,
            an upper bound.

    Raises:
        NotProfiledError: The links between stages were not measured.
    """

    profile: GalvatronProfile
    cluster: Cluster
    num_layers: int
    output_numbers: int | None = None

    def __post_init__(self) -> None:
        """Take the slowdown of the profile, and check that the links between stages were measured."""
        slowdown = self.profile.overlap_slowdown
        object.__setattr__(self, "options", replace(self.options, overlap_slowdown=slowdown))
        if self.cluster.num_gpus > 1:
            self._next_gb_s(self.cluster.num_gpus, self._num_nodes)

    @cached_property
    def model(self) -> ModelShape:
        """Embedding, layers and output layer."""
        memory = next(iter(self.profile.memory.values()))
        precision = SINGLE if self.profile.precision == "fp32" else HALF
        between = self.output_numbers or round(memory.input_mib * _MIB / precision.number_bytes)
        ends = [_of_one(end.states_mib) * _MIB / _STATE_BYTES for end in (memory.first, memory.last)]
        block = memory.parameter_mib * _MIB / SINGLE.number_bytes
        rows: tuple[tuple[int, Role, float, Mapping[int, float], int, int], ...] = (
            (1, "embedding", ends[0], memory.first.kept_mib, 0, between),
            (self.num_layers, "block", block, memory.kept_mib, between, between),
            (1, "head", ends[1], memory.last.kept_mib, between, 1),
        )
        runs = []
        for number, (count, role, weights, kept_mib, before, after) in enumerate(rows):
            layer = ProfiledLayer(
                name=role,
                role=role,
                number=number,
                num_weights=round(weights),
                kept_bytes=round(_of_one(kept_mib) * _MIB),
                input_numbers=before,
                output_numbers=after,
            )
            runs.append((count, layer))
        return ModelShape(self.profile.name, tuple(runs), precision)

    @property
    def is_sequence_parallel(self) -> bool:
        """Whether layers that GPUs share were measured with sequence parallelism alone."""
        return False not in self.profile.memory

    @property
    def _num_nodes(self) -> int:
        return sum(nodes.num_nodes for nodes in self.cluster.nodes)

    def alone(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Iterator[tuple[Cost, float, float]]:
        """Yield the cost of a layer.

        Tensor-parallel GPUs all-reduce two boundaries in each pass of a layer, and in a forward that is
        computed again. Embedding and output layer are never computed again.
        """
        t, role, shared = strategy.tensor_parallel, layer.role, strategy.sequence == "megatron"
        known = self.profile.memory
        memory = known.get(shared) if t > 1 else next(iter(known.values()))
        if memory is None:
            fault = f"layers were measured {'without' if shared else 'with'} it alone"
            raise NotProfiledError(f"sequence_parallel: {fault}; use {'false' if shared else 'true'}")
        times = self.profile.block if role == "block" else self.profile.other
        forward_ms = MIN_MS if role == "embedding" else float(times(size / t))  # the head has both ends'
        number_bytes = self.model.precision.number_bytes
        between = size * max(layer.input_numbers, layer.output_numbers) * number_bytes
        reduce_ms = 2 * self.gather_ms(group, between, strategy.tensor_level)
        (forward, backward), again = _REDUCES[role], strategy.recompute == "full" and role == "block"
        if role == "block":
            states_mib, kept_mib = 4 * memory.parameter_mib / t, _at(memory.kept_mib, t)
        else:
            ends = memory.last if role == "head" else memory.first, memory.first, memory.both
            here, first, both = ((_at(end.states_mib, t), _at(end.kept_mib, t)) for end in ends)
            states_mib, kept_mib = here
            if role == "head" and group.count == self.cluster.num_gpus:
                # One stage has all GPUs: both ends together hold what was measured of one stage.
                states_mib, kept_mib = (max(0.0, b - a) for a, b in zip(first, both, strict=True))
        kept, input_bytes = size * kept_mib * _MIB, size * memory.input_mib * _MIB / (t if shared else 1)
        cost = Cost(
            Pass(forward_ms, forward * reduce_ms),
            Pass((2 + again) * forward_ms, (backward + again * forward) * reduce_ms),
            min(input_bytes, kept) if again else kept,
            backward_bytes=again * kept,
            static_bytes=states_mib * _MIB,
        )
        weights = states_mib * _MIB * number_bytes / _STATE_BYTES
        yield cost, weights, weights

    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time of a ring all-gather: half the time of an all-reduce.

        Rings within a node have the bandwidth measured in one node, others the one on as many nodes.
        """
        degree, stride = level
        if degree == 1:
            return 0.0
        size = self.cluster.nodes[0].gpus_per_node
        inside = all(count % (degree * stride) == 0 for _, count in group.pattern)
        num_nodes = 1 if inside else len(group.pattern)
        machines = [
            shape for shape in self.profile.machines if shape[0] == num_nodes and (inside or shape[1] == size)
        ]
        for machine in sorted(machines, key=lambda shape: abs(shape[1] - size)):
            rings = self.profile.machines[machine].all_reduce
            for near in (stride == 1, True) if inside else (stride == 1,):
                if (degree, near) in rings:
                    return (degree - 1) / degree * num_bytes / _MIB / rings[degree, near]
        raise NotProfiledError(
            f"no all-reduce bandwidth of {degree} GPUs, {stride} apart, on {num_nodes} nodes of {size} GPUs; "
            f"measured: {self._measured}"
        )

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        num_bytes = samples * layer.output_elements() * self.model.precision.number_bytes / after.count
        num_nodes = self._num_nodes if len({*before.nodes, *after.nodes}) > 1 else 1
        return num_bytes / _MIB / self._next_gb_s(before.count, num_nodes)

    def _next_gb_s(self, gpus_of_stage: int, num_nodes: int) -> float:
        """Return the bandwidth to the next stage as measured on this number of nodes, or on the nearest."""
        size, num_stages = self.cluster.nodes[0].gpus_per_node, self.cluster.num_gpus // gpus_of_stage
        machines = {
            shape: machine.to_next
            for shape, machine in self.profile.machines.items()
            if machine.to_next and (shape[0] > 1) == (num_nodes > 1)
        }
        if not machines:
            where = "between nodes" if num_nodes > 1 else "in a node"
            raise NotProfiledError(
                f"no p2p bandwidth {where} was measured; add p2p_bandwidth_{num_nodes}nodes_"
                f"{size}gpus_per_node.json, or use a cluster of {self._measured}"
            )
        known = machines[min(machines, key=lambda shape: (abs(shape[0] - num_nodes), abs(shape[1] - size)))]
        return known[max((count for count in known if count <= num_stages), default=min(known))]

    @property
    def _measured(self) -> str:
        return ", ".join(f"{nodes} x {gpus} GPUs" for nodes, gpus in sorted(self.profile.machines))


def _of_one(by_degree: Mapping[int, float]) -> float:
    """Return the memory of the unshared layer, from its memory by tensor-parallel degree."""
    least = min(by_degree)
    return least * by_degree[least]


def _at(by_degree: Mapping[int, float], degree: int) -> float:
    if degree not in by_degree:
        known = ", ".join(str(degree) for degree in sorted(by_degree))
        raise NotProfiledError(f"tensor parallelism {degree} has no memory profile, only {known}")
    return by_degree[degree]
