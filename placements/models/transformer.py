"""Layers of transformers by their shape: attention of any kind, a feed-forward part or experts.

As `placements.models.layers`, the module knows shapes alone. What a layer costs follows from its operators:
parameters are those of its products, norms and biases; operations those of its products and cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Literal, get_args

from placements.block import PlacementError
from placements.models.layers import Layer, Precision
from placements.models.operators import Core, KeptTensor, Kernel, Product

AttentionKind = Literal["flash", "fused", "unfused"]
"""Scores that an attention keeps: nothing; the softmax's output, dropped out or not, and the mask; or
the softmax's input too, as without a fused softmax."""

LayerParts = Literal["both", "attention", "feed_forward"]
"""Parts of a layer; hybrids of attention and state spaces have layers of one part."""

_ROUTER_KERNELS = 6
"""Small kernels by which a router scores, chooses and counts: softmax, top-k, sums, sort, scan; assumed."""


@dataclass(frozen=True, kw_only=True)
class TransformerLayer(Layer):
    """A transformer layer: attention, for a decoder a second one, and a feed-forward part or experts.

    Attributes:
        hidden_size: Width of the residual stream, h.
        num_heads: Attention heads, a.
        sequence_length: Tokens of a sample, s.
        feed_forward_size: Width of the feed-forward part, or of each expert's; None for 4 h.
        num_kv_heads: Heads of keys and values (grouped-query attention); None for all.
        head_width: Width of a head; None for h / a. With `kv_rank` the part without rotary positions.
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
        shared_expert_size: Width of the experts that all tokens take, together; 0 for none.
        imbalance: Tokens of the busiest GPU's experts as a multiple of an equal share.
        kv_rank: Rank to which keys and values are compressed (multi-head latent attention; DeepSeek-V2,
            Sec. 2.1); None for plain attention.
        query_rank: Likewise of the queries; None where they are not compressed.
        rope_width: Width of a head's part with rotary positions, which all heads share in the keys.
        value_width: Width of a head's values; None for `head_width`.
        query_key_norms: Queries and keys are normed, head by head (Qwen3).
        parts: Parts that the layer has.

    Raises:
        PlacementError: A size is out of its range.
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
    shared_expert_size: int = 0
    imbalance: float = 1.0
    kv_rank: int | None = None
    query_rank: int | None = None
    rope_width: int = 0
    value_width: int | None = None
    query_key_norms: bool = False
    parts: LayerParts = "both"
    may_be_zero = ("cross_length", "shared_expert_size", "rope_width")

    def __post_init__(self) -> None:
        """Check every size."""
        super().__post_init__()
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
        for name, kind in (("attention", AttentionKind), ("parts", LayerParts)):
            if getattr(self, name) not in get_args(kind):
                raise PlacementError(
                    f"{name}: {getattr(self, name)!r} is not known; use one of {', '.join(get_args(kind))}"
                )
        if not 1 <= self.imbalance <= self.num_experts:
            raise PlacementError(
                f"imbalance: {self.imbalance} is not from 1, for equal shares, to num_experts "
                f"{self.num_experts}; give a factor"
            )
        if self.kv_rank is None and (self.query_rank or self.rope_width or self.value_width):
            raise PlacementError(
                "kv_rank: is missing beside query_rank, rope_width or value_width, which are of latent "
                "attention; give it"
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
    def num_routes(self) -> int:
        """Experts among which a router chooses."""
        return self.num_experts if self.has_experts else 0

    @property
    def has_attention(self) -> bool:
        """Whether it has one."""
        return self.parts != "feed_forward"

    @property
    def has_feed_forward(self) -> bool:
        """Whether it has a feed-forward part or experts."""
        return self.parts != "attention"

    @property
    def has_experts(self) -> bool:
        """Whether a router chooses among experts."""
        return self.num_experts > 1 and self.has_feed_forward

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

    def products(self, t: int, experts: int = 1) -> tuple[Product, ...]:
        """Return projections, feed-forward part, router and experts.

        With fewer heads of keys and values than GPUs, several have the same.
        """
        attention = tuple(self._attention_products(t)) if self.has_attention else ()
        return attention + (tuple(self._inner_products(t, experts)) if self.has_feed_forward else ())

    def _attention_products(self, t: int) -> Iterator[Product]:
        s, h, a, query = self.sequence_length, self.hidden_size, self.num_heads, self.query_width
        if self.kv_rank is not None:
            keys, values = self._key_width * a, self._value_width * a
            if self.query_rank is None:
                yield Product("queries", h, keys / t, s, "outputs")
            else:
                yield Product("query compression", h, self.query_rank, s, "none")
                yield Product("queries", self.query_rank, keys / t, s, "outputs")
            yield Product("key and value compression", h, self.kv_rank + self.rope_width, s, "none")
            yield Product("keys and values", self.kv_rank, (self._width * a + values) / t, s, "outputs")
            yield Product("attention output", values / t, h, s, "inputs")
            return
        kv = self._kv_width(t)
        yield Product("queries, keys and values", h, query / t + 2 * kv, s, "outputs")
        yield Product("attention output", query / t, h, s, "inputs")
        if self.cross_length:
            yield Product("cross queries", h, query / t, s, "outputs")
            yield Product("cross keys and values", h, 2 * kv, self.cross_length, "outputs")
            yield Product("cross output", query / t, h, s, "inputs")

    def _inner_products(self, t: int, experts: int) -> Iterator[Product]:
        s, h, into = self.sequence_length, self.hidden_size, 2 if self.gated else 1
        inner = self.ffn_size / t
        if not self.has_experts:
            yield Product("feed-forward in", h, into * inner, s, "outputs")
            yield Product("feed-forward out", inner, h, s, "inputs")
            return
        yield Product("router", h, self.num_experts, s, "none", is_biased=False)
        own, tokens = self.num_experts / experts, s * self.experts_per_token * self.imbalance
        yield Product("experts in", h, into * inner, tokens, "outputs", own)
        yield Product("experts out", inner, h, tokens, "inputs", own)
        if self.shared_expert_size:
            shared = self.shared_expert_size / t
            yield Product("shared experts in", h, into * shared, s, "outputs")
            yield Product("shared experts out", shared, h, s, "inputs")

    def cores(self, t: int) -> tuple[Core, ...]:
        """Return two products for each head, of all tokens with the span of each."""
        if not self.has_attention:
            return ()
        counted = 0.5 if self.causal else 1.0
        heads, kv_heads = self.num_heads / t, max(self.kv_heads / t, 1)
        sizes = (heads, kv_heads, self._key_width, self._value_width, self.sequence_length)
        own = Core(*sizes, self._span, counted)
        return (own, Core(*sizes, self.cross_length)) if self.cross_length else (own,)

    def kernels(self, t: int) -> tuple[Kernel, ...]:
        """Return norms, sums with the residual stream, positions, activations, and the sorting of tokens."""
        attention = tuple(self._attention_kernels(t)) if self.has_attention else ()
        return attention + (tuple(self._inner_kernels(t)) if self.has_feed_forward else ())

    def _attention_kernels(self, t: int) -> Iterator[Kernel]:
        s, stream = self.sequence_length, self.sequence_length * self.hidden_size
        for _ in range(2 if self.cross_length else 1):
            yield _norm("attention norm", stream)
            yield Kernel("attention residual", 3 * stream, 3 * stream, is_whole=True)
        queries = s * self.num_heads / t * self._key_width
        keys = s * self._kv_width(t)
        if self.kv_rank is None:
            # Queries are laid out one after the other; in the backward all three gradients are joined.
            yield Kernel("queries apart", 2 * queries, 2 * (queries + 2 * keys))
            yield Kernel("positions", 2 * (queries + keys), 2 * (queries + keys), launches=(2, 2))
            if self.query_key_norms:
                yield Kernel(
                    "query and key norms", 2 * (queries + keys), 3 * (queries + keys), False, "stream", (2, 4)
                )
            return
        for rank in (self.query_rank, self.kv_rank):
            if rank is not None:
                yield _norm("compression norm", s * rank)
        values = s * self.num_heads / t * self._value_width
        moved = 2 * (2 * queries + values)
        yield Kernel("positions and concatenation", moved, moved, launches=(5, 5))

    def _inner_kernels(self, t: int) -> Iterator[Kernel]:
        s, into = self.sequence_length, 2 if self.gated else 1
        stream = s * self.hidden_size
        yield _norm("feed-forward norm", stream)
        yield Kernel("feed-forward residual", 3 * stream, 3 * stream, is_whole=True)
        routed = self.experts_per_token * self.imbalance if self.has_experts else 1.0
        widths = {"activation": self.ffn_size * routed}
        if self.shared_expert_size:
            widths["shared activation"] = self.shared_expert_size
        for name, width in widths.items():
            numbers = s * width / t
            yield Kernel(name, (into + 1) * numbers, (2 * into + 1) * numbers)
        if self.has_experts:
            scores = s * self.num_experts
            yield Kernel(
                "router", _ROUTER_KERNELS * scores, scores, launches=(_ROUTER_KERNELS, _ROUTER_KERNELS)
            )
            moved = 2 * stream * routed
            yield Kernel("tokens by expert", moved, moved, False, "permute", (2, 2))
            yield Kernel("tokens back", moved, moved, False, "permute", (2, 2))
            if self.shared_expert_size:
                yield Kernel("sum with shared experts", 3 * stream, stream)

    def parameters(self, t: int) -> float:
        """Return projections, norms and, where there is but one, the feed-forward part.

        A GPT's layer has 12 h^2 + 13 h: projections 4 h^2 + 4 h, feed-forward part 8 h^2 + 5 h, norms 4 h.
        Norms and output biases, which each GPU has whole, are counted as if shared.
        """
        products = [each for each in self.products(t) if not each.experts]
        weights = sum(each.weights for each in products)
        return weights + self._biases(products, t) + self._norm_parameters() / t

    def expert_parameters(self, t: int) -> float:
        """Return those of all experts, each of which the GPUs share."""
        products = [each for each in self.products(t) if each.experts]
        return sum(each.weights for each in products) + self.num_experts * self._biases(products, t)

    def _biases(self, products: list[Product], t: int) -> float:
        if not self.biases:
            return 0.0
        return sum(each.outputs / (t if each.split == "inputs" else 1) for each in products if each.is_biased)

    def _norm_parameters(self) -> int:
        widths = [self.hidden_size] * (
            (2 if self.cross_length else 1) * self.has_attention + self.has_feed_forward
        )
        if self.has_attention:
            widths += [rank for rank in (self.query_rank, self.kv_rank) if rank is not None]
            widths += [2 * self._key_width] if self.query_key_norms else []
        return (2 if self.biases else 1) * sum(widths)

    def forward_flops(self, t: int) -> float:
        """Return the products of projections, attention cores, feed-forward part and router.

        For a GPT 24 s h^2 + 4 s^2 h (Narayanan's dissertation, Sec. 4.5): 2 m n for each token and matrix of
        ``(m, n)``.
        """
        return sum(each.flops for each in self.products(t)) + self.core_flops(t)

    def core_flops(self, t: int) -> float:
        """Return two products of ``(s, head)`` with ``(head, span)`` for each head."""
        return sum(each.flops for each in self.cores(t))

    def kept_tensors(self, precision: Precision, t: int) -> tuple[KeptTensor, ...]:
        """Return what is kept by its parts (Korthikanti et al., 2022, Sec. 4.1 and 4.2, Eq. 1 and 2).

        In 16 bits with dropout a GPT's layer keeps s h (10 + 24 / t + 5 a s / (h t)) bytes: inputs of
        attention, feed-forward part and both norms 8, their masks 2 on each GPU; queries, keys, values, the
        output projection's input 8, both sides of the activation function 16, and the scores, split. A gate
        adds a third tensor of the feed-forward part's width; experts keep their tokens' inputs as well.
        """
        attention = tuple(self._attention_tensors(precision, t)) if self.has_attention else ()
        return attention + (tuple(self._inner_tensors(t)) if self.has_feed_forward else ())

    def _attention_tensors(self, precision: Precision, t: int) -> Iterator[KeptTensor]:
        s, a = self.sequence_length, self.num_heads
        for _ in range(2 if self.cross_length else 1):
            yield from self._part_tensors("attention")
        if self.kv_rank is None:
            numbers = 2 * s * self.query_width / t + 2 * s * self._kv_width(t)
            if self.cross_length:
                numbers += 2 * s * self.query_width / t + 2 * self.cross_length * self._kv_width(t)
            yield KeptTensor("queries, keys, values and attention output", numbers)
            if self.query_key_norms:
                inputs = s * (self.query_width / t + self._kv_width(t))
                yield KeptTensor("inputs of query and key norms", inputs)
        else:
            heads = s * a / t
            for name, rank in (("queries", self.query_rank), ("keys and values", self.kv_rank)):
                if rank is not None:
                    rope = self.rope_width if name == "keys and values" else 0
                    yield KeptTensor(f"compressed {name}", s * (rank + rope), is_whole=True)
                    yield KeptTensor(f"normed {name}", s * rank, is_whole=True, is_product_input=True)
            yield KeptTensor("queries and keys", 2 * heads * self._key_width)
            yield KeptTensor("values and attention output", 2 * heads * self._value_width)
        if precision.product_bytes != precision.number_bytes:
            yield KeptTensor(
                "attention output for its product", s * a / t * self._value_width, is_product_input=True
            )
        yield KeptTensor("scores", self.scores_bytes(precision, t), number_bytes=1)

    def _inner_tensors(self, t: int) -> Iterator[KeptTensor]:
        s, h, into = self.sequence_length, self.hidden_size, 2 if self.gated else 1
        yield from self._part_tensors("feed-forward")
        routed = self.experts_per_token * self.imbalance if self.has_experts else 1.0
        if self.has_experts:
            yield KeptTensor("routed tokens", s * h * routed, is_whole=True, is_product_input=True)
        numbers: float = s * self.ffn_size * routed / t
        yield KeptTensor("activation input", into * numbers)
        yield KeptTensor("activation output", numbers, is_product_input=True)
        if self.shared_expert_size:
            numbers = s * self.shared_expert_size / t
            yield KeptTensor("shared activation input", into * numbers)
            yield KeptTensor("shared activation output", numbers, is_product_input=True)

    def backward_numbers(self, t: int) -> float:
        """Return the gradients of the part that has most of them, with that of the residual stream.

        In the feed-forward part those of the activation's input stand when its output is no longer needed; in
        the attention those of queries, keys, values and output. Experts have those of their tokens too,
        before and after these go back to where they came from.
        """
        s, into = self.sequence_length, 2 if self.gated else 1
        found = 0.0
        if self.has_attention:
            heads = self.num_heads / t
            kv = heads if self.kv_rank is not None else self._kv_width(t) / self._width
            found = s * (
                heads * (self._key_width + self._value_width) + kv * (self._key_width + self._value_width)
            )
        if self.has_feed_forward:
            routed = self.experts_per_token * self.imbalance if self.has_experts else 1.0
            inner = s * routed * into * self.ffn_size / t
            found = max(found, inner + (2 * s * routed * self.hidden_size if self.has_experts else 0))
        return s * self.hidden_size + found

    def _part_tensors(self, part: str) -> Iterator[KeptTensor]:
        numbers = self.sequence_length * self.hidden_size
        yield KeptTensor(f"input of the {part} norm", numbers, is_whole=True)
        yield KeptTensor(f"input of the {part} part", numbers, is_whole=True, is_product_input=True)
        if self.dropout:
            yield KeptTensor(f"mask of the {part} part", numbers, is_whole=True, number_bytes=1)

    def scores_bytes(self, precision: Precision, t: int) -> float:
        """Return 5 a s^2 / t in 16 bits with dropout: softmax, mask, dropped-out softmax; by kind."""
        if not self.has_attention:
            return 0.0
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

    def reduced_elements(self, whole_experts: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return s h for each attention and the feed-forward part (Narayanan's dissertation, Sec. 4.3).

        In the backward a decoder's gradient of the encoder's output is one more. Whole experts need none.
        """
        needs_none = whole_experts and self.has_experts and not self.shared_expert_size
        own = (self.sequence_length * self.hidden_size,) * (self._num_parts - needs_none)
        return own, (*own, self.cross_length * self.hidden_size) if self.cross_length else own

    def shared_elements(self) -> int:
        """Return queries, keys, values and outputs of all attentions."""
        if not self.has_attention:
            return 0
        if self.kv_rank is not None:
            return 2 * self.sequence_length * self.num_heads * (self._key_width + self._value_width)
        kv = 2 * self.kv_heads * self._width
        found = self.sequence_length * (2 * self.query_width + kv)
        if self.cross_length:
            found += self.sequence_length * 2 * self.query_width + self.cross_length * kv
        return found

    def ring_elements(self, t: int) -> float:
        """Return keys and values of all attentions."""
        if not self.has_attention:
            return 0.0
        if self.kv_rank is not None:
            return self.sequence_length * self.num_heads / t * (self._key_width + self._value_width)
        return 2 * (self.sequence_length + self.cross_length) * self._kv_width(t)

    def routed_elements(self, num_gpus: int | None = None) -> float:
        """Return the chosen experts' inputs, h for each token and expert, or GPU that has any of them.

        The busiest GPU, which has `imbalance` times as many, counts for all.

        Args:
            num_gpus: GPUs to each of which a token goes once; None to send it once for each expert. Of N
                experts k are chosen with equal chances, so that a GPU with E of them has none of a token's
                with C(N - E, k) / C(N, k).
        """
        if not self.has_experts:
            return 0.0
        n, k = self.num_experts, self.experts_per_token
        copies = k if num_gpus is None else num_gpus * (1 - comb(n - n // num_gpus, k) / comb(n, k))
        return self.input_elements() * copies * self.imbalance

    @property
    def _span(self) -> int:
        """Tokens that each attends to."""
        return self.sequence_length if self.window is None else min(self.window, self.sequence_length)

    @property
    def _num_parts(self) -> int:
        """Attentions and feed-forward parts."""
        return (2 if self.cross_length else 1) * self.has_attention + self.has_feed_forward

    @property
    def _width(self) -> int:
        """Width of a head, without its rotary part where keys are compressed."""
        return self.hidden_size // self.num_heads if self.head_width is None else self.head_width

    @property
    def _key_width(self) -> int:
        return self._width + self.rope_width

    @property
    def _value_width(self) -> int:
        return self._width if self.value_width is None else self.value_width

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        return self.num_heads * self._key_width

    def _kv_width(self, t: int) -> float:
        """Return the width of the keys on each GPU: at least one head."""
        return self.kv_heads / min(t, self.kv_heads) * self._width


def _norm(name: str, numbers: float) -> Kernel:
    """Return a norm, whose backward has a kernel for its input's gradient and one for its scale's."""
    return Kernel(name, 2 * numbers, 5 * numbers, True, "stream", (1, 2))
