"""Memory of a layer on each GPU, tensor by tensor, under the rules of a training framework.

The module does not know a GPU, nor how many micro-batches are held at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from placements.models.layers import Layer, Precision
from placements.models.parallel import LayerStrategy, SharingLevel

MemoryKind = Literal["weights", "gradients", "optimizer", "kept", "backward", "buffer"]
"""What a tensor is: a state; kept by each micro-batch; held only during a backward; or held once, by all
layers that have the same one."""

STATE_KINDS: tuple[MemoryKind, ...] = ("weights", "gradients", "optimizer")
"""Kinds that stand for all of the training."""


class MemoryItem(NamedTuple):
    """A tensor, or several of one name.

    Attributes:
        kind: See `MemoryKind`.
        name: What it is.
        num_bytes: Bytes on each GPU; of one micro-batch where it is kept.
        rule: How they are counted, in a few words.
    """

    kind: MemoryKind
    name: str
    num_bytes: float
    rule: str


@dataclass(frozen=True)
class Framework:
    """What a training framework holds besides states and activations.

    Attributes:
        name: What it is known by.
        has_placeholders: A backward returns an empty gradient for each weight, since the product adds up into
            the 32-bit one; one for each shape is kept for all layers.
        has_temporaries: Gradients between the products of a backward are counted.
        softmax_bytes: Bytes of a number of the loss's softmax: 4, or 2 where the loss is fused.
        gradient_passes: How often a step reads or writes all gradients, besides the update.
        kernels_per_weight: Kernels of a step for each matrix: its gradient goes to the optimizer's share, and
            the new weight comes back.
        source: Where that is from.
    """

    name: str
    has_placeholders: bool = False
    has_temporaries: bool = False
    softmax_bytes: int = 4
    gradient_passes: float = 0.0
    kernels_per_weight: int = 0
    source: str = ""


PLAIN = Framework("plain", source="states and activations alone (Korthikanti et al., 2022, Sec. 4)")
FRAMEWORKS = {
    each.name: each
    for each in (
        PLAIN,
        Framework(
            "megatron",
            has_placeholders=True,
            has_temporaries=True,
            softmax_bytes=2,
            gradient_passes=2,
            kernels_per_weight=2,
            source="Megatron-LM with Transformer Engine: products add up 32-bit gradients, and placeholders "
            "of gradients are cached by shape; fused cross entropy; gradients cleared and normed",
        ),
        Framework(
            "torchtitan",
            has_temporaries=True,
            gradient_passes=1,
            source="torchtitan with FSDP2: loss in 32 bits, not fused; gradients set to none, and clipped",
        ),
        Framework(
            "schedsearch",
            has_temporaries=True,
            source="the runtime of this project: torch's own modules and autograd",
        ),
    )
}
"""Frameworks by name."""


def state_items(
    precision: Precision,
    parameters: float,
    copies: SharingLevel,
    zero: int,
    has_one_micro_batch: bool,
    owner: str = "",
) -> Iterator[MemoryItem]:
    """Yield weights, gradients and optimizer states of parameters that so many GPUs hold together.

    ZeRO-1 shares the optimizer's states, ZeRO-2 also gradients, but these stand whole on each GPU while
    several micro-batches add to them, ZeRO-3 weights too.

    Args:
        precision: Bytes of each kind.
        parameters: Parameters on each GPU, were none shared.
        copies: GPUs that hold the same.
        zero: Stage of ZeRO.
        has_one_micro_batch: An iteration has but one.
        owner: Whose parameters they are, where that is to be told.
    """
    shared = 1 / copies.degree
    shares = {
        "weights": shared if zero == 3 else 1.0,
        "gradients": shared if zero == 3 or (zero == 2 and has_one_micro_batch) else 1.0,
        "optimizer": shared if zero else 1.0,
    }
    sizes = (precision.weight_bytes, precision.gradient_bytes, precision.optimizer_bytes)
    for kind, size in zip(STATE_KINDS, sizes, strict=True):
        rule = f"{size:g} bytes a parameter" + ("" if shares[kind] == 1 else f", over {copies.degree} GPUs")
        yield MemoryItem(kind, f"{kind}{owner}", size * parameters * shares[kind], rule)


def kept_items(
    layer: Layer, strategy: LayerStrategy, samples: float, precision: Precision, framework: Framework
) -> Iterator[MemoryItem]:
    """Yield what a micro-batch keeps of a layer of which nothing is recomputed.

    Args:
        layer: Its shape.
        strategy: How it is shared.
        samples: Samples of one data-parallel group.
        precision: Bytes of each number.
        framework: What keeps it.
    """
    tokens = samples / strategy.token_parallel
    whole = tokens / (strategy.tensor_parallel if strategy.sequence == "megatron" else 1)
    for tensor in layer.kept_tensors(precision, strategy.matrix_parallel):
        share = whole if tensor.is_whole else tokens
        size = precision.bytes_of(tensor)
        if tensor.name == _SOFTMAX:
            size = tensor.numbers * framework.softmax_bytes
        yield MemoryItem("kept", tensor.name, share * size, "each micro-batch")


_SOFTMAX = "softmax of the logits"


def held_once_items(
    layer: Layer, strategy: LayerStrategy, samples: float, precision: Precision, framework: Framework
) -> Iterator[MemoryItem]:
    """Yield what a backward holds for a while, and what all layers of a kind hold once; see `kept_items`."""
    t, tokens = strategy.matrix_parallel, samples / strategy.token_parallel
    if framework.has_temporaries:
        numbers = layer.backward_numbers(t)
        rule = "largest of its parts"
        yield MemoryItem(
            "backward", "gradients between products", precision.number_bytes * tokens * numbers, rule
        )
    if framework.has_placeholders:
        for inputs, outputs in sorted(
            {(each.inputs, each.outputs) for each in strategy.with_whole_experts(layer.products(t))}
        ):
            name = f"placeholder of gradients, {inputs:g} x {outputs:g}"
            yield MemoryItem("buffer", name, 2 * inputs * outputs, "2 bytes a number, once for each shape")
