"""Layers as shapes: parameters, operations and bytes of one sample, in any precision, shared by any number.

Sizes are those of one GPU where `t` share the layer's matrices (tensor parallel). The module does not know
what share of its peak a GPU reaches, nor how many samples it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from placements.hardware import Gpu
from placements.spec import PlacementError

AttentionKind = Literal["flash", "fused", "unfused"]
"""Scores that an attention keeps: nothing; the softmax's output, dropped out or not, and the mask; or
the softmax's input too, as without a fused softmax."""


@dataclass(frozen=True)
class Precision:
    """Numbers that a model is trained with. Either way 16 bytes stand for each parameter.

    Attributes:
        name: ``half`` has 16-bit weights and gradients beside 32-bit master weights and moments of Adam,
            2 + 2 + 3 x 4 bytes; ``single`` 32-bit weights, gradients and moments, 4 x 4; ``tf32`` these too,
            but products on the matrix units where a GPU's can.
        number_bytes: Bytes of an activation, a weight or a gradient.
    """

    name: str
    number_bytes: int

    def peak_tflops(self, gpu: Gpu) -> float:
        """Return the peak of a GPU's matrix products, 1e12 operations per second."""
        if self.name == "half":
            return gpu.peak_tflops
        return (gpu.peak_tf32_tflops if self.name == "tf32" else None) or gpu.peak_fp32_tflops


HALF, SINGLE, TF32 = Precision("half", 2), Precision("single", 4), Precision("tf32", 4)

PRECISIONS = {each.name: each for each in (HALF, SINGLE, TF32)}
"""The precisions by name."""


class HeldBytes(NamedTuple):
    """Bytes of one sample.

    Attributes:
        each: Bytes that every tensor-parallel GPU holds, unless they share the sequence too.
        split: A GPU's part of what they share.
    """

    each: float
    split: float


class Streams(NamedTuple):
    """Bytes read and written beside matrix products, or without any.

    Attributes:
        forward: Of one sample.
        backward: Likewise.
        gradient: Once for each backward, whatever its samples.
    """

    forward: float = 0.0
    backward: float = 0.0
    gradient: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Layer(ABC):
    """A layer of a model, by its shape.

    Attributes:
        name: Name by which measured times are found; see `placements.models.calibration`.

    Raises:
        PlacementError: A size is not a whole number of at least 1.
    """

    name: str = "layer"

    @property
    def reads_weights_backward(self) -> bool:
        """Its backward needs its weights: not so where it only looks rows up."""
        return True

    @property
    def owns_parameters(self) -> bool:
        """Its weights, gradients and optimizer states stand with it, and not with another layer."""
        return True

    def check(self, t: int, experts: int) -> None:
        """Ensure that so many GPUs can share its matrices, and so many its experts.

        Raises:
            PlacementError: They cannot.
        """
        if experts > 1:
            raise PlacementError(
                f"expert_parallel: {experts} GPUs cannot share {self.name!r}, which has no experts; use 1"
            )

    @property
    def num_parameters(self) -> int:
        """All that belong to it, those of all experts included."""
        return round(self.parameters(1) + self.expert_parameters(1)) if self.owns_parameters else 0

    @abstractmethod
    def parameters(self, t: int) -> float:
        """Return the parameters on each GPU, without experts'."""

    def expert_parameters(self, t: int) -> float:
        """Return the parameters of all experts on each GPU, where it has them all."""
        return 0.0

    @abstractmethod
    def forward_flops(self, t: int) -> float:
        """Return the operations of matrix products on each GPU, two per multiply and add."""

    def core_flops(self, t: int) -> float:
        """Return those of the attention's scores and of their product with the values."""
        return 0.0

    def streams(self, precision: Precision, t: int) -> Streams:
        """Return what each GPU reads and writes besides."""
        return Streams()

    @abstractmethod
    def kept(self, precision: Precision, t: int) -> HeldBytes:
        """Return what each GPU keeps from the forward to the backward when nothing is recomputed."""

    def scores_bytes(self, precision: Precision, t: int) -> float:
        """Return the part of `kept` that recomputing the attention's core saves."""
        return 0.0

    @abstractmethod
    def input_elements(self) -> int:
        """Return the numbers that it keeps where its backward computes all else again."""

    @abstractmethod
    def output_elements(self) -> int:
        """Return the numbers of its output, which is what passes to the next layer."""

    def reduced_elements(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of each all-reduce of tensor-parallel GPUs, in the forward and the backward."""
        return (), ()

    def shared_elements(self) -> int:
        """Return the numbers of queries, keys, values and outputs, which Ulysses exchanges."""
        return 0

    def ring_elements(self, t: int) -> float:
        """Return the numbers of keys and values on each GPU, which ring attention sends on."""
        return 0.0

    def routed_elements(self) -> int:
        """Return the numbers that go to experts, and come back."""
        return 0


@dataclass(frozen=True, kw_only=True)
class TransformerLayer(Layer):
    """A transformer layer: attention, for a decoder a second one, and a feed-forward part or experts.

    Attributes:
        hidden_size: Width of the residual stream, h.
        num_heads: Attention heads, a.
        sequence_length: Tokens of a sample, s.
        feed_forward_size: Width of the feed-forward part, or of each expert's; None for 4 h.
        num_kv_heads: Heads of keys and values (grouped-query attention); None for all.
        head_width: None for h / a.
        gated: The feed-forward part has a gate (SwiGLU), so three matrices.
        causal: Count only half of the attention's core, as causal kernels compute. By default all is counted,
            as is usual where utilisation is stated (Narayanan's dissertation, Sec. 4.5).
        cross_length: Tokens of an encoder's output that a second attention reads; 0 for none.
        window: Tokens that each attends to; None for all.
        dropout: Masks are kept, of attention, feed-forward part and scores.
        biases: Whether matrices and norms have biases; without, norms have a scale alone (RMSNorm).
        attention: What it keeps of the scores.
        num_experts: Feed-forward parts of which a router chooses; 1 for no router.
        experts_per_token: How many it chooses.
    """

    hidden_size: int
    num_heads: int
    sequence_length: int
    feed_forward_size: int | None = None
    num_kv_heads: int | None = None
    head_width: int | None = None
    gated: bool = False
    causal: bool = False
    cross_length: int = 0
    window: int | None = None
    dropout: bool = True
    biases: bool = True
    attention: AttentionKind = "flash"
    num_experts: int = 1
    experts_per_token: int = 1

    def __post_init__(self) -> None:
        """Check every size."""
        check_sizes(self, may_be_zero=("cross_length",))
        if self.head_width is None and self.hidden_size % self.num_heads:
            raise PlacementError(
                f"num_heads: {self.num_heads} does not divide hidden_size {self.hidden_size}; use a divisor"
            )
        if self.num_heads % self.kv_heads:
            raise PlacementError(
                f"num_kv_heads: {self.kv_heads} does not divide num_heads {self.num_heads}; use a divisor"
            )
        if self.experts_per_token > self.num_experts:
            raise PlacementError(
                f"experts_per_token: {self.experts_per_token} is more than num_experts {self.num_experts}; "
                "give at most these"
            )
        if self.attention not in get_args(AttentionKind):
            raise PlacementError(
                f"attention: {self.attention!r} is not known; use one of {', '.join(get_args(AttentionKind))}"
            )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def ffn_size(self) -> int:
        """Width of the feed-forward part."""
        return 4 * self.hidden_size if self.feed_forward_size is None else self.feed_forward_size

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        width = self.hidden_size // self.num_heads if self.head_width is None else self.head_width
        return self.num_heads * width

    def check(self, t: int, experts: int) -> None:
        """Ensure that heads, feed-forward part and experts divide.

        Raises:
            PlacementError: They do not.
        """
        for name, size in (("num_heads", self.num_heads), ("feed_forward_size", self.ffn_size)):
            if size % t:
                raise PlacementError(f"tensor_parallel: {t} does not divide {name} {size}; use a divisor")
        if self.num_experts % experts:
            raise PlacementError(
                f"expert_parallel: {experts} does not divide num_experts {self.num_experts}; use a divisor"
            )

    def parameters(self, t: int) -> float:
        """Return projections, norms and, where there is but one, the feed-forward part.

        A GPT's layer has 12 h^2 + 13 h: projections 4 h^2 + 4 h, feed-forward part 8 h^2 + 5 h, norms 4 h.
        Norms and output biases, which each GPU has whole, are counted as if shared. With fewer heads of keys
        and values than GPUs, several have the same.
        """
        norms = (3 if self.cross_length else 2) * (2 if self.biases else 1) * self.hidden_size
        router = self.num_experts * self.hidden_size if self.num_experts > 1 else 0
        attentions = self._attention_parameters(t) * (2 if self.cross_length else 1)
        feed_forward = self._feed_forward_parameters() / t if self.num_experts == 1 else 0.0
        return attentions + feed_forward + norms / t + router

    def expert_parameters(self, t: int) -> float:
        """Return those of all experts, each of which the GPUs share."""
        return self.num_experts * self._feed_forward_parameters() / t if self.num_experts > 1 else 0.0

    def forward_flops(self, t: int) -> float:
        """Return the products of projections, attention cores, feed-forward part and router.

        For a GPT 24 s h^2 + 4 s^2 h (Narayanan's dissertation, Sec. 4.5): 2 m n for each token and matrix of
        ``(m, n)``.
        """
        s, h, kv = self.sequence_length, self.hidden_size, self._kv_width(t)
        projections = 2 * s * h * (2 * self.query_width / t + 2 * kv)
        if self.cross_length:
            projections += 2 * h * (2 * s * self.query_width / t + 2 * self.cross_length * kv)
        matrices = 3 if self.gated else 2
        feed_forward = 2 * matrices * s * h * self.ffn_size * self.experts_per_token / t
        router = 2 * s * h * self.num_experts if self.num_experts > 1 else 0
        return projections + self.core_flops(t) + feed_forward + router

    def core_flops(self, t: int) -> float:
        """Return two products of ``(s, head)`` with ``(head, span)`` for each head."""
        own = self._span * (0.5 if self.causal else 1)
        return 4 * self.sequence_length * (own + self.cross_length) * self.query_width / t

    def kept(self, precision: Precision, t: int) -> HeldBytes:
        """Return what is kept by its parts (Korthikanti et al., 2022, Sec. 4.1 and 4.2, Eq. 1 and 2).

        In 16 bits with dropout a GPT's layer keeps s h (10 + 24 / t + 5 a s / (h t)) bytes: inputs of
        attention, feed-forward part and both norms 8, their masks 2 on each GPU; queries, keys, values, the
        output projection's input 8, both sides of the activation function 16, and the scores, split. A gate
        adds a third tensor of the feed-forward part's width; experts keep their tokens' inputs as well.
        """
        n, s, h = precision.number_bytes, self.sequence_length, self.hidden_size
        parts = 3 if self.cross_length else 2
        routed = self.experts_per_token if self.num_experts > 1 else 0
        each = s * h * (2 * n * parts + (parts if self.dropout else 0) + n * routed)
        attention = 2 * s * self.query_width / t + 2 * s * self._kv_width(t)
        if self.cross_length:
            attention += 2 * s * self.query_width / t + 2 * self.cross_length * self._kv_width(t)
        inner = (3 if self.gated else 2) * s * self.ffn_size * self.experts_per_token / t
        return HeldBytes(each, n * (attention + inner) + self.scores_bytes(precision, t))

    def scores_bytes(self, precision: Precision, t: int) -> float:
        """Return 5 a s^2 / t in 16 bits with dropout: softmax, mask, dropped-out softmax; by kind."""
        n = precision.number_bytes
        tensors = {"flash": 0, "fused": 1, "unfused": 2}[self.attention]
        each = n * tensors + (n + 1 if self.dropout and tensors else 0)
        return each * self.num_heads * self.sequence_length * (self._span + self.cross_length) / t

    def input_elements(self) -> int:
        """Return s h; an encoder's output, which all layers of a decoder read, is not counted to each."""
        return self.sequence_length * self.hidden_size

    def output_elements(self) -> int:
        """Return s h, and for a decoder the encoder's output, which passes on with it."""
        return (self.sequence_length + self.cross_length) * self.hidden_size

    def reduced_elements(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return s h for each attention and the feed-forward part (Narayanan's dissertation, Sec. 4.3).

        In the backward a decoder's gradient of the encoder's output is one more.
        """
        own = (self.sequence_length * self.hidden_size,) * (3 if self.cross_length else 2)
        return own, (*own, self.cross_length * self.hidden_size) if self.cross_length else own

    def shared_elements(self) -> int:
        """Return queries, keys, values and outputs of all attentions."""
        kv = 2 * self.kv_heads * self.query_width // self.num_heads
        found = self.sequence_length * (2 * self.query_width + kv)
        if self.cross_length:
            found += self.sequence_length * 2 * self.query_width + self.cross_length * kv
        return found

    def ring_elements(self, t: int) -> float:
        """Return keys and values of all attentions."""
        return 2 * (self.sequence_length + self.cross_length) * self._kv_width(t)

    def routed_elements(self) -> int:
        """Return the chosen experts' inputs, h for each token and expert."""
        return self.input_elements() * self.experts_per_token if self.num_experts > 1 else 0

    @property
    def _span(self) -> int:
        """Tokens that each attends to."""
        return self.sequence_length if self.window is None else min(self.window, self.sequence_length)

    def _kv_width(self, t: int) -> float:
        """Return the width of the keys on each GPU: at least one head."""
        return self.kv_heads / min(t, self.kv_heads) * self.query_width / self.num_heads

    def _attention_parameters(self, t: int) -> float:
        """Return two projections of queries' width, two of keys' width, and their biases."""
        h, query, kv = self.hidden_size, self.query_width / t, self._kv_width(t)
        return 2 * h * (query + kv) + (query + 2 * kv + h / t if self.biases else 0.0)

    def _feed_forward_parameters(self) -> int:
        h, inner, into = self.hidden_size, self.ffn_size, 2 if self.gated else 1
        return (into + 1) * h * inner + (into * inner + h if self.biases else 0)


def check_sizes(sizes: Any, may_be_zero: tuple[str, ...] = ()) -> None:
    """Ensure that every number of a data class is whole and at least 1, and every flag a truth value.

    Raises:
        PlacementError: One is not.
    """
    for field in fields(sizes):
        value, kind = getattr(sizes, field.name), str(field.type)
        if kind == "bool" and not isinstance(value, bool):
            raise PlacementError(f"{field.name}: {value!r} is not a truth value; use true or false")
        if not kind.startswith("int") or (value is None and "None" in kind):
            continue
        least = 0 if field.name in may_be_zero else 1
        if type(value) is not int or value < least:
            raise PlacementError(
                f"{field.name}: {value!r} is not a whole number of at least {least}; give one"
            )
