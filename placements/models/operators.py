"""The operators of a layer on each GPU, and the tensors that the layer keeps.

All figures are of one sample, before GPUs share its tokens. The module does not know a layer, a GPU or
a precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Split = Literal["outputs", "inputs", "none"]
"""The side of a matrix that tensor-parallel GPUs share; ``none`` for a matrix that each has whole."""

KernelKind = Literal["stream", "permute", "loss"]
"""Kernels that are bound by memory: one stream in and out; tokens sorted by expert; softmax and loss."""

SCORES = "scores"
"""Name of the scores that an attention keeps; they are computed again with the attention's core."""

LOGITS = "logits and softmax"
"""Name of the tensors of a loss, of which a framework may keep fewer bytes."""


class Product(NamedTuple):
    """A product of tokens with a matrix, or with one matrix for each expert.

    Attributes:
        inputs: Rows of the matrix on each GPU; `outputs` are its columns.
        tokens: Tokens that are multiplied, for all experts of the GPU together.
        experts: Matrices of this shape on each GPU, which have equal numbers of tokens; 0 for no experts.
        joined: Outputs of the matrices that stand side by side in this one; empty for a matrix of its own.
    """

    name: str
    inputs: float
    outputs: float
    tokens: float
    split: Split
    experts: float = 0
    joined: tuple[float, ...] = ()

    @property
    def apart(self) -> list[Product]:
        """The products of the matrices that stand side by side in this one, one by one."""
        return [self._replace(outputs=outputs, joined=()) for outputs in self.joined or (self.outputs,)]

    @property
    def weights(self) -> float:
        """Numbers of the matrix, or of the matrices of all experts."""
        return self.inputs * self.outputs * (self.experts or 1)

    @property
    def flops(self) -> float:
        """Operations of the forward, two for each multiply and add."""
        return 2 * self.tokens * self.inputs * self.outputs


class Core(NamedTuple):
    """The core of an attention: scores, softmax, and the product with the values.

    Attributes:
        heads: Heads on each GPU; `kv_heads` are those of keys and values.
        tokens: Tokens that ask; `span` are those that each attends to.
        counted: Share of these that the kernel computes, 0.5 for a causal one.
        keys: Tokens that have keys and values; 0 for as many as ask.
        score_bytes: Bytes read and written for each score by the kernels between the products, in the forward
            and in the backward; 0 for a core that does not write its scores (flash attention).
        launches: Number of these kernels in a pass.
        slowdown: Time of the core over the measured kernels' time.
    """

    heads: float
    kv_heads: float
    key_width: int
    value_width: int
    tokens: int
    span: int
    counted: float = 1.0
    keys: int = 0
    score_bytes: tuple[float, float] = (0.0, 0.0)
    launches: int = 0
    slowdown: float = 1.0

    @property
    def writes_scores(self) -> bool:
        """Whether scores are written to memory and read again."""
        return self.score_bytes[0] > 0

    @property
    def flops(self) -> float:
        """Operations of the forward."""
        return 2 * self.tokens * self.span * self.counted * self.heads * (self.key_width + self.value_width)

    @property
    def key_numbers(self) -> float:
        """Numbers of keys and values."""
        return (self.keys or self.tokens) * self.kv_heads * (self.key_width + self.value_width)

    @property
    def output_numbers(self) -> float:
        """Numbers of the output."""
        return self.tokens * self.heads * self.value_width

    @property
    def exchanged_numbers(self) -> float:
        """Numbers of queries, keys, values and outputs."""
        return self.tokens * self.heads * (self.key_width + self.value_width) + self.key_numbers


class Kernel(NamedTuple):
    """A kernel that is bound by memory.

    Attributes:
        forward: Numbers read and written by the forward; likewise `backward`.
        is_whole: Each tensor-parallel GPU computes it for all tokens, unless these GPUs share the sequence.
        launches: Kernels of the forward and of the backward.
        eager: Numbers that torch's own operations read and write in its place, as a multiple, where no fused
            kernel does it.
    """

    name: str
    forward: float
    backward: float
    is_whole: bool = False
    kind: KernelKind = "stream"
    launches: tuple[int, int] = (1, 1)
    eager: float = 1.0


class KeptTensor(NamedTuple):
    """A tensor that each GPU keeps from the forward to the backward; whole as a `Kernel` may be."""

    name: str
    num_bytes: float
    is_whole: bool = False


@dataclass
class Work:
    """A row of the table of costs: computation, messages and memory of one of the GPUs that share a layer.

    Attributes:
        t: GPUs that share each matrix; `expert_t` are those that share each matrix of an expert, of which all
            get the same tokens.
        experts: GPUs that share the experts.
        number_bytes: Bytes of an activation; `product_bytes` where only a product's backward reads it.
        inputs: Numbers that it keeps where its backward computes all else again.
        outputs: Numbers of its output.
        parameters: Parameters, without `expert_parameters`, which are those of the GPU's experts.
        reduces: Numbers of each all-reduce of tensor-parallel GPUs, in the forward and in the backward.
        gradients: Numbers of gradients that a backward holds at most between its products.
        other_flops: Operations of products that are not in `products`; of cores `other_core_flops`.
        gradient_bytes: Read and written once by each backward, whatever its samples.
    """

    t: int
    experts: int
    expert_t: int
    number_bytes: float
    product_bytes: float
    inputs: int = 0
    outputs: int = 0
    parameters: float = 0.0
    expert_parameters: float = 0.0
    products: list[Product] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    kept: list[KeptTensor] = field(default_factory=list)
    reduces: list[tuple[int, int]] = field(default_factory=list)
    gradients: float = 0.0
    other_flops: float = 0.0
    other_core_flops: float = 0.0
    gradient_bytes: float = 0.0

    def keep(self, name: str, numbers: float, size: float | None = None, is_whole: bool = False) -> None:
        """Add a kept tensor with the bytes of each number; None for the bytes of an activation."""
        self.kept.append(KeptTensor(name, (self.number_bytes if size is None else size) * numbers, is_whole))

    @property
    def core_flops(self) -> float:
        """Operations of scores and of their products with the values."""
        return sum(core.flops for core in self.cores) + self.other_core_flops

    @property
    def forward_flops(self) -> float:
        """Operations of the forward."""
        return sum(product.flops for product in self.products) + self.other_flops + self.core_flops
