"""Models by name, with the sizes that papers and model cards publish, and ways to change them.

The module knows shapes alone. Where a paper leaves out a size, the comment beside it says what was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from placements.block import PlacementError
from placements.models.chain import ModelDetails, ModelShape
from placements.models.zoo.config_json import read_config
from placements.models.zoo.images import (
    image_encoder,
    joined_encoders,
    residual_network,
    window_encoder,
)
from placements.models.zoo.language import decoder, encoder_decoder, hybrid
from placements.models.zoo.sizes import check_overrides, suggestion

_Maker = Callable[..., ModelShape]


def _gpt(num_layers: int, hidden_size: int, num_heads: int, **other: Any) -> _Maker:
    sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "num_heads": num_heads}
    return partial(decoder, **({"vocab_size": 50_257, "sequence_length": 2048} | sizes | other))


def _llama(num_layers: int, hidden_size: int, num_heads: int, **other: Any) -> _Maker:
    modern = {"gated": True, "dropout": False, "biases": False, "learned_positions": False, "tied": False}
    usual = {"vocab_size": 32_000, "sequence_length": 4096}
    return _gpt(num_layers, hidden_size, num_heads, **(usual | modern | other))


def _qwen3(num_layers: int, hidden_size: int, num_heads: int, feed_forward_size: int, **other: Any) -> _Maker:
    usual: dict[str, Any] = {"num_kv_heads": 8, "vocab_size": 151_936, "query_key_norms": True}
    usual["feed_forward_size"] = feed_forward_size
    width = {} if 128 * num_heads == hidden_size else {"head_width": 128}
    return _llama(num_layers, hidden_size, num_heads, **(usual | width | other))


def _deepseek(
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    vocab_size: int,
    experts: tuple[int, int, int, int],
    dense: tuple[int, int],
    query_rank: int | None = 1536,
) -> _Maker:
    """Return a model of latent attention.

    Its experts are how many, those of a token, those that all tokens take, and the width of each; the layers
    without are how many, and their width.
    """
    num_experts, per_token, shared, width = experts
    widths = {"head_width": 128, "value_width": 128, "rope_width": 64}
    return _llama(
        num_layers,
        hidden_size,
        num_heads,
        vocab_size=vocab_size,
        num_experts=num_experts,
        experts_per_token=per_token,
        shared_expert_size=shared * width,
        feed_forward_size=width,
        num_dense_layers=dense[0],
        dense_feed_forward_size=dense[1],
        kv_rank=512,
        query_rank=query_rank,
        **widths,
    )


def _gpt_oss(num_layers: int, num_experts: int) -> _Maker:
    return _llama(
        num_layers,
        2880,
        64,
        feed_forward_size=2880,
        num_kv_heads=8,
        head_width=64,
        vocab_size=201_088,
        num_experts=num_experts,
        experts_per_token=4,
        window=128,
        window_every=2,
    )


def _nemotron_h(groups: int, **sizes: Any) -> _Maker:
    """Return a model of groups of layers with attention in the last but one, and ten layers without."""
    return partial(
        hybrid,
        pattern="M-M-M-M*-" + (groups - 1) * "M-M-M-M-M*-" + "M-M-M-M-M-",
        num_kv_heads=8,
        head_width=128,
        vocab_size=131_072,
        sequence_length=8192,
        **sizes,
    )


def _bert(num_layers: int, hidden_size: int, num_heads: int, **other: Any) -> _Maker:
    usual = {"vocab_size": 30_522, "sequence_length": 512}
    return _gpt(num_layers, hidden_size, num_heads, **(usual | other))


def _bloom(num_layers: int, hidden_size: int, num_heads: int) -> _Maker:
    usual = {"vocab_size": 250_880, "learned_positions": False, "dropout": False}
    return _gpt(num_layers, hidden_size, num_heads, **usual)


def _t5(num_layers: int, hidden_size: int, num_heads: int, **other: Any) -> _Maker:
    sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "num_heads": num_heads}
    return partial(encoder_decoder, **({"vocab_size": 32_128, "sequence_length": 512} | sizes | other))


def _vit(num_layers: int, hidden_size: int, num_heads: int) -> _Maker:
    return partial(
        image_encoder, num_layers=num_layers, hidden_size=hidden_size, num_heads=num_heads, **_UNFUSED
    )


def _swin(layers: int) -> _Maker:
    return partial(
        window_encoder, layers_by_level=(2, 2, layers, 2), hidden_size=320, num_heads=10, **_UNFUSED
    )


_UNFUSED: Mapping[str, Any] = {"attention": "unfused", "precision": "single"}
"""As Galvatron-BMW's models were trained: activations that it measured are those of an unfused softmax."""

_MODELS: dict[str, _Maker] = {
    # Brown et al., 2020, "Language Models are Few-Shot Learners", Table 2.1. Its 13B has a width of 5140, no
    # multiple of its heads; 5120 is taken.
    "gpt3_125m": _gpt(12, 768, 12),
    "gpt3_350m": _gpt(24, 1024, 16),
    "gpt3_760m": _gpt(24, 1536, 16),
    "gpt3_1.3b": _gpt(24, 2048, 16),
    "gpt3_2.7b": _gpt(32, 2560, 32),
    "gpt3_6.7b": _gpt(32, 4096, 32),
    "gpt3_13b": _gpt(40, 5120, 40),
    "gpt3_175b": _gpt(96, 12288, 96),
    # Galvatron-BMW, Table I, without heads and sequence: heads of 128 and 1024 tokens come within 10 % of its
    # activations, and its throughput is above the peak with 2048.
    "gpt3_15b": _gpt(48, 5120, 40, vocab_size=51_200, sequence_length=1024, attention="fused"),
    "gpt3_39b": _gpt(48, 8192, 64, vocab_size=51_200, sequence_length=1024, attention="fused"),
    "gpt3_65b": _gpt(80, 8192, 64, vocab_size=51_200, sequence_length=1024, attention="fused"),
    # Tessel, Table III, without sequences: 2048 and 1024 tokens are taken. The shape of the smallest mT5 has
    # 1.2B parameters and not the table's 1.8B; the other seven are as in the table.
    "gpt_11b": _gpt(32, 4096, 32, vocab_size=1_000_000),
    "gpt_24b": _gpt(40, 6144, 48, vocab_size=1_000_000),
    "gpt_47b": _gpt(48, 8192, 64, vocab_size=1_000_000),
    "gpt_77b": _gpt(80, 8192, 64, vocab_size=1_500_000),
    "mt5_1.8b": _t5(48, 1024, 16, vocab_size=512_000, sequence_length=1024),
    "mt5_9.5b": _t5(48, 3072, 24, vocab_size=1_000_000, sequence_length=1024),
    "mt5_43b": _t5(64, 6144, 48, vocab_size=1_500_000, sequence_length=1024),
    "mt5_88b": _t5(80, 8192, 64, vocab_size=1_500_000, sequence_length=1024),
    # Tessel, Fig. 15: 24 layers, taken for each encoder. A text of 77 tokens, as in Flava's paper.
    "flava": partial(
        joined_encoders,
        num_layers=24,
        hidden_size=4096,
        num_heads=32,
        vocab_size=30_522,
        sequence_length=77,
    ),
    # Touvron et al., 2023, "Llama 2"; Meta, 2024, "The Llama 3 Herd of Models"; Mistral AI, 2024, "Mixtral".
    "llama2_7b": _llama(32, 4096, 32, feed_forward_size=11_008),
    "llama2_13b": _llama(40, 5120, 40, feed_forward_size=13_824),
    "llama2_70b": _llama(80, 8192, 64, feed_forward_size=28_672, num_kv_heads=8),
    "llama3_8b": _llama(
        32, 4096, 32, feed_forward_size=14_336, num_kv_heads=8, vocab_size=128_256, sequence_length=8192
    ),
    "llama3_70b": _llama(
        80, 8192, 64, feed_forward_size=28_672, num_kv_heads=8, vocab_size=128_256, sequence_length=8192
    ),
    "mixtral_8x7b": _llama(
        32, 4096, 32, feed_forward_size=14_336, num_kv_heads=8, num_experts=8, experts_per_token=2
    ),
    # Mistral AI, 2024, "Cheaper, Better, Faster, Stronger", with the tokens of the model before.
    "mixtral_8x22b": _llama(
        56, 6144, 48, feed_forward_size=16_384, num_kv_heads=8, num_experts=8, experts_per_token=2
    ),
    # Meta, 2024, "The Llama 3 Herd of Models", Table 3, before its context was extended.
    "llama31_405b": _llama(
        126, 16_384, 128, feed_forward_size=53_248, num_kv_heads=8, vocab_size=128_256, sequence_length=8192
    ),
    # Qwen, 2025, "Qwen3 Technical Report", Tables 1 and 2, and the config.json of each; 4096 tokens as in the
    # first two stages of its training. Norms of queries and keys are left out, as for all models here.
    "qwen3_0.6b": _qwen3(28, 1024, 16, 3072, tied=True),
    "qwen3_1.7b": _qwen3(28, 2048, 16, 6144, tied=True),
    "qwen3_4b": _qwen3(36, 2560, 32, 9728, tied=True),
    "qwen3_8b": _qwen3(36, 4096, 32, 12_288),
    "qwen3_14b": _qwen3(40, 5120, 40, 17_408),
    "qwen3_32b": _qwen3(64, 5120, 64, 25_600),
    "qwen3_30b_a3b": _qwen3(48, 2048, 32, 768, num_kv_heads=4, num_experts=128, experts_per_token=8),
    "qwen3_235b_a22b": _qwen3(94, 4096, 64, 1536, num_kv_heads=4, num_experts=128, experts_per_token=8),
    # DeepSeek-AI, 2024, "DeepSeek-V2", Sec. 3.1.2 and App. B, and "DeepSeek-V3", Sec. 4.2, without its module
    # for multi-token prediction (`num_predict_layers`); Moonshot AI, 2025, "Kimi K2", Table 2. All begin with
    # 4096 tokens.
    "deepseek_v2": _deepseek(60, 5120, 128, 102_400, (160, 6, 2, 1536), (1, 12_288)),
    "deepseek_v2_lite": _deepseek(27, 2048, 16, 102_400, (64, 6, 2, 1408), (1, 10_944), query_rank=None),
    "deepseek_v3": _deepseek(61, 7168, 128, 129_280, (256, 8, 1, 2048), (3, 18_432)),
    "kimi_k2": _deepseek(61, 7168, 64, 163_840, (384, 8, 1, 2048), (1, 18_432)),
    # OpenAI, 2025, "gpt-oss-120b & gpt-oss-20b Model Card", and the config.json of each; 4096 tokens, as
    # before its context was extended. Every second layer attends to 128 tokens. Biases and attention sinks
    # are left out.
    "gpt_oss_20b": _gpt_oss(24, 32),
    "gpt_oss_120b": _gpt_oss(36, 128),
    # NVIDIA, 2025, "Nemotron-H", Table 1 and the config.json of each.
    "nemotron_h_8b": _nemotron_h(
        4, hidden_size=4096, num_heads=32, feed_forward_size=21_504, state_size=128, mamba_heads=128
    ),
    "nemotron_h_56b": _nemotron_h(
        10, hidden_size=8192, num_heads=64, feed_forward_size=32_768, state_size=256, mamba_heads=256
    ),
    # Zhang et al., 2022, "OPT"; EleutherAI, 2021, "GPT-Neo", whose local attention is counted as whole.
    "opt_350m": _gpt(24, 1024, 16, vocab_size=50_272, embedding_size=512),
    "gpt_neo_2.7b": _gpt(32, 2560, 20),
    # BigScience, 2022, "BLOOM".
    "bloom_3b": _bloom(30, 2560, 32),
    "bloom_7b": _bloom(30, 4096, 32),
    "bloom_176b": _bloom(70, 14336, 112),
    # Devlin et al., 2019, "BERT"; its huge of Perseus (App. B.3) has a width of 2048; 24 layers are taken.
    "bert_base": _bert(12, 768, 12),
    "bert_large": _bert(24, 1024, 16),
    "bert_huge": _bert(24, 2048, 16),
    # Galvatron-BMW, Table I. Its measured activations have 16 heads of a width of 1280.
    "bert_huge_32": _bert(32, 1280, 16, **_UNFUSED),
    "bert_huge_48": _bert(48, 1280, 16, **_UNFUSED),
    "bert_xhuge": _bert(128, 2560, 32, **_UNFUSED),
    "vit_huge_32": _vit(32, 1280, 16),
    "vit_huge_48": _vit(48, 1280, 16),
    "vit_xhuge": _vit(128, 2560, 32),
    "swin_huge_32": _swin(26),
    "swin_huge_48": _swin(42),
    "t5_large_32": _t5(32, 1024, 16, **_UNFUSED),
    "t5_large_48": _t5(48, 1024, 16, **_UNFUSED),
    "t5_512_4_32": _t5(32, 1024, 16, decoder_length=4, **_UNFUSED),
    "t5_512_4_48": _t5(48, 1024, 16, decoder_length=4, **_UNFUSED),
    # Perseus, App. B.3: the bottlenecks of ResNet-50 and -101, eight times as wide inside.
    "wide_resnet50_8": partial(residual_network, layers_by_level=(3, 4, 6, 3), width_factor=8),
    "wide_resnet101_8": partial(residual_network, layers_by_level=(3, 4, 23, 3), width_factor=8),
    # Raffel et al., 2020, "T5".
    "t5_base": _t5(24, 768, 12),
    "t5_large": _t5(48, 1024, 16),
    "t5_3b": _t5(48, 1024, 32, head_width=128, feed_forward_size=16_384),
}

_V2_LITE = ModelDetails(
    rope_base=1e4, norm_epsilon=1e-6, router_scores="softmax", scores_before_choice=True, balance_loss=0.001
)
_V3 = replace(_V2_LITE, router_scores="sigmoid", scores_before_choice=False, router_biases=True)
_DETAILS: Mapping[str, ModelDetails] = {
    # Of the config.json of each; DeepSeek-V2, Sec. 2.1.2; DeepSeek-V3, Sec. 4.2.
    "llama2": ModelDetails(rope_base=1e4, norm_epsilon=1e-5),
    "llama3": ModelDetails(rope_base=5e5, norm_epsilon=1e-5),
    "mixtral": ModelDetails(rope_base=1e6, norm_epsilon=1e-5, router_scores="softmax", balance_loss=0.02),
    "qwen3": ModelDetails(rope_base=1e6, norm_epsilon=1e-6),
    "qwen3_30b": ModelDetails(rope_base=1e6, norm_epsilon=1e-6, router_scores="softmax", balance_loss=0.001),
    "qwen3_235b": ModelDetails(rope_base=1e6, norm_epsilon=1e-6, router_scores="softmax", balance_loss=0.001),
    "deepseek_v2": replace(_V2_LITE, router_groups=8, chosen_groups=3, router_scaling=16.0),
    "deepseek_v2_lite": _V2_LITE,
    "deepseek_v3": replace(_V3, router_groups=8, chosen_groups=4, router_scaling=2.5, balance_loss=1e-4),
    "kimi_k2": replace(_V3, rope_base=5e4, router_scaling=2.827),
    "gpt_oss": ModelDetails(
        rope_base=1.5e5,
        norm_epsilon=1e-5,
        qkv_biases=True,
        gpt_oss_parts=True,
        router_scores="softmax",
        balance_loss=0.001,
    ),
}
"""Details of the models whose names begin so; the last that does counts."""


def read_model(name: str, /, **overrides: Any) -> ModelShape:
    """Return a model by its name, with some of its sizes changed.

    Args:
        name: Name of one of `MODELS`, or the path of a `config.json` of Hugging Face; see
            `placements.models.zoo.config_json`.
        overrides: Overrides by the name of an argument of the model's kind in `placements.models.zoo`, such
            as ``num_layers``, ``sequence_length`` or ``precision``.

    Raises:
        PlacementError: The name, the file's kind of model or a size is not known, or a size is out of its
            range.

    >>> round(read_model("llama2_7b").num_parameters / 1e9, 2)
    6.74
    >>> len(read_model("llama2_7b", num_layers=4).layers)
    6
    """
    if isinstance(name, str) and name.lower().endswith(".json"):
        return read_config(name, **overrides)
    if not isinstance(name, str) or name not in _MODELS:
        raise PlacementError(f"model: {name!r} is not known; {suggestion(str(name), _MODELS)}")
    make = _MODELS[name]
    check_overrides(make, name, overrides)
    details = [each for begin, each in _DETAILS.items() if name.startswith(begin)]
    return replace(make(name, **overrides), details=details[-1] if details else ModelDetails())


MODELS: Mapping[str, ModelShape] = {name: read_model(name) for name in _MODELS}
"""The models as they are published."""
