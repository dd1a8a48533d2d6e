"""Costs of layers from measured times and memory of each layer, in the form that planners use.

Training is in 32 bits with Adam, as in `placements.measured.measured_placement`. Times are the
profile's, with the all-reduces of the GPUs that share a layer. Exchanges of data parallelism are computed
from measured links: all rings of a group run at the same time, so rings that cross nodes share a node's
bandwidth. The module knows no strategy of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.measured.layer_profile import FLOAT_BYTES
from placements.measured.link_fit import GpuGroup
from placements.measured.measured_placement import STATIC_BYTES
from placements.measured.profile_folder import ProfiledModel
from placements.models.chain import ModelShape
from placements.models.end_layers import ProfiledLayer, Role
from placements.models.layers import SINGLE, Layer
from placements.models.parallel import Cost, LayerStrategy, Pass, SharingLevel
from placements.planners.hybrid.profiled.measured_cluster import MeasuredCluster
from placements.planners.hybrid.profiled.measured_costs import MIN_MS, MeasuredCosts


@dataclass(frozen=True)
class LayerProfileCosts(MeasuredCosts):
    """The costs of a model that was measured layer by layer: its profiles and the links, on a cluster."""

    known: ProfiledModel
    where: MeasuredCluster

    @cached_property
    def model(self) -> ModelShape:
        """The layers of the profile in order; layers with equal figures on all GPUs are equal."""
        profiles = list(self.known.profiles.values())
        memory = profiles[0].memory
        figures = [
            [
                *(rows[number] for profile in profiles for rows in profile.layers.values()),
                *((rows[number], rows[max(number - 1, 0)].output_floats) for rows in memory.values()),
            ]
            for number in range(profiles[0].num_layers)
        ]
        inner, t, layers = figures[1:-1], min(memory), list[ProfiledLayer]()
        usual = max(inner, key=inner.count)
        for number, row in enumerate(figures):
            is_block = 0 < number < len(figures) - 1
            role: Role = "block" if is_block else "head" if number else "embedding"
            first = 1 + inner.index(row) if is_block else number
            held = memory[t][first]
            layers.append(
                ProfiledLayer(
                    name=role if not is_block or row == usual else f"block_{first}",
                    role=role,
                    number=first,
                    num_weights=t * held.parameters,
                    kept_bytes=t * FLOAT_BYTES * held.activation_floats,
                    input_numbers=memory[t][number - 1].output_floats if number else 0,
                    output_numbers=held.output_floats,
                )
            )
        runs = tuple((len(list(equal)), layer) for layer, equal in groupby(layers))
        return ModelShape(self.known.name, runs, SINGLE)

    def alone(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Iterator[tuple[Cost, float, float]]:
        """Yield the costs; while a backward runs, gradients of the kept tensors stand beside the tensors.

        The gradients of weights have a flat copy.
        """
        t, number, again = strategy.tensor_parallel, layer.number, strategy.recompute == "full"
        if strategy.sequence != "none" and t > 1:
            fault = "layers were measured without sequence parallelism"
            raise PlacementError(f"sequence_parallel: {fault}; use false")
        if strategy.data_parallel > 1 and t > 1 and not strategy.tensor_innermost:
            raise PlacementError("strategy: GPUs that share a layer were measured as neighbors; let them be")
        for kind in dict.fromkeys(kind for kind, _ in group.pattern):
            profile = self.known.profiles[self.where.names[kind]]
            known = profile.cost(size, t, number)
            forward_ms, backward_ms = max(known.forward_ms, MIN_MS), max(known.backward_ms, MIN_MS)
            if m > 1:
                backward_ms += known.accumulation_ms / (strategy.data_parallel if strategy.zero == 3 else 1)
            held, weights = known.kept_bytes, known.parameters
            cost = Cost(
                Pass(forward_ms),
                Pass(backward_ms + again * forward_ms),
                min(FLOAT_BYTES * size * layer.input_numbers, held) if again else held,
                backward_bytes=(1 + again) * held,
                static_bytes=STATIC_BYTES * weights,
                update_ms=known.step_ms,
            )
            yield cost, FLOAT_BYTES * weights, 2 * FLOAT_BYTES * weights

    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time on the links of the cluster.

        Raises:
            NotProfiledError: A link was not measured, as of `transfer_ms`.
        """
        degree, stride = level
        if degree == 1:
            return 0.0
        links, kinds = self.known.links, list(dict.fromkeys(kind for kind, _ in group.pattern))
        if all(count % (degree * stride) == 0 for _, count in group.pattern):
            return max(links.all_gather_ms(self._named(kind, degree), num_bytes) for kind in kinds)
        ends = [self._named(kind, stride) for kind in kinds]
        hops = zip(ends, [*ends[1:], ends[0]], strict=True)
        return (degree - 1) * max(links.send_ms(a, b, stride * num_bytes / degree) for a, b in hops)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        part = FLOAT_BYTES * samples * layer.output_elements() / after.count
        links, nodes, times_ms = self.known.links, self.where.cluster.node_of, list[float]()
        kinds = [nodes.gpu.name for nodes in self.where.cluster.nodes for _ in range(nodes.num_nodes)]
        pairs = [
            (before.first + place * before.count // after.count, after.first + place)
            for place in range(after.count)
        ]
        senders = Counter((nodes[a], node) for a, node in {(a, nodes[b]) for a, b in pairs})
        for (source, target), count in Counter((nodes[a], nodes[b]) for a, b in pairs).items():
            if source == target:
                times_ms.append(links.all_gather_ms(self._named(kinds[source], 2), 2 * part))
                continue
            ends = self._named(kinds[source], senders[source, target]), self._named(kinds[target], count)
            times_ms.append(links.send_ms(*ends, count * part))
        return max(times_ms)

    def _named(self, kind: str, size: int) -> GpuGroup:
        return GpuGroup(self.where.names[kind], self.where.zone, size)
