"""What a layer does on each GPU, operator by operator, and the tensors that it keeps.

All figures are those of one sample, before GPUs share its tokens. The module does not know a layer, a GPU or
a precision.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Split = Literal["outputs", "inputs", "none"]
"""The side of a matrix that tensor-parallel GPUs share; ``none`` for a matrix that each has whole."""

KernelKind = Literal["stream", "permute", "loss"]
"""Kernels that are bound by memory: one stream in and out; tokens sorted by expert; softmax and loss."""


class Product(NamedTuple):
    """A product of tokens with a matrix, or with one matrix for each expert.

    Attributes:
        name: What is computed.
        inputs: Rows of the matrix on each GPU.
        outputs: Columns of the matrix on each GPU.
        tokens: Tokens that are multiplied, those of all experts of the GPU together.
        split: See `Split`.
        experts: Matrices of this shape on each GPU, which have equal numbers of tokens; 0 for no experts.
        is_biased: A bias is added where the layer has biases.
    """

    name: str
    inputs: float
    outputs: float
    tokens: float
    split: Split
    experts: float = 0
    is_biased: bool = True

    @property
    def weights(self) -> float:
        """Numbers of the matrix, or of the matrices of all experts."""
        return self.inputs * self.outputs * (self.experts or 1)

    @property
    def flops(self) -> float:
        """Operations of the forward, two for each multiply and add."""
        return 2 * self.tokens * self.inputs * self.outputs

    def whole(self, t: int) -> Product:
        """Return the product with the whole matrix, of which t GPUs have parts, for 1 / t of the tokens."""
        sizes = {"inputs": (t, 1), "outputs": (1, t), "none": (1, 1)}[self.split]
        return self._replace(
            inputs=self.inputs * sizes[0], outputs=self.outputs * sizes[1], tokens=self.tokens / t
        )


class Core(NamedTuple):
    """The core of an attention: scores, softmax, and the product with the values.

    Attributes:
        heads: Heads on each GPU.
        kv_heads: Heads of keys and values on each GPU.
        key_width: Width of a query or key.
        value_width: Width of a value.
        tokens: Tokens that ask.
        span: Tokens that each attends to.
        counted: Share of these that the kernel computes, 0.5 for a causal one.
    """

    heads: float
    kv_heads: float
    key_width: int
    value_width: int
    tokens: int
    span: int
    counted: float = 1.0

    @property
    def flops(self) -> float:
        """Operations of the forward."""
        return 2 * self.tokens * self.span * self.counted * self.heads * (self.key_width + self.value_width)


class Kernel(NamedTuple):
    """A kernel that is bound by memory.

    Attributes:
        name: What is computed.
        forward: Numbers read and written by the forward.
        backward: Numbers read and written by the backward.
        is_whole: Each tensor-parallel GPU computes it for all tokens, unless these GPUs share the sequence.
        kind: See `KernelKind`.
        launches: Kernels of the forward and of the backward.
    """

    name: str
    forward: float
    backward: float
    is_whole: bool = False
    kind: KernelKind = "stream"
    launches: tuple[int, int] = (1, 1)


class KeptTensor(NamedTuple):
    """A tensor that is kept from the forward to the backward.

    Attributes:
        name: What it is.
        numbers: Numbers of it on each GPU.
        is_whole: Each tensor-parallel GPU has it for all tokens, unless these GPUs share the sequence.
        is_product_input: A product reads it, so that it is kept in the precision of products.
        number_bytes: Bytes of each number; None for those of an activation.
    """

    name: str
    numbers: float
    is_whole: bool = False
    is_product_input: bool = False
    number_bytes: float | None = None
