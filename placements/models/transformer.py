"""Layers of transformers by their shape: attention of any kind, a feed-forward part or experts.

A layer is a list of parts, each with its own norm, products and exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal, get_args

from placements.block import PlacementError
from placements.models.layers import Layer
from placements.models.operators import SCORES, Core, Kernel, Product, Work

AttentionKind = Literal["flash", "flash2", "fused", "unfused"]
"""Scores that an attention keeps: nothing; nothing, by FlashAttention-2 on Hopper; the softmax's output,
dropped out or not, and the mask; or the softmax's input too, as without a fused softmax."""

_FLASH2_SLOWDOWN = 1.6
"""Time of FlashAttention-2 over the kernels made for Hopper: 370 and 600 TFLOP/s in forwards of 8192 tokens
on an H100 (Shah et al., 2024, FlashAttention-3, Fig. 5)."""

_EAGER = {"root mean square": 7.0, "positions": 5.0, "gate": 10 / 6}
"""Numbers that torch's own operations move, over a fused kernel's: norms and rotations are cast to 32 bits
and back, with a kernel for each step; the gate's product is one more kernel."""

LayerParts = Literal["both", "attention", "feed_forward"]
"""Parts of a layer; hybrids of attention and state spaces have layers of one part."""

_NORM = "{} norm", "input of the {} part"
_INNER = "{}", "{} input", "{} output"
_SHARED = "shared experts in", "shared experts out", *(name.format("shared activation") for name in _INNER)
_ACTIVATION = "experts' activation", "experts' activation output", "experts' activation before weights"
_EXPERTS = "experts in", "experts out", "experts' activation input", *_ACTIVATION

RECOMPUTED: dict[str, tuple[str, ...]] = {
    "core_attn": (SCORES,),
    "layernorm": tuple(name.format(part) for part in ("attention", "feed-forward") for name in _NORM),
    "mlp": ("feed-forward in", "feed-forward out", *(name.format("activation") for name in _INNER)),
    "mla_up_proj": ("queries", "keys and values", "queries and keys", "values"),
    "shared_experts": _SHARED,
    "moe_act": _ACTIVATION,
    "moe": ("router", "routed tokens", "tokens by expert", "tokens back", *_EXPERTS, *_SHARED),
}
"""Products, kernels and kept tensors of each module that selective recomputation computes again."""

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
        attention: Kind of attention, which says how scores are kept; `parts` are the layer's.
        num_experts: Feed-forward parts of which a router chooses `experts_per_token`; 1 for no router.
        shared_expert_size: Width of the experts that all tokens take, together; 0 for none.
        imbalance: Tokens of the busiest GPU's experts as a multiple of an equal share.
        kv_rank: Rank to which keys and values are compressed (multi-head latent attention; DeepSeek-V2,
            Sec. 2.1), and `query_rank` of queries; None where they are not.
        rope_width: Width of a head's part with rotary positions, which all heads share in the keys.
        value_width: Width of a head's values; None for `head_width`.
        query_key_norms: Queries and keys are normed, head by head (Qwen3).

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
    shared_sizes = ("num_heads", "feed_forward_size")
    may_be_zero = ("cross_length", "shared_expert_size", "rope_width")

    def __post_init__(self) -> None:
        """Check every size."""
        super().__post_init__()
        for name, kind in (("attention", AttentionKind), ("parts", LayerParts)):
            if getattr(self, name) not in get_args(kind):
                fault = f"{getattr(self, name)!r} is not known"
                raise PlacementError(f"{name}: {fault}; use one of {', '.join(get_args(kind))}")
        h, a, n, k = self.hidden_size, self.num_heads, self.num_experts, self.experts_per_token
        is_wrong = {
            f"num_heads: {a} does not divide hidden_size {h}; use a divisor": not self.head_width and h % a,
            f"num_kv_heads: {self.kv_heads} does not divide num_heads {a}; use a divisor": a % self.kv_heads,
            f"experts_per_token: {k} is more than num_experts {n}; give at most these": k > n,
            f"imbalance: {self.imbalance} is not from 1, for equal shares, to num_experts {n}; give such a "
            "factor": not 1 <= self.imbalance <= n,
            "kv_rank: is missing beside query_rank, rope_width or value_width, which are of latent "
            "attention; give it": not self.kv_rank
            and (self.query_rank or self.rope_width or self.value_width),
        }
        if message := next((message for message, wrong in is_wrong.items() if wrong), ""):
            raise PlacementError(message)

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
    def has_experts(self) -> bool:
        """Whether a router chooses among experts."""
        return self.num_experts > 1 and self.parts != "attention"

    def fill(self, work: Work) -> None:
        """Add the operators of the attentions, and of the feed-forward part or experts.

        A GPT's layer has 12 h^2 + 13 h parameters and 24 s h^2 + 4 s^2 h operations (Narayanan's
        dissertation, Sec. 4.5). In 16 bits with dropout it keeps s h (10 + 24 / t + 5 a s / (h t)) bytes
        (Korthikanti et al., 2022, Sec. 4.1 and 4.2, Eq. 1 and 2). Norms and output biases, which each GPU has
        whole, are counted as if shared. Gradients between products are those of the part that has most of
        them, with that of the residual stream.
        """
        stream, cross = self.sequence_length * self.hidden_size, self.cross_length * self.hidden_size
        work.inputs, work.outputs = stream, stream + cross
        if self.parts != "feed_forward":
            self._begin(work, "attention")
            self._attention(work)
            if cross:
                self._begin(work, "attention")
                self._cross_attention(work)
        if self.parts != "attention":
            self._begin(work, "feed-forward")
            if self.has_experts:
                self._experts(work)
            else:
                self._inner(work, "feed-forward", "activation", self.ffn_size, self.sequence_length)
        if cross:
            # In the backward a decoder also sums its gradient of the encoder's output, which passes on too.
            work.reduces.append((0, cross))
        work.gradients += stream

    def _begin(self, work: Work, name: str) -> None:
        """Add every part's operators: a norm, the sum with the residual stream, a mask, an all-reduce."""
        stream = self.sequence_length * self.hidden_size
        self._norm(work, f"{name} norm", self.hidden_size)
        work.kernels.append(Kernel(f"{name} residual", 3 * stream, 3 * stream, is_whole=True))
        work.keep(f"input of the {name} norm", stream, is_whole=True)
        work.keep(f"input of the {name} part", stream, work.product_bytes, is_whole=True)
        if self.dropout:
            work.keep(f"mask of the {name} part", stream, 1, is_whole=True)
        work.reduces.append((stream, stream))

    def _attention(self, work: Work) -> None:
        """Add projections and core. With more GPUs than heads of keys, several GPUs have equal heads."""
        s, h, width = self.sequence_length, self.hidden_size, self._width
        heads, kv_heads = self.num_heads / work.t, max(self.kv_heads / work.t, 1)
        key_width, value_width = width + self.rope_width, self.value_width or width
        query, value = heads * key_width, heads * value_width
        if self.kv_rank is None:
            kv = kv_heads * width
            joined = query, kv, kv
            product = Product("queries, keys and values", h, sum(joined), s, "outputs", joined=joined)
            self._multiply(work, product)
            moved = 2 * s * (query + kv)
            # Queries are laid out one after the other; in the backward all three gradients are joined.
            work.kernels.append(Kernel("queries apart", 2 * s * query, 2 * s * (query + 2 * kv)))
            work.kernels.append(Kernel("positions", moved, moved, launches=(2, 2), eager=_EAGER["positions"]))
            work.keep("queries, keys, values and attention output", moved)
            if self.query_key_norms:
                work.kernels.append(Kernel("query and key norms", moved, 1.5 * moved, launches=(2, 4)))
                work.keep("inputs of query and key norms", moved / 2)
                work.parameters += (2 if self.biases else 1) * 2 * key_width / work.t
        else:
            # Compressions and projections of latent attention (DeepSeek-V2, Sec. 2.1).
            for name, short, rank, rope, outputs in (
                ("queries", "query", self.query_rank, 0, query),
                ("keys and values", "key and value", self.kv_rank, self.rope_width, heads * width + value),
            ):
                if rank is not None:
                    self._multiply(work, Product(f"{short} compression", h, rank + rope, s, "none"))
                    self._norm(work, "compression norm", rank)
                    work.keep(f"compressed {name}", s * (rank + rope), is_whole=True)
                    work.keep(f"normed {name}", s * rank, work.product_bytes, is_whole=True)
                self._multiply(work, Product(name, rank or h, outputs, s, "outputs"))
            moved = 2 * s * (2 * query + value)
            work.kernels.append(Kernel("positions and concatenation", moved, moved, launches=(5, 5)))
            work.keep("queries and keys", 2 * s * query)
            work.keep("values", s * value)
            work.keep("attention output", s * value)
        self._multiply(work, Product("attention output", value, h, s, "inputs"))
        if work.product_bytes != work.number_bytes:
            work.keep("attention output for its product", s * value, work.product_bytes)
        span = min(self.window or s, s)
        counted = 0.5 if self.causal else 1.0
        self._core(work, Core(heads, kv_heads, key_width, value_width, s, span, counted))
        work.gradients = s * (heads + kv_heads) * (key_width + value_width)

    def _cross_attention(self, work: Work) -> None:
        """Add the second attention of a decoder, to its encoder's output."""
        s, h, length, width = self.sequence_length, self.hidden_size, self.cross_length, self._width
        heads, kv_heads = self.num_heads / work.t, max(self.kv_heads / work.t, 1)
        query, kv = heads * width, 2 * kv_heads * width
        self._multiply(work, Product("cross queries", h, query, s, "outputs"))
        self._multiply(work, Product("cross keys and values", h, kv, length, "outputs"))
        self._multiply(work, Product("cross output", query, h, s, "inputs"))
        work.keep("cross queries, keys, values and attention output", 2 * s * query + length * kv)
        self._core(work, Core(heads, kv_heads, width, width, s, length, keys=length))

    def _core(self, work: Work, core: Core) -> None:
        """Add an attention core and its kept scores: 5 a s^2 / t bytes in 16 bits with dropout.

        Without flash attention scores are written. A fused kernel scales, masks and takes the softmax of
        them, otherwise three do; dropout is one more, which writes its mask.
        """
        n, tensors = work.number_bytes, {"flash": 0, "flash2": 0, "fused": 1, "unfused": 2}[self.attention]
        kept_bytes = n * tensors + (n + 1 if self.dropout and tensors else 0)
        if tensors:
            dropped = 2 * n + 1 if self.dropout else 0
            more = 4 * n + 1 if tensors > 1 else 0
            launches = 1 + self.dropout + (2 if tensors > 1 else 0)
            moved = 2 * n + dropped + more
            core = core._replace(score_bytes=(moved, n + moved), launches=launches)
        if self.attention == "flash2":
            core = core._replace(slowdown=_FLASH2_SLOWDOWN)
        work.cores.append(core)
        work.keep(SCORES, core.heads * core.tokens * core.span, kept_bytes)

    def _inner(
        self, work: Work, name: str, activation: str, width: int, tokens: float, experts: float = 0
    ) -> None:
        """Add matrices and the activation between, of some tokens and some experts; a gate is one more."""
        h, t = self.hidden_size, work.expert_t if experts else work.t
        into, inner = (2 if self.gated else 1), width / t
        joined = (inner,) * into
        self._multiply(work, Product(f"{name} in", h, sum(joined), tokens, "outputs", experts, joined))
        self._multiply(work, Product(f"{name} out", inner, h, tokens, "inputs", experts))
        numbers = tokens * inner
        eager = _EAGER["gate"] if self.gated else 1.0
        work.kernels.append(Kernel(activation, (into + 1) * numbers, (2 * into + 1) * numbers, eager=eager))
        work.keep(f"{activation} input", into * numbers)
        work.keep(f"{activation} output", numbers, work.product_bytes)
        if experts and not self.gated:
            # The router's weights come before the second product, and their gradient needs what they weigh;
            # kernels of gated activations compute it again (Megatron-LM).
            work.keep(f"{activation} before weights", numbers)
        # Where tokens go to experts, their gradients stand before and after it.
        moved = 2 * h * tokens * work.t / t if experts else 0.0
        work.gradients = max(work.gradients, into * numbers + moved)

    def _experts(self, work: Work) -> None:
        """Add router, experts, and the sorting of tokens."""
        s, h = self.sequence_length, self.hidden_size
        routed = s * self.experts_per_token * self.imbalance
        router = Product("router", h, self.num_experts, s, "none")
        work.products.append(router)
        work.parameters += router.weights
        work.keep("routed tokens", routed * h, work.product_bytes, is_whole=True)
        tokens, experts = routed * work.expert_t / work.t, self.num_experts / work.experts
        self._inner(work, "experts", "experts' activation", self.ffn_size, tokens, experts)
        scores, moved, launches = s * self.num_experts, 2 * routed * h, (_ROUTER_KERNELS, _ROUTER_KERNELS)
        if self.shared_expert_size:
            self._inner(work, "shared experts", "shared activation", self.shared_expert_size, s)
        elif work.expert_t < work.t:
            work.reduces.pop()
        work.kernels.append(Kernel("router", _ROUTER_KERNELS * scores, scores, launches=launches))
        for name in ("tokens by expert", "tokens back"):
            work.kernels.append(Kernel(name, moved, moved, kind="permute", launches=(2, 2)))
        if self.shared_expert_size:
            work.kernels.append(Kernel("sum with shared experts", 3 * s * h, s * h))

    def routed_elements(self, num_gpus: int | None = None) -> float:
        """Return the elements of the chosen experts' inputs, every GPU counted as the busiest one.

        Each token has h elements for each of its experts, or for each of `num_gpus` GPUs with any of its
        experts. Of N experts k are chosen with equal chances, so that a GPU with E of them has none of a
        token's with C(N - E, k) / C(N, k).
        """
        n, k = self.num_experts, self.experts_per_token
        copies = k if num_gpus is None else num_gpus * (1 - comb(n - n // num_gpus, k) / comb(n, k))
        return self.sequence_length * self.hidden_size * copies * self.imbalance

    def _multiply(self, work: Work, product: Product) -> None:
        """Add a product with its weights and biases, which are whole where the GPUs share its inputs."""
        work.products.append(product)
        count, degree = (product.experts, work.expert_t) if product.experts else (1, work.t)
        biases = count * product.outputs / (degree if product.split == "inputs" else 1)
        parameters = product.weights + (biases if self.biases else 0.0)
        if product.experts:
            work.expert_parameters += parameters
        else:
            work.parameters += parameters

    def _norm(self, work: Work, name: str, width: int) -> None:
        """Add a norm, whose backward has a kernel for its input's gradient and one for its scale's."""
        numbers = self.sequence_length * width
        eager = 1.0 if self.biases else _EAGER["root mean square"]
        kernel = Kernel(name, 2 * numbers, 5 * numbers, is_whole=True, launches=(1, 2), eager=eager)
        work.kernels.append(kernel)
        work.parameters += (2 if self.biases else 1) * width / work.t

    @property
    def _width(self) -> int:
        """Width of a head, without its rotary part where keys are compressed."""
        return self.head_width or self.hidden_size // self.num_heads

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        return self.num_heads * (self._width + self.rope_width)
