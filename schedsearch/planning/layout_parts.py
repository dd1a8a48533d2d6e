"""Memory of a layout by its parts, which add up to what a GPU of a stage holds."""

from __future__ import annotations

from collections import defaultdict

from schedsearch.planning.uniform_run import StageTensor, UniformRun

_OF_KIND = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "backward": "one backward",
    "buffer": "buffers",
}
"""Part of tensors whose kind says it."""

_OF_WORDS = {
    "checkpoints": ("input of the layer",),
    "attention": ("attention", "key", "queries", "scores"),
    "feed-forward": ("activation", "feed-forward", "routed"),
    "state space": ("convolution", "first projection", "last projection", "state space", "states between"),
    "logits": ("input of the output layer", "logits"),
}
"""Part of tensors that a micro-batch keeps, by words of their names; the rest are other activations."""

MEMORY_PARTS = (
    *("weights", "gradients", "optimizer", "attention", "feed-forward", "state space", "checkpoints"),
    *("logits", "other activations", "one backward", "buffers", "rounding"),
)
"""Parts of memory, in the order in which they are told."""


def memory_part(tensor: StageTensor) -> str:
    """Return the part that a tensor belongs to; see `MEMORY_PARTS`."""
    if tensor.kind != "kept":
        return _OF_KIND[tensor.kind]
    parts = (part for part, words in _OF_WORDS.items() if any(word in tensor.name for word in words))
    return next(parts, "other activations")


def memory_by_part(run: UniformRun, stage: int) -> dict[str, float]:
    """Return the GiB that a GPU of a stage holds when it holds most, by part, in order.

    Blocks have whole MiB, rounded up, which is the last part; the sum is that of `UniformRun.gib_by_stage`.
    """
    found = defaultdict[str, float](float)
    for tensor in run.memory(stage):
        found[memory_part(tensor)] += tensor.gib
    found["rounding"] = run.gib_by_stage[stage] - sum(found.values())
    return {part: found[part] for part in MEMORY_PARTS}
