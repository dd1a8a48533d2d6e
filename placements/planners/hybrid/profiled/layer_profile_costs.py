"""Costs of layers by measured times and memory of each, as a planner asks for it.

Training is in 32 bits with Adam, as in `placements.measured.measured_placement`. Times are those of the
profile, with the all-reduces of the GPUs that share a layer. What data parallelism adds is computed from
measured links. The module knows no strategy of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.measured.layer_profile import FLOAT_BYTES, LayerProfile
from placements.measured.measured_placement import STATIC_BYTES
from placements.measured.profile_folder import ProfiledModel
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import SINGLE, Layer
from placements.models.parallel import Cost, LayerStrategy, SharingLevel
from placements.models.profiled_layer import ProfiledLayer, Role
from placements.planners.hybrid.profiled.measured_cluster import MeasuredCluster
from placements.planners.hybrid.profiled.measured_costs import MIN_MS, MeasuredCosts, MeasuredShare

_OPTIMIZER_BYTES = STATIC_BYTES - 3 * FLOAT_BYTES
"""Bytes per weight of Adam's moments; the rest are weight, gradient and its flat copy."""


@dataclass(frozen=True)
class LayerProfileCosts(MeasuredCosts):
    """The costs of a model that was measured layer by layer.

    Attributes:
        known: Its profiles and the links.
        where: The cluster.
        options: Options, of which the slowdown of products beside transfers counts.
    """

    known: ProfiledModel
    where: MeasuredCluster
    options: CostOptions = USUAL

    @cached_property
    def model(self) -> ModelShape:
        """The layers of the profile; see `profiled_layers`."""
        return profiled_layers(self.known)

    @property
    def number_bytes(self) -> int:
        """32 bits."""
        return FLOAT_BYTES

    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time on the links of the cluster."""
        return self.where.gather_ms(group, num_bytes, level)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        return self.where.transfer_ms(FLOAT_BYTES * samples * layer.output_elements(), before, after)

    def share_cost(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost on the slowest kind of GPU.

        While a backward runs, gradients of what the layer keeps stand beside it.
        """
        if strategy.sequence != "none" and strategy.tensor_parallel > 1:
            raise PlacementError(
                "sequence_parallel: layers were measured without sequence parallelism; use false"
            )
        if strategy.data_parallel > 1 and strategy.tensor_parallel > 1 and not strategy.tensor_innermost:
            raise PlacementError("strategy: GPUs that share a layer were measured as neighbors; let them be")
        costs = [
            self._cost_on(self.known.profiles[self.where.names[kind]], layer, strategy, size, m, group)
            for kind in dict.fromkeys(kind for kind, _ in group.pattern)
        ]
        return max(costs, key=lambda cost: cost.forward.time_ms + cost.backward.time_ms)

    def _cost_on(
        self,
        profile: LayerProfile,
        layer: ProfiledLayer,
        strategy: LayerStrategy,
        size: int,
        m: int,
        group: DeviceGroup,
    ) -> Cost:
        cost = profile.cost(size, strategy.tensor_parallel, layer.number)
        forward_ms, backward_ms = max(cost.forward_ms, MIN_MS), max(cost.backward_ms, MIN_MS)
        if m > 1:
            backward_ms += cost.accumulation_ms / (strategy.data_parallel if strategy.zero == 3 else 1)
        weights, held = cost.parameters, cost.kept_bytes
        again = strategy.recompute == "full"
        measured = MeasuredShare(
            forward_ms,
            backward_ms + again * forward_ms,
            min(FLOAT_BYTES * size * layer.input_numbers, held) if again else held,
            (1 + again) * held,
            (FLOAT_BYTES * weights, 2 * FLOAT_BYTES * weights, _OPTIMIZER_BYTES * weights),
            1 if layer.role == "embedding" else 2,
            step_ms=cost.step_ms,
        )
        gather_ms = self.gather_ms(group, FLOAT_BYTES * weights, strategy.weight_copies)
        return measured.cost(strategy, m, gather_ms, self.options)


def profiled_layers(known: ProfiledModel) -> ModelShape:
    """Return the layers of a profile in order; those with equal figures on all GPUs are equal.

    Raises:
        PlacementError: The profile has no memory with one GPU for each layer.
    """
    profiles = list(known.profiles.values())
    memory = profiles[0].memory
    t, last = min(memory), profiles[0].num_layers - 1
    figures = [_figures(profiles, number) for number in range(last + 1)]
    inner = figures[1:-1]
    usual = max(inner, key=inner.count)
    layers = []
    for number, own in enumerate(figures):
        role: Role = "embedding" if number == 0 else "head" if number == last else "block"
        first = 1 + inner.index(own) if role == "block" else number
        held = memory[t][first]
        layers.append(
            ProfiledLayer(
                name=role if role != "block" or own == usual else f"block_{first}",
                role=role,
                number=first,
                num_weights=t * held.parameters,
                kept_bytes=t * FLOAT_BYTES * held.activation_floats,
                input_numbers=memory[t][number - 1].output_floats if number else 0,
                output_numbers=held.output_floats,
            )
        )
    runs = tuple((len(list(equal)), layer) for layer, equal in itertools.groupby(layers))
    return ModelShape(known.name, runs, SINGLE)


def _figures(profiles: list[LayerProfile], number: int) -> tuple[object, ...]:
    """Return all that was measured of a layer."""
    times = [rows[number] for profile in profiles for rows in profile.layers.values()]
    held = [rows[number] for rows in profiles[0].memory.values()]
    before = [rows[max(number - 1, 0)].output_floats for rows in profiles[0].memory.values()]
    return (*times, *held, *before)
