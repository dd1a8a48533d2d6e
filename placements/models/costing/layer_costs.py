"""Costs of a layer on each GPU of a group under a strategy: one rule for all layers and all strategies.

Times are computed: operations and bytes of the layer's shape over what the GPUs and links reach. The module
does not know stages, nor the order in which micro-batches run.
"""

from __future__ import annotations

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.models.costing.layer_share import LayerShare
from placements.models.costing.layer_times import LayerTimes, times_of
from placements.models.costing.options import USUAL, CostOptions
from placements.models.costing.states import states_in_memory, states_of
from placements.models.layers import Layer
from placements.models.memory import MemoryItem
from placements.models.parallel import Cost, LayerStrategy


def layer_cost(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> Cost:
    """Return what a layer costs each GPU of a group that shares it.

    Tensor-parallel GPUs all-reduce what each part ends in, in the forward and, of its input's gradient, in
    the backward (Narayanan's dissertation, Sec. 4.3), and in a forward that is computed again. With
    ``megatron`` half of each is an all-gather and half a reduce-scatter, and the backward gathers each part's
    input once more beside its products (Korthikanti et al., 2022, Sec. 4.2.2). With ``ulysses`` queries,
    keys, values and outputs are exchanged. With ring attention keys and values go around beside the
    attention's core, in the backward with their gradients; each GPU is taken to have an equal share of the
    core. Tokens go to experts and back, as many to each: routing is taken to be uniform.

    With ZeRO-3 weights are gathered before each pass, and gradients scattered with each backward, so that
    only one layer's are ever held whole. Galvatron-BMW counts that exchange in the last micro-batch alone
    (App. C, Eq. 9); until then the gradients of all layers would have to stay.

    Args:
        layer: Its shape.
        strategy: How the GPUs share it.
        samples: Samples of one micro-batch, of all data-parallel groups together.
        num_micro_batches: Micro-batches of an iteration. With several, gradients are added up before they are
            exchanged.
        group: The GPUs, as many as the strategy's.
        options: What they reach.

    Raises:
        PlacementError: The strategy does not divide the layer, the samples or the group.
        CalibrationError: The layer was measured, but not with so many tensor-parallel GPUs.
    """
    _check(layer, strategy, samples, num_micro_batches, group)
    share = LayerShare(layer, strategy, samples / strategy.data_parallel, group, options)
    states = states_of(share, num_micro_batches)
    times = times_of(share, states)
    working, scores = share.kept_bytes, share.scores_bytes
    kept = {"none": working, "selective": working - scores, "full": share.input_bytes}[share.again]
    held_again = {"none": 0.0, "selective": scores, "full": working}[share.again]
    exchanged_ms = 0.0 if options.exchanges_apart else states.scatter_ms + states.new_weights_ms
    if options.overlap_gradients:
        product_ms = times.products_ms[1]
        exchanged_ms = options.overlapped(product_ms, exchanged_ms).time_ms - product_ms
    besides = (1 + layer.reads_weights_backward) * states.gathered_bytes + held_again
    peak = kept + besides + share.temporary_bytes if options.framework.has_temporaries else 0.0
    return states.cost + Cost(
        *times.passes,
        kept,
        states.gathered_bytes,
        besides,
        update_ms=exchanged_ms,
        scatter_ms=states.scatter_ms if options.exchanges_apart else 0.0,
        gather_ms=states.new_weights_ms if options.exchanges_apart else 0.0,
        buffers=share.buffers,
        backward_peak_bytes=peak,
    )


def layer_times(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> LayerTimes:
    """Return the times of a layer's passes by part, whose sums `layer_cost` has; for what, see there."""
    share = LayerShare(layer, strategy, samples / strategy.data_parallel, group, options)
    return times_of(share, states_of(share, num_micro_batches))


def layer_memory(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> tuple[MemoryItem, ...]:
    """Return the memory of a layer on each GPU by its tensors, which `layer_cost` adds up; see there.

    Where a layer is recomputed, what it keeps is its input, and what its backward holds is all that it would
    keep otherwise.
    """
    share = LayerShare(layer, strategy, samples / strategy.data_parallel, group, options)
    kept = share.kept
    if share.again != "none":
        held = tuple(item for item in kept if share.again == "full" or item.name == "scores")
        again = tuple(item._replace(kind="backward", rule="computed again") for item in held)
        rest = tuple(item for item in kept if item not in held)
        inputs = MemoryItem("kept", "input of the layer", share.input_bytes, "each micro-batch")
        kept = (*rest, *((inputs,) if share.again == "full" else ()), *again)
    states = states_of(share, num_micro_batches)
    gathered = (1 + layer.reads_weights_backward) * states.gathered_bytes
    others = MemoryItem("backward", "weights and gradients of other GPUs", gathered, "of one layer (ZeRO-3)")
    return (*states_in_memory(share, num_micro_batches), *kept, *share.held_once, others)


def _check(
    layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
) -> None:
    for name, value in (("samples", samples), ("num_micro_batches", num_micro_batches)):
        if type(value) is not int or value < 1:
            raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
    if strategy.num_gpus != group.count:
        raise PlacementError(
            f"strategy: tensor, context and data parallelism of {strategy.tensor_parallel} x "
            f"{strategy.context_parallel} x {strategy.data_parallel} are not the {group.count} GPUs of the "
            "group; make the product equal"
        )
    if samples % strategy.data_parallel:
        raise PlacementError(
            f"data_parallel: {strategy.data_parallel} does not divide the {samples} samples of a "
            "micro-batch; use a divisor"
        )
    layer.check(strategy.tensor_parallel, strategy.expert_parallel)
