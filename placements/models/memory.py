"""Memory tensor by tensor, and the rules by which training frameworks hold each tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


class Loss(NamedTuple):
    """Bytes that a loss holds for each logit: from the forward to the backward, and more in its backward."""

    kept_bytes: float
    backward_bytes: float


LOSSES = {
    # 16-bit logits and their 32-bit softmax (Korthikanti et al., 2022, Sec. 4.3).
    "plain": Loss(6, 0),
    # Megatron-LM: the gradient is written over the 32-bit softmax, and cast to 16 bits.
    "megatron": Loss(4, 2),
    # The same compiled, ``--cross-entropy-loss-fusion`` with the ``native`` implementation: not in place.
    "native": Loss(4, 6),
    # The kernels of Transformer Engine write the gradient over the logits.
    "transformer_engine": Loss(2, 0),
    # Torch: 32-bit logarithms of the softmax, and 32-bit gradients of these and of the logits. The 16-bit
    # logits are freed before, but their memory stays reserved, which is the figure of torchtitan.
    "torch": Loss(4, 10),
    # The same compiled, and FlashAttention's kernels in LLM Foundry: 16-bit logits and their 16-bit gradient.
    "compiled": Loss(2, 2),
}
"""Losses by the kind that a framework names."""


WORKSPACES_MIB = {
    "torch": (16.25, 64.0),
    "torch deterministic": (64.0, 64.0),
    "transformer_engine": (20.25, 96.0),
    "transformer_engine deterministic": (68.0, 96.0),
}
"""Workspaces on GPUs before Hopper, and on later ones, which have FP8.

Torch gives cuBLAS one in the forward's thread and one in the backward's, and larger ones before Hopper where
results have to be equal each time (``CUBLAS_WORKSPACE_CONFIG=:4096:8``); Transformer Engine has one besides.
"""


@dataclass(frozen=True)
class Framework:
    """Memory and kernels of a training framework besides states and activations.

    Attributes:
        has_placeholders: A backward returns an empty gradient for each weight, since the product adds up into
            the 32-bit one; one for each shape is kept for all layers.
        has_temporaries: Gradients between the products of a backward are counted.
        loss: Kind of loss, a key of `LOSSES`.
        gradient_passes: How often a step reads or writes all gradients, besides the update.
        kernels_per_weight: Kernels of a step for each matrix: its gradient goes to the optimizer's share, and
            the new weight comes back.
        workspaces: Libraries whose workspaces for products are held, a key of `WORKSPACES_MIB`, or None.
        has_score_buffer: Scores of an attention that is not flash are computed in a buffer that stays, as
            Megatron-LM does without Transformer Engine.
        scatters_gradients: ZeRO-2 reduces and scatters gradients in each micro-batch, as FSDP does; otherwise
            they stand whole while several micro-batches add to them. Embedding and output layer, which are in
            no module of their own, stay whole with ZeRO-3.
        casts_weights: With ZeRO-3 weights are cast from the master weights when they are gathered; otherwise
            shares in 16 bits stand beside these.
        host_us: Time of the host for each kernel, in 1e-6 seconds.
        is_eager: Norms, rotations and gates are torch's own operations unless they are compiled.
    """

    name: str
    has_placeholders: bool = False
    has_temporaries: bool = True
    loss: str = "plain"
    gradient_passes: float = 0.0
    kernels_per_weight: int = 0
    workspaces: str | None = None
    has_score_buffer: bool = False
    scatters_gradients: bool = False
    casts_weights: bool = False
    host_us: float = 0.0
    is_eager: bool = False


PLAIN = Framework("plain", has_temporaries=False)
"""States and activations alone (Korthikanti et al., 2022, Sec. 4)."""

_MEGATRON = Framework(
    "megatron",
    has_placeholders=True,
    loss="transformer_engine",
    gradient_passes=2,
    kernels_per_weight=2,
    workspaces="transformer_engine",
    # Of GPTs of hidden size 512 on H100 a layer of 32 kernels takes 4.0 ms (Megatron-LM's functional tests).
    host_us=125.0,
)

FRAMEWORKS = {
    "plain": PLAIN,
    # With Transformer Engine: products add up 32-bit gradients, and placeholders of gradients are cached by
    # shape; fused cross entropy; gradients cleared and normed.
    "megatron": _MEGATRON,
    # With kernels of its own and of apex, and less work for the host: by GPTs of hidden size 1024
    # on A100 (vTrain's runs of one node).
    "megatron_local": replace(
        _MEGATRON,
        name="megatron_local",
        loss="megatron",
        workspaces="torch",
        has_score_buffer=True,
        host_us=60.0,
    ),
    # Shares of 16-bit and of 32-bit weights; layers are modules (Megatron-FSDP).
    "megatron_fsdp": replace(
        _MEGATRON, name="megatron_fsdp", has_placeholders=False, scatters_gradients=True
    ),
    # With FSDP2: loss in 32 bits, not fused; gradients set to none, and clipped.
    "torchtitan": Framework(
        "torchtitan",
        loss="torch",
        gradient_passes=1,
        workspaces="torch",
        scatters_gradients=True,
        casts_weights=True,
        host_us=50.0,
        is_eager=True,
    ),
    # The runtime of this project: torch's own modules and autograd.
    "schedsearch": Framework("schedsearch", host_us=50.0, is_eager=True),
}
"""Frameworks by name."""
