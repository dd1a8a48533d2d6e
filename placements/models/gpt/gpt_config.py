"""A GPT and its micro-batch in 16-bit training: operations, parameters and bytes of its layers.

The formulae are those of `placements.models.layers`, for its layer. The module does not know a GPU, a device
or a stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from placements.block import PlacementError
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.layers import HALF, check_sizes
from placements.models.transformer import TransformerLayer

HALF_BYTES = 2
"""Bytes of a 16-bit number."""


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
        checkpoints: With `recompute`, inputs of layers that each stage keeps, in between which layers are
            computed again together; 0 for as many as need least memory, None for one each layer.
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
    checkpoints: int | None = None
    flash_attention: bool = True

    def __post_init__(self) -> None:
        """Check every field."""
        check_sizes(self, ("checkpoints",))
        if self.checkpoints is not None and (self.checkpoints < 0 or not self.recompute):
            raise PlacementError(
                f"checkpoints: {self.checkpoints} is for recompute=true, and 0 or more; give that, or null"
            )
        if self.hidden_size % self.num_heads:
            raise PlacementError(
                f"num_heads: {self.num_heads} does not divide hidden_size {self.hidden_size}; use a divisor"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens of one micro-batch, b s."""
        return self.micro_batch_size * self.sequence_length

    @property
    def layer(self) -> TransformerLayer:
        """One of its layers."""
        return TransformerLayer(
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            sequence_length=self.sequence_length,
            attention="flash" if self.flash_attention else "fused",
        )

    @property
    def embedding(self) -> EmbeddingLayer:
        """Its embedding, with a learned position for each token of a sample."""
        return EmbeddingLayer(
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            sequence_length=self.sequence_length,
            num_positions=self.sequence_length,
        )

    def output(self, tied: bool = True) -> OutputLayer:
        """Its output layer, on the GPUs that hold the embedding or on others."""
        return OutputLayer(
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            sequence_length=self.sequence_length,
            tied=tied,
        )


def hidden_bytes(config: GptConfig) -> int:
    """Return the bytes of one micro-batch between two layers, 2 b s h in 16 bits."""
    return HALF_BYTES * config.num_tokens * config.hidden_size


def layer_working_bytes(config: GptConfig, tensor_parallel: int = 1) -> float:
    """Return what one layer holds between its forward and its backward when nothing is recomputed.

    Where several devices share the layer, each holds s b h (10 + 24 / t + 5 a s / (h t)) bytes (Korthikanti
    et al., 2022, Sec. 4.2.1, Eq. 2): the inputs of attention and feed-forward part, their dropout masks and
    the norms on each, the rest split.
    """
    return config.micro_batch_size * sum(config.layer.kept(HALF, tensor_parallel))
