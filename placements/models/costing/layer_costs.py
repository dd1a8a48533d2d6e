"""Costs of a layer on each GPU of a group under a strategy: one rule for all layers and all strategies.

Times are computed: operations and bytes of the layer's shape over what the GPUs and links reach. The module
does not know stages, nor the order in which micro-batches run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.models.costing.layer_share import LayerShare
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import Layer
from placements.models.memory import STATE_KINDS, MemoryItem
from placements.models.operators import SCORES, SOFTMAX
from placements.models.parallel import Buffer, Cost, LayerStrategy, Pass, SharingLevel


def layer_cost(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> Cost:
    """Return the cost of a layer on each GPU of a group that shares the layer.

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

    Samples are those of one micro-batch, of all data-parallel groups together. With several micro-batches,
    gradients are added up before they are exchanged.

    Raises:
        PlacementError: The strategy does not divide the layer, the samples or the group.
    """
    for name, value in (("samples", samples), ("num_micro_batches", num_micro_batches)):
        if type(value) is not int or value < 1:
            raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
    needed, groups = strategy.num_gpus, strategy.data_parallel
    if needed != group.count:
        raise PlacementError(f"strategy: shares a layer by {needed} GPUs, not by {group.count}; give as many")
    if samples % groups:
        raise PlacementError(
            f"data_parallel: {groups} does not divide the {samples} samples of a micro-batch; use a divisor"
        )
    layer.check(strategy.tensor_parallel, strategy.expert_parallel)
    share = LayerShare(layer, strategy, samples, group, options)
    held: defaultdict[str, float] = defaultdict(float)
    buffers: list[Buffer] = []
    states = _states(share)
    for kind, name, num_bytes, _ in _memory(share, num_micro_batches, states.forward_bytes):
        held[kind] += num_bytes
        if kind == "buffer":
            buffers.append(Buffer(name, num_bytes))
    apart = options.exchanges_apart
    return Cost(
        *(
            Pass(options.compute_factor * each.product_ms, options.communication_factor * each.copy_ms)
            for each in _passes(share, states.forward.copy_ms)
        ),
        held["kept"],
        states.forward_bytes,
        held["backward"] - share.gradients_bytes,
        sum(held[kind] for kind in STATE_KINDS),
        options.compute_factor * states.update_ms
        + options.communication_factor * (0.0 if apart else states.scatter_ms + states.gather_ms),
        frozenset(buffers),
        options.communication_factor * states.scatter_ms if apart else 0.0,
        options.communication_factor * states.gather_ms if apart else 0.0,
        held["kept"] + held["backward"] if options.framework.has_temporaries else 0.0,
    )


def layer_memory(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> tuple[MemoryItem, ...]:
    """Return the memory of a layer on each GPU, tensor by tensor; `layer_cost` adds these up.

    A recomputed layer keeps its input alone, and its backward holds all tensors that the layer would keep
    without recomputation.
    """
    share = LayerShare(layer, strategy, samples, group, options)
    return tuple(_memory(share, num_micro_batches, _states(share).forward_bytes))


def transition_ms(
    layer: Layer,
    before: LayerStrategy,
    after: LayerStrategy,
    samples: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> float:
    """Return the time to move a layer's output to the next layer's layout, or its gradient back.

    Of g GPUs, the more that share samples before or after, each has all but 1 / g to get of what it then
    holds (Galvatron-BMW, Sec. VI: Slice-Gather; the paper gives no formula).
    Samples are those of a micro-batch, of all groups together; of the options only the precision counts.
    """
    if _layout(before) == _layout(after):
        return 0.0
    wider = max(before, after, key=lambda strategy: strategy.num_gpus // strategy.data_parallel)
    stride = 1 if wider.tensor_innermost else wider.data_parallel
    local = samples / wider.data_parallel * options.precision.number_bytes * layer.output_elements()
    return group.all_gather_ms(local, wider.num_gpus // wider.data_parallel, stride)


def _layout(strategy: LayerStrategy) -> tuple[object, ...]:
    """Return a key equal for all strategies that give a GPU the same part of a boundary tensor."""
    shared = strategy.num_gpus // strategy.data_parallel
    ordered = strategy.tensor_innermost or 1 in (shared, strategy.data_parallel)
    tokens = strategy.tensor_parallel if strategy.sequence != "none" else 1
    return strategy.data_parallel, strategy.context_parallel, tokens, ordered


def _parameters(share: LayerShare) -> Iterator[tuple[float, SharingLevel, bool]]:
    """Yield parameters on each GPU and the GPUs with equal copies; the experts' parameters apart."""
    yield share.work.parameters, share.strategy.weight_copies, False
    if share.work.expert_parameters:
        yield share.work.expert_parameters, share.strategy.expert_copies, True


def _states(share: LayerShare) -> Cost:
    """Return the cost of weights and gradients: memory, exchange and update.

    The forward is the time to gather the weights, or to scatter the gradients, as ZeRO-3 does for each pass;
    its bytes are the weights of other GPUs. Otherwise gradients are all-reduced; where the optimizer's
    states are shared, they are reduced and scattered, and the new weights gathered. The update is that of the
    GPU's own share. Frozen weights are gathered with ZeRO-3 alone.
    """
    framework, zero, precision = share.options.framework, share.strategy.zero, share.options.precision
    if precision.is_frozen and zero < 3:
        return Cost()
    step_ms = pass_ms = held = scatter_ms = gather_ms = 0.0
    for parameters, copies, is_experts in _parameters(share):
        weights, gradients = precision.number_bytes * parameters, precision.gradient_bytes * parameters
        moved = precision.update_bytes * parameters / (copies.degree if zero else 1)
        moved += framework.gradient_passes * gradients
        launches = 1 + (framework.gradient_passes > 0)
        if framework.kernels_per_weight:
            own = (each.experts or 1 for each in share.work.products if bool(each.experts) == is_experts)
            launches += round(framework.kernels_per_weight * sum(own))
        step_ms += share.memory_ms(moved, launches)
        if zero == 3:
            held += weights * (copies.degree - 1) / copies.degree
            pass_ms += share.collective_ms("all_gather", weights, copies)
        elif zero == 0:
            scatter_ms += share.collective_ms("all_reduce", gradients, copies)
        else:
            scatter_ms += share.collective_ms("reduce_scatter", gradients, copies)
            gather_ms += share.collective_ms("all_gather", weights, copies)
    if not share.layer.owns_parameters:
        step_ms = scatter_ms = gather_ms = 0.0
    return Cost(
        Pass(0.0, pass_ms), forward_bytes=held, update_ms=step_ms, scatter_ms=scatter_ms, gather_ms=gather_ms
    )


def _memory(share: LayerShare, num_micro_batches: int, gathered_bytes: float) -> Iterator[MemoryItem]:
    """Yield the tensors of a layer.

    ZeRO-1 shares the optimizer's states, ZeRO-2 also gradients, but these stand whole on each GPU while
    several micro-batches add to them, ZeRO-3 weights too.
    """
    layer, options, precision, zero = share.layer, share.options, share.options.precision, share.strategy.zero
    sizes = precision.weight_bytes, precision.gradient_bytes, precision.optimizer_bytes
    is_shared = zero == 3, zero == 3 or (zero == 2 and num_micro_batches == 1), zero > 0
    for parameters, copies, is_experts in _parameters(share) if layer.owns_parameters else ():
        for kind, size, shared in zip(STATE_KINDS, sizes, is_shared, strict=True):
            degree = copies.degree if shared else 1
            rule = f"{size:g} bytes a parameter" + (f", over {degree} GPUs" if degree > 1 else "")
            name = f"{kind} of experts" if is_experts else kind
            yield MemoryItem(kind, name, size * parameters / degree, rule)
    for name, num_bytes, is_whole in share.work.kept:
        size = num_bytes * share.samples / (share.sharing if is_whole else 1)
        size *= options.framework.softmax_bytes / 4 if name == SOFTMAX else 1
        if share.again == "full" or (share.again == "selective" and name == SCORES):
            yield MemoryItem("backward", name, size, "computed again")
        else:
            yield MemoryItem("kept", name, size, "each micro-batch")
    if share.again == "full":
        input_bytes = share.bytes_of(share.work.inputs) / share.sharing
        yield MemoryItem("kept", "input of the layer", input_bytes, "each micro-batch")
    if options.framework.has_temporaries:
        name, rule = "gradients between products", "largest of its parts"
        yield MemoryItem("backward", name, share.gradients_bytes, rule)
    if options.framework.has_placeholders:
        for a, b in sorted({(each.inputs, each.outputs) for each in share.work.products}):
            rule = "2 bytes a number, once for each shape"
            yield MemoryItem("buffer", f"placeholder of gradients, {a:g} x {b:g}", 2 * a * b, rule)
    gathered = (1 + layer.reads_weights_backward) * gathered_bytes
    yield MemoryItem("backward", "weights and gradients of other GPUs", gathered, "of one layer (ZeRO-3)")


def _passes(share: LayerShare, gather_ms: float) -> tuple[Pass, Pass]:
    """Return forward and backward: time of products, and time of sending, copying and waiting.

    Weights are gathered, or gradients scattered, in `gather_ms` for each pass.
    """
    options, layer = share.options, share.layer
    (core_ms, core_backward_ms), (forward, backward), again = share.core_ms, share.passes(), Pass()
    if share.again == "full":
        again = forward
    elif share.again == "selective" and layer.scores_bytes(options.precision, share.work.t):
        again = Pass(core_ms)
    exchanged_ms = share.heads_ms + share.routing_ms
    beside_ms = (layer.reads_weights_backward + layer.owns_parameters) * gather_ms
    if share.sharing > 1 and layer.reads_weights_backward:
        # The inputs of its parts are gathered again.
        beside_ms += sum(own_ms for own_ms, _ in share.reduces_ms) / 2
    beside = options.overlapped(backward.product_ms + again.product_ms, beside_ms)
    if options.overlap_weights:
        gather_ms = options.overlapped(forward.product_ms, gather_ms).copy_ms
    forward_ms = forward.time_ms + exchanged_ms + gather_ms
    backward_ms = backward.time_ms + again.time_ms + beside.copy_ms
    backward_ms += (2 if share.again == "full" else 1) * exchanged_ms
    if ring_ms := share.ring_ms:
        again_ms, rounds = (core_ms, 3) if again.product_ms else (0.0, 2)
        forward_ms += options.overlapped(core_ms, ring_ms).copy_ms
        backward_ms += options.overlapped(core_backward_ms + again_ms, rounds * ring_ms).copy_ms
    host_ms = share.host_ms
    return (
        Pass(forward.product_ms, max(forward_ms, host_ms[0]) - forward.product_ms),
        Pass(beside.product_ms, max(backward_ms, host_ms[1]) - beside.product_ms),
    )
