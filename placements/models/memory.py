"""Memory tensor by tensor, and the rules by which training frameworks hold each tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

MemoryKind = Literal["weights", "gradients", "optimizer", "kept", "backward", "buffer"]
"""Kinds of tensors: states; kept by each micro-batch; held only during a backward; or held once, for all
layers with an equal tensor."""

STATE_KINDS: tuple[MemoryKind, ...] = ("weights", "gradients", "optimizer")
"""Kinds that stand for all of the training."""


class MemoryItem(NamedTuple):
    """A tensor, or several of one name: bytes on each GPU, of one micro-batch where kept, and their rule."""

    kind: MemoryKind
    name: str
    num_bytes: float
    rule: str


@dataclass(frozen=True)
class Framework:
    """Memory and kernels of a training framework besides states and activations.

    Attributes:
        has_placeholders: A backward returns an empty gradient for each weight, since the product adds up into
            the 32-bit one; one for each shape is kept for all layers.
        has_temporaries: Gradients between the products of a backward are counted.
        softmax_bytes: Bytes of a number of the loss's softmax: 4, or 2 where the loss is fused.
        gradient_passes: How often a step reads or writes all gradients, besides the update.
        kernels_per_weight: Kernels of a step for each matrix: its gradient goes to the optimizer's share, and
            the new weight comes back.
        host_us: Time of the host for each kernel, in 1e-6 seconds.
    """

    name: str
    has_placeholders: bool = False
    has_temporaries: bool = True
    softmax_bytes: int = 4
    gradient_passes: float = 0.0
    kernels_per_weight: int = 0
    host_us: float = 0.0


PLAIN = Framework("plain", has_temporaries=False)
"""States and activations alone (Korthikanti et al., 2022, Sec. 4)."""

FRAMEWORKS = {
    "plain": PLAIN,
    # With Transformer Engine: products add up 32-bit gradients, and placeholders of gradients are cached by
    # shape; fused cross entropy; gradients cleared and normed.
    "megatron": Framework(
        "megatron", True, softmax_bytes=2, gradient_passes=2, kernels_per_weight=2, host_us=125.0
    ),
    # Before Transformer Engine, with kernels of its own and of apex: the softmax in 32 bits. Its host time is by
    # GPTs of hidden size 1024 on A100 (vTrain's runs of one node); by Megatron-LM's own tests of hidden size 512
    # on H100 a layer of 32 kernels takes the newer one 4.0 ms.
    "megatron_local": Framework("megatron_local", gradient_passes=2, host_us=50.0),
    # With FSDP2: loss in 32 bits, not fused; gradients set to none, and clipped.
    "torchtitan": Framework("torchtitan", gradient_passes=1, host_us=50.0),
    # The runtime of this project: torch's own modules and autograd.
    "schedsearch": Framework("schedsearch", host_us=50.0),
}
"""Frameworks by name."""
