"""What a GPT costs: operations, parameters and bytes of its layers, from its shape alone.

The formulae count matrix products (two operations per multiply and add) and tensors in 16-bit training.
The module does not know a GPU, a device or a stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from placements.spec import PlacementError

STATIC_BYTES = 16
"""Bytes per parameter in mixed precision: 16-bit weight and gradient (2 + 2), and in 32 bits the master
weight and the two moments of Adam (3 x 4)."""

HALF_BYTES = 2
"""Bytes of a 16-bit number."""

LOGIT_BYTES = 6
"""Bytes per logit between the output layer's forward and backward: the 16-bit logit or its gradient, and
the 32-bit softmax that the backward needs."""


@dataclass(frozen=True)
class GptConfig:
    """A decoder-only transformer and its micro-batch; the symbols are those of Korthikanti et al. (2022).

    Attributes:
        num_layers: Transformer layers.
        hidden_size: Width of the residual stream, h.
        num_heads: Attention heads, a; a divisor of `hidden_size`.
        vocab_size: Rows of the embedding table, which is also the output layer's; v.
        sequence_length: Tokens of one sample, s.
        micro_batch_size: Samples of one micro-batch, b.
        recompute: A layer keeps only its input, and its backward runs its forward again.
        flash_attention: The attention never stores its scores, of shape ``(b, a, s, s)``.

    Raises:
        PlacementError: A field is out of its range.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    sequence_length: int
    micro_batch_size: int
    recompute: bool = False
    flash_attention: bool = True

    def __post_init__(self) -> None:
        """Check every field."""
        for name in _SIZES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
        for name in ("recompute", "flash_attention"):
            if not isinstance(getattr(self, name), bool):
                raise PlacementError(
                    f"{name}: {getattr(self, name)!r} is not a truth value; use true or false"
                )
        if self.hidden_size % self.num_heads:
            raise PlacementError(
                f"num_heads: {self.num_heads} does not divide hidden_size {self.hidden_size}; use a divisor"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens of one micro-batch, b s."""
        return self.micro_batch_size * self.sequence_length


_SIZES = ("num_layers", "hidden_size", "num_heads", "vocab_size", "sequence_length", "micro_batch_size")


def num_parameters(config: GptConfig) -> int:
    """Return the parameters of the whole model, the tied table counted once.

    >>> gpt_11b = GptConfig(32, 4096, 32, 1_000_000, 2048, 2)  # Tessel, Table III
    >>> round(num_parameters(gpt_11b) / 1e9, 1)
    10.5
    """
    return (
        config.num_layers * layer_parameters(config)
        + table_parameters(config, config.vocab_size)
        + position_parameters(config)
    )


def layer_parameters(config: GptConfig) -> int:
    """Return the parameters of one layer, 12 h^2 + 13 h.

    Query, key, value and output projections have 4 h^2, the two matrices of the feed-forward part
    8 h^2; their biases 4 h and 5 h; the two norms 4 h.
    """
    h = config.hidden_size
    return 12 * h * h + 13 * h


def table_parameters(config: GptConfig, num_rows: int) -> int:
    """Return the parameters of some rows of the embedding table, h each."""
    return num_rows * config.hidden_size


def position_parameters(config: GptConfig) -> int:
    """Return the parameters of the learned positions, s h."""
    return config.sequence_length * config.hidden_size


def layer_forward_flops(config: GptConfig) -> int:
    """Return the operations of one layer's forward on one micro-batch, 24 b s h^2 + 4 b s^2 h.

    A product with an ``(m, n)`` matrix is 2 m n operations per token. The projections of query, key, value
    and output are 4 products of ``(h, h)``: 8 b s h^2. The feed-forward part is ``(h, 4h)`` and
    ``(4h, h)``: 16 b s h^2. Scores and their product with the values are s h multiply-adds per token
    each: 4 b s^2 h; the causal half is not left out, as is usual when utilisation is stated.
    """
    h, tokens = config.hidden_size, config.num_tokens
    return 24 * tokens * h * h + 4 * tokens * config.sequence_length * h


def layer_backward_flops(config: GptConfig) -> int:
    """Return the operations of one layer's backward on one micro-batch: 2 forwards, with recomputation 3.

    Each product has two in the backward, one for the gradient of either factor. What an attention that
    never stores its scores computes again is not counted here; it is part of the utilisation.
    """
    return (3 if config.recompute else 2) * layer_forward_flops(config)


def output_forward_flops(config: GptConfig, num_rows: int) -> int:
    """Return the operations of the output layer's forward for some rows of the table, 2 b s h each.

    Its backward has two products of that size.
    """
    return 2 * config.num_tokens * config.hidden_size * num_rows


def hidden_bytes(config: GptConfig) -> int:
    """Return the bytes of one micro-batch between two layers, 2 b s h in 16 bits."""
    return HALF_BYTES * config.num_tokens * config.hidden_size


def layer_activation_bytes(config: GptConfig) -> int:
    """Return what one layer keeps of one micro-batch until its backward, on one device.

    16-bit training with dropout keeps s b h (34 + 5 a s / h) bytes (Korthikanti et al., 2022, "Reducing
    Activation Recomputation in Large Transformer Models", Sec. 4.1, Eq. 1): attention 11 s b h and, of
    the scores, 5 a s^2 b; feed-forward part 19 s b h; norms 4 s b h. Without stored scores 34 s b h
    remain; with recomputation the layer's input, 2 s b h.
    """
    if config.recompute:
        return hidden_bytes(config)
    return layer_working_bytes(config)


def layer_working_bytes(config: GptConfig, tensor_parallel: int = 1) -> int:
    """Return what one layer holds between its forward and its backward when nothing is recomputed.

    Where several devices share the layer, each holds s b h (10 + 24 / t + 5 a s / (h t)) bytes (Korthikanti
    et al., 2022, Sec. 4.2.1, Eq. 2): the inputs of attention and feed-forward part, their dropout masks and
    the norms on each, the rest split.
    """
    width = config.num_tokens * config.hidden_size
    scores = (
        0 if config.flash_attention else 5 * config.num_heads * config.sequence_length * config.num_tokens
    )
    return 10 * width + -(-(24 * width + scores) // tensor_parallel)


def output_activation_bytes(config: GptConfig, num_rows: int) -> int:
    """Return what the output layer keeps of one micro-batch for some rows: its logits and its input."""
    return LOGIT_BYTES * config.num_tokens * num_rows + hidden_bytes(config)
