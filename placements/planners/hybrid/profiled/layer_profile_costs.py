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
from placements.measured.layer_profile import FLOAT_BYTES, LayerProfile, NotProfiledError
from placements.measured.measured_placement import STATIC_BYTES
from placements.measured.profile_folder import ProfiledModel
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import SINGLE, Layer
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.profiled_layer import ProfiledLayer, Role
from placements.planners.hybrid.profiled.measured_cluster import MeasuredCluster
from placements.planners.hybrid.profiled.measured_links import MeasuredLinks
from placements.planners.hybrid.profiled.shared_states import SharedStates, is_laid_out_alike, samples_of_each


@dataclass(frozen=True)
class LayerProfileCosts:
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

    @cached_property
    def links(self) -> MeasuredLinks:
        """Between the GPUs of the cluster."""
        return MeasuredLinks(self.known.links, self.where)

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs each GPU of a group.

        Where there are several kinds of GPU, the slowest counts. While a backward runs, gradients of what the
        layer keeps stand beside it. With ``full`` recomputation only its input is kept, and the backward has
        one more forward. ZeRO-3 gathers weights before each pass, and scatters gradients with each backward,
        beside products of the backward. Other exchanges come after the last micro-batch.

        Raises:
            PlacementError: The strategy is of a kind or of sizes that were not measured.
        """
        each = samples_of_each(strategy, samples, group.count)
        if strategy.sequence != "none" and strategy.tensor_parallel > 1:
            raise PlacementError(
                "sequence_parallel: layers were measured without sequence parallelism; use false"
            )
        if strategy.data_parallel > 1 and strategy.tensor_parallel > 1 and not strategy.tensor_innermost:
            raise PlacementError("strategy: GPUs that share a layer were measured as neighbors; let them be")
        try:
            costs = [
                self._cost_on(kind, _of_profile(layer), strategy, each, num_micro_batches, group)
                for kind in dict.fromkeys(kind for kind, _ in group.pattern)
            ]
        except NotProfiledError as error:
            raise PlacementError(str(error)) from None
        return max(costs, key=lambda cost: cost.forward.time_ms + cost.backward.time_ms)

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay a layer's output out for the next strategy.

        What is gathered is as in `placements.models.costing.transitions.transition_ms`.
        """
        if is_laid_out_alike(before, after):
            return 0.0
        wider = max(before, after, key=lambda strategy: strategy.tensor_parallel)
        local_bytes = samples / wider.data_parallel * FLOAT_BYTES * layer.output_elements()
        return 2 * self.links.gather_ms(group, local_bytes, wider.tensor_level)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        return self.links.transfer_ms(FLOAT_BYTES * samples * layer.output_elements(), before, after)

    def _cost_on(
        self,
        kind: str,
        layer: ProfiledLayer,
        strategy: LayerStrategy,
        size: int,
        num_micro_batches: int,
        group: DeviceGroup,
    ) -> Cost:
        """Return the cost on one kind of GPU, for micro-batches of a size in each data-parallel group."""
        profile, t, number = self._profile(kind), strategy.tensor_parallel, layer.number
        forward_ms, backward_ms = (max(ms, _MIN_MS) for ms in profile.times(size, t, number))
        weights = profile.parameters(t, [number])
        whole_bytes = FLOAT_BYTES * weights
        gather_ms = self.links.gather_ms(group, whole_bytes, strategy.weight_copies)
        share = strategy.data_parallel if strategy.zero == 3 else 1
        if num_micro_batches > 1:
            backward_ms += profile.accumulation_ms(size, t, [number]) / share
        again = strategy.recompute == "full"
        sharded = strategy.zero == 3 and strategy.data_parallel > 1
        rounds = (2 if layer.role != "embedding" else 1) if sharded else 0
        backward = self.options.overlapped(backward_ms + again * forward_ms, rounds * gather_ms)
        held = profile.activation_bytes(size, t, number)
        input_bytes = FLOAT_BYTES * size * layer.input_numbers
        gathered = whole_bytes * (1 - 1 / strategy.data_parallel) if sharded else 0.0
        states = SharedStates(FLOAT_BYTES * weights, 2 * FLOAT_BYTES * weights, _OPTIMIZER_BYTES * weights)
        step_ms = profile.step_ms(size, t, [number])
        return Cost(
            Pass(forward_ms, gather_ms if sharded else 0.0),
            backward,
            min(input_bytes, held) if again else held,
            gathered,
            2 * gathered + (2 if again else 1) * held,
            states.on_each(strategy, num_micro_batches),
            step_ms / (strategy.data_parallel if strategy.zero else 1) + (0.0 if sharded else 2 * gather_ms),
        )

    def _profile(self, kind: str) -> LayerProfile:
        return self.known.profiles[self.where.names[kind]]


_MIN_MS = 1e-3
"""Time of a pass that was measured as less, so that it is a block."""

_OPTIMIZER_BYTES = STATIC_BYTES - 3 * FLOAT_BYTES
"""Bytes per weight of Adam's moments; the rest are weight, gradient and its flat copy."""


def profiled_layers(known: ProfiledModel) -> ModelShape:
    """Return the layers of a profile in order; those with equal figures on all GPUs are equal.

    Raises:
        PlacementError: The profile has no memory with one GPU for each layer.
    """
    profiles = list(known.profiles.values())
    memory = profiles[0].memory
    t = min(memory)
    last = profiles[0].num_layers - 1
    figures = [_figures(profiles, number) for number in range(last + 1)]
    layers = []
    for number in range(last + 1):
        role: Role = "embedding" if number == 0 else "head" if number == last else "block"
        inner = range(1, last) if role == "block" else [number]
        first = next(each for each in inner if figures[each] == figures[number])
        held = memory[t][first]
        layers.append(
            ProfiledLayer(
                name=role if role != "block" or first == _usual(figures) else f"block_{first}",
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


def _usual(figures: list[tuple[object, ...]]) -> int:
    """Return the number of the block with the figures that most blocks have."""
    inner = figures[1:-1]
    return 1 + inner.index(max(inner, key=inner.count))


def _of_profile(layer: Layer) -> ProfiledLayer:
    if not isinstance(layer, ProfiledLayer):
        raise PlacementError(f"layer: {layer.name!r} is not of the profile; use the profile's model")
    return layer
