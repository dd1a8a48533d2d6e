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
from placements.models.end_layers import OutputLayer, VocabularyLayer
from placements.models.layers import Layer
from placements.models.memory import LOSSES, STATE_KINDS, WORKSPACES_MIB, MemoryItem
from placements.models.operators import LOGITS, SCORES, KeptTensor
from placements.models.parallel import Buffer, Cost, LayerStrategy, Pass, SharingLevel
from placements.models.transformer import RECOMPUTED


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
    only one layer's are ever held whole, or two where the next one's are gathered meanwhile. Galvatron-BMW
    counts that exchange in the last micro-batch alone (App. C, Eq. 9); until then the gradients of all layers
    would have to stay.

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
        fault = f"{groups} does not divide the {samples} samples of a micro-batch"
        raise PlacementError(f"data_parallel: {fault}; use a divisor")
    layer.check(strategy.tensor_parallel, strategy.expert_parallel)
    share = LayerShare(layer, strategy, samples, group, options)
    held, states = defaultdict[str, float](float), _states(share)
    items = list(_memory(share, num_micro_batches, states.forward_bytes))
    for kind, _, num_bytes, _ in items:
        held[kind] += num_bytes
    apart = options.exchanges_apart
    return Cost(
        *_passes(share, states),
        held["kept"],
        states.forward_bytes,
        held["backward"] - share.gradients_bytes,
        sum(held[kind] for kind in STATE_KINDS),
        states.update_ms + (0.0 if apart else states.scatter_ms + states.gather_ms),
        frozenset(Buffer(name, num_bytes) for kind, name, num_bytes, _ in items if kind == "buffer"),
        states.scatter_ms if apart else 0.0,
        states.gather_ms if apart else 0.0,
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


def _parameters(share: LayerShare) -> Iterator[tuple[float, SharingLevel, bool]]:
    """Yield parameters on each GPU and the GPUs with equal copies; the experts' parameters apart."""
    yield share.work.parameters, share.strategy.weight_copies, False
    if share.work.expert_parameters:
        yield share.work.expert_parameters, share.strategy.expert_copies, True


def _states(share: LayerShare) -> Cost:
    """Return the cost of weights and gradients: memory, exchange and update.

    The forward is the time to gather the weights, and its bytes are the weights of other GPUs; the backward
    is the time to scatter the gradients, as each pass does with ZeRO-3 or a framework's ZeRO-2. Otherwise
    gradients are all-reduced; where the optimizer's states are shared, they are reduced and scattered, and
    the new weights gathered. Shares with copies are summed over these. The update is that of the GPU's own
    share. Frozen weights are gathered with ZeRO-3 alone.
    """
    framework, zero, precision = share.options.framework, share.strategy.zero, share.options.precision
    if precision.is_frozen and zero < 3:
        return Cost()
    step_ms = pass_ms = reduce_ms = held = scatter_ms = gather_ms = 0.0
    for parameters, copies, is_experts in _parameters(share):
        weights, gradients = precision.number_bytes * parameters, precision.gradient_bytes * parameters
        shards, replicas = share.strategy.shards(copies) if zero else (SharingLevel(1, 1), copies)
        moved = precision.update_bytes * parameters / shards.degree
        moved += framework.gradient_passes * gradients
        launches = 1 + (framework.gradient_passes > 0)
        if framework.kernels_per_weight:
            counts = (gemm.experts or 1 for gemm in share.work.products if bool(gemm.experts) == is_experts)
            launches += round(framework.kernels_per_weight * sum(counts))
        step_ms += share.memory_ms(moved, launches)
        gathering_ms = share.collective_ms("all_gather", weights, shards)
        scattering_ms = share.collective_ms("reduce_scatter", gradients, shards) if gradients else 0.0
        if gradients and replicas.degree > 1:
            scattering_ms += share.collective_ms("all_reduce", gradients / shards.degree, replicas)
        if zero == 3:
            held += weights * (shards.degree - 1) / shards.degree
            pass_ms, reduce_ms = pass_ms + gathering_ms, reduce_ms + scattering_ms
            continue
        gather_ms += gathering_ms
        if zero == 2 and framework.scatters_gradients:
            reduce_ms += scattering_ms
        else:
            scatter_ms += scattering_ms
    if not share.layer.owns_parameters:
        step_ms = reduce_ms = scatter_ms = gather_ms = 0.0
    passes = Pass(0.0, pass_ms), Pass(0.0, reduce_ms)
    return Cost(*passes, forward_bytes=held, update_ms=step_ms, scatter_ms=scatter_ms, gather_ms=gather_ms)


def _memory(share: LayerShare, num_micro_batches: int, gathered_bytes: float) -> Iterator[MemoryItem]:
    """Yield the tensors of a layer.

    ZeRO-1 shares the optimizer's states, ZeRO-2 also gradients, but these stand whole on each GPU while
    several micro-batches add to them, unless the framework scatters each micro-batch's; ZeRO-3 weights too.
    """
    layer, options, strategy = share.layer, share.options, share.strategy
    precision, framework, zero = options.precision, options.framework, strategy.zero
    loss = LOSSES[framework.loss]
    # Frozen weights of 8 or 4 bits stand once: a backward transposes them (Megatron-LM's LoRA recipes).
    weight_bytes = precision.product_bytes if precision.is_frozen else precision.weight_bytes
    sizes = weight_bytes, precision.gradient_bytes, precision.optimizer_bytes
    scatters = zero == 2 and (num_micro_batches == 1 or framework.scatters_gradients)
    is_shared = zero == 3, zero == 3 or scatters, zero > 0
    if zero == 3 and framework.casts_weights and precision.optimizer_bytes > 8:
        sizes = 0.0, *sizes[1:]
    for parameters, copies, is_experts in _parameters(share) if layer.owns_parameters else ():
        for kind, size, shared in zip(STATE_KINDS, sizes, is_shared, strict=True):
            degree = strategy.shards(copies)[0].degree if shared else 1
            rule = f"{size:g} bytes a parameter" + (f", over {degree} GPUs" if degree > 1 else "")
            name = f"{kind} of experts" if is_experts else kind
            if size:
                yield MemoryItem(kind, name, size * parameters / degree, rule)
    again = _recomputed(share)
    for name, num_bytes, is_whole in (*share.work.kept, *_copies(share)):
        size = num_bytes * share.samples / (share.sharing if is_whole else 1)
        size *= loss.kept_bytes / LOSSES["plain"].kept_bytes if name == LOGITS else 1
        if name in again:
            yield MemoryItem("backward", name, size, "computed again")
        else:
            yield MemoryItem("kept", name, size, "each micro-batch")
    if share.again == "full" or "operators" in again:
        input_bytes = share.bytes_of(share.work.inputs) / share.sharing
        yield MemoryItem("kept", "input of the layer", input_bytes, "each micro-batch")
    if "operators" in again:
        numbers = sum(core.output_numbers for core in share.work.cores)
        for product in share.products[::2]:
            numbers += product.tokens * product.outputs / (share.sharing if product.split == "inputs" else 1)
        yield MemoryItem("kept", "outputs of operators", share.bytes_of(numbers), "each micro-batch")
    for name, size in _libraries(share):
        yield MemoryItem("buffer", name, size, "once for all layers")
    if framework.has_temporaries:
        name, rule = "gradients between products", "largest of its parts"
        size = share.gradients_bytes
        if isinstance(layer, OutputLayer):
            # The gradients of its weights and input come when only the logits' gradient is left of the loss.
            name, rule = "gradients of the loss", "or of weights and input after it"
            logits = share.samples * sum(product.tokens * product.outputs for product in share.work.products)
            weights = 0.0 if precision.is_frozen else share.work.parameters
            later = precision.number_bytes * (logits + weights)
            later += share.bytes_of(share.work.inputs) - loss.kept_bytes * logits
            size = max(loss.backward_bytes * logits, later)
        yield MemoryItem("backward", name, size, rule)
    if framework.has_placeholders and not precision.is_frozen and not isinstance(layer, OutputLayer):
        for a, b in sorted({(product.inputs, product.outputs) for product in share.work.products}):
            rule = "2 bytes a number, once for each shape"
            yield MemoryItem("buffer", f"placeholder of gradients, {a:g} x {b:g}", 2 * a * b, rule)
    yield from _gathered(share, gathered_bytes)


def _gathered(share: LayerShare, num_bytes: float) -> Iterator[MemoryItem]:
    """Yield weights and gradients of other GPUs, with ZeRO-3.

    Weights are dropped after each pass, but those of a framework's outermost module, embedding and output
    layer, and where they are not gathered again.
    """
    layer, options, name = share.layer, share.options, "weights of other GPUs"
    is_end = options.framework.scatters_gradients and isinstance(layer, VocabularyLayer)
    if num_bytes and layer.owns_parameters and (is_end or not share.strategy.reshards):
        yield MemoryItem("weights", name, num_bytes, "from the first forward to the last backward")
    elif layer.reads_weights_backward:
        count = 2 if options.overlap_weights else 1
        yield MemoryItem("backward", name, count * num_bytes, "of one layer, or with the next")
    if not options.precision.is_frozen:
        yield MemoryItem("backward", "gradients of other GPUs", num_bytes, "of one layer")


def _recomputed(share: LayerShare) -> frozenset[str]:
    """Return the names of the tensors, products and kernels that the backward computes again.

    Without scores the attention's core is not.
    """
    kept, modules = share.work.kept, share.strategy.recompute_modules or ("core_attn",)
    if share.again == "none":
        return frozenset()
    names = {name for module in modules for name in RECOMPUTED.get(module, (module,))}
    if share.again == "full" or "operators" in modules:
        names |= {tensor.name for tensor in (*kept, *_copies(share))}
    has_scores = share.again == "full" or any(tensor.num_bytes for tensor in kept if tensor.name == SCORES)
    return frozenset(names if has_scores else names - {SCORES})


def _copies(share: LayerShare) -> Iterator[KeptTensor]:
    """Yield the output of an attention's kernel where Transformer Engine keeps it besides a copy.

    The product reads the copy: the output after heads and tokens were exchanged or, before Hopper, in another
    order than FlashAttention's, which writes sample by sample; cuDNN's kernel, for later GPUs, does not.
    """
    strategy, gpu, name = share.strategy, share.group.gpu, share.options.framework.workspaces or ""
    numbers = sum(core.output_numbers for core in share.work.cores if not core.writes_scores)
    exchanges_heads = strategy.context == "all_to_all" and strategy.context_parallel > 1
    by_samples = gpu.peak_fp8_tflops is None and share.samples * strategy.token_parallel > 1
    if name.startswith("transformer_engine") and numbers and (exchanges_heads or by_samples):
        yield KeptTensor("output of the attention's kernel", share.work.number_bytes * numbers)


def _libraries(share: LayerShare) -> Iterator[tuple[str, float]]:
    """Yield the names and bytes of workspaces and of Megatron-LM's buffers."""
    framework, layer, work = share.options.framework, share.layer, share.work
    if framework.workspaces and not isinstance(layer, VocabularyLayer):
        has_fp8 = share.group.gpu.peak_fp8_tflops is not None
        yield "workspaces", 2**20 * WORKSPACES_MIB[framework.workspaces][has_fp8]
    if isinstance(layer, OutputLayer) and share.sharing > 1 and framework.kernels_per_weight:
        yield "gathered input of the output layer", share.bytes_of(work.inputs)
    scores = [core.heads * core.tokens * core.span for core in work.cores if core.writes_scores]
    if framework.has_score_buffer and scores:
        yield "scores before the softmax", share.bytes_of(max(scores))


def _passes(share: LayerShare, states: Cost) -> tuple[Pass, Pass]:
    """Return forward and backward: time of products, and time of sending, copying and waiting.

    Weights are gathered in the forward of `states` for each pass, and gradients scattered in its backward.
    """
    options, layer, strategy = share.options, share.layer, share.strategy
    (core_ms, core_backward_ms), (forward, backward) = share.core_ms, share.passes()
    exchanged_ms = again_exchanged_ms = share.heads_ms + share.routing_ms
    names, again = _recomputed(share), forward
    if share.again != "full":
        again_exchanged_ms = share.routing_ms if "router" in names else 0.0
        again = Pass(_again_ms(share, names))
    gather_ms = states.forward.copy_ms
    beside_ms = gather_ms if layer.reads_weights_backward and strategy.reshards else 0.0
    beside_ms += states.backward.copy_ms
    if share.sharing > 1 and layer.reads_weights_backward:
        # The inputs of its parts are gathered again.
        gathers_ms = sum(forward_ms for forward_ms, _ in share.reduces_ms) / 2
        if options.framework.is_eager and not options.overlap_tensor_parallel:
            again_exchanged_ms += gathers_ms
        else:
            beside_ms += gathers_ms
    beside = options.overlapped(backward.product_ms + again.product_ms, beside_ms)
    if options.overlap_weights:
        gather_ms = options.overlapped(forward.product_ms, gather_ms).copy_ms
    forward_ms = forward.time_ms + exchanged_ms + gather_ms
    backward_ms = backward.time_ms + again.time_ms + beside.copy_ms + exchanged_ms + again_exchanged_ms
    if ring_ms := share.ring_ms:
        again_ms, rounds = (core_ms, 3) if SCORES in names else (0.0, 2)
        forward_ms += options.overlapped(core_ms, ring_ms).copy_ms
        backward_ms += options.overlapped(core_backward_ms + again_ms, rounds * ring_ms).copy_ms
    host_ms = share.host_ms
    return (
        Pass(forward.product_ms, max(forward_ms, host_ms[0]) - forward.product_ms),
        Pass(beside.product_ms, max(backward_ms, host_ms[1]) - beside.product_ms),
    )


def _again_ms(share: LayerShare, names: frozenset[str]) -> float:
    """Return the time of the products, kernels and cores that selective recomputation computes again."""
    if "operators" in names:
        return sum(forward_ms for forward_ms, _ in (*share.products_ms[1::2], *share.kernels_ms.values()))
    core_ms = share.core_ms[0] if SCORES in names else 0.0
    products = zip((product.name for product in share.products), share.products_ms, strict=False)
    all_ms = (*products, *share.kernels_ms.items())
    return core_ms + sum(forward_ms for name, (forward_ms, _) in all_ms if name in names)
