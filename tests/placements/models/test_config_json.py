"""Models of Hugging Face's config.json: the published ones, others of each kind, and one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line

from placements import PlacementError
from placements.forms.texts import write_json
from placements.models.zoo import read_config, read_model

Config = dict[str, Any]


def config(kind: str, hidden: int, layers: int, heads: int, vocabulary: int, **others: Any) -> Config:
    """Return a config of a type with its sizes, first trained with 4096 tokens unless it says others."""
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    usual = {"vocab_size": vocabulary, "max_position_embeddings": 4096, "rope_scaling": None}
    return {"model_type": kind, **sizes, **usual, **others}


def extended(tokens: int) -> Config:
    return {
        "max_position_embeddings": 131_072,
        "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": tokens},
    }


QWEN3_MOE: Config = {
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "head_dim": 128,
}
QWEN3_MOE |= {"num_key_value_heads": 4, "intermediate_size": 6144, "decoder_sparse_step": 1}
LATENT: Config = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
LATENT |= {"moe_layer_freq": 1, **extended(4096)}
V2_LITE: Config = {"n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
V2_LITE |= {"n_shared_experts": 2, "first_k_dense_replace": 1, "intermediate_size": 10_944, **LATENT}
V3: Config = {
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "q_lora_rank": 1536,
}
V3 |= {"intermediate_size": 18_432, **LATENT}
MAMBA: Config = {"ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8}
MAMBA |= {"attention_head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 21_504}
PATTERN = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"

CONFIGS = {
    "llama2_7b": config("llama", 4096, 32, 32, 32_000, intermediate_size=11_008, tie_word_embeddings=False),
    "llama31_405b": config(
        "llama", 16_384, 126, 128, 128_256, num_key_value_heads=8, intermediate_size=53_248, **extended(8192)
    ),
    "mixtral_8x7b": config("mixtral", 4096, 32, 32, 32_000, num_key_value_heads=8, sliding_window=None),
    "qwen3_0.6b": config(
        *("qwen3", 1024, 28, 16, 151_936),
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=3072,
        tie_word_embeddings=True,
    ),
    "qwen3_30b_a3b": config("qwen3_moe", 2048, 48, 32, 151_936, mlp_only_layers=[], **QWEN3_MOE),
    "deepseek_v2_lite": config("deepseek_v2", 2048, 27, 16, 102_400, q_lora_rank=None, **V2_LITE),
    "deepseek_v3": config(
        "deepseek_v3", 7168, 61, 128, 129_280, n_routed_experts=256, first_k_dense_replace=3, **V3
    ),
    "kimi_k2": config("kimi_k2", 7168, 61, 64, 163_840, n_routed_experts=384, first_k_dense_replace=1, **V3),
    "gpt_oss_20b": config(
        *("gpt_oss", 2880, 24, 64, 201_088),
        num_local_experts=32,
        layer_types=["sliding_attention", "full_attention"] * 12,
        **extended(4096),
    ),
    "nemotron_h_8b": config(
        *("nemotron_h", 4096, 52, 32, 131_072),
        hybrid_override_pattern=PATTERN,
        max_position_embeddings=8192,
        **MAMBA,
    ),
}
"""What the files of published models say of their shapes."""


def written(folder: Path, data: Config) -> Path:
    return write_json(folder / "config.json", data)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_file_of_a_published_model_is_that_model(name: str, tmp_path: Path) -> None:
    model = read_config(written(tmp_path / name, CONFIGS[name]))
    assert model.runs == read_model(name).runs
    assert model.name == name, "as the folder"


def test_modules_that_predict_more_tokens_are_the_files(tmp_path: Path) -> None:
    model = read_config(written(tmp_path, CONFIGS["deepseek_v3"] | {"num_nextn_predict_layers": 1}))
    assert model.runs == read_model("deepseek_v3", num_predict_layers=1).runs
    assert model.num_parameters > read_model("deepseek_v3").num_parameters + 11e9


SMALL = {"hidden_size": 512, "num_attention_heads": 16, "num_hidden_layers": 4, "vocab_size": 32_000}
EXPERTS = {"num_experts": 16, "moe_intermediate_size": 384}
BLOCKS = ["linear_attention", "full_attention", "mlp", "mamba", "attention"]
LEAVING_OUT: list[tuple[Config, int]] = [
    ({"model_type": "mistral"}, 123_998_720),
    ({"model_type": "gpt_oss", "num_experts": 8, "intermediate_size": 512}, 64_305_760),
    ({"model_type": "qwen2_moe", **EXPERTS}, 109_359_616),
    ({"model_type": "qwen3_moe", "num_local_experts": 16, "mlp_only_layers": [0]}, 101_479_168),
    ({"model_type": "deepseek_v2", "num_experts": 8, "num_experts_per_tok": 2}, 155_025_920),
    ({"model_type": "deepseek_v3", "num_local_experts": 16, "first_k_dense_replace": 4}, 181_809_664),
    ({"model_type": "nemotron_h", "layers_block_type": BLOCKS, "num_hidden_layers": 5}, 88_596_224),
    ({"model_type": "llama"}, 104_600_064),
    ({"model_type": "mixtral"}, 740_577_792),
    ({"model_type": "gpt_neox"}, 137_743_360),
    ({"model_type": "qwen2", "num_attention_heads": 32}, 172_239_360),
    ({"model_type": "qwen3", "num_attention_heads": 32}, 201_594_368),
    ({"model_type": "glm4_moe"}, 889_885_184),
    ({"model_type": "phi3", "pad_token_id": 0}, 87_298_560),
    ({"model_type": "seed_oss"}, 215_241_216),
    ({"model_type": "gpt2", "n_embd": 512, "n_layer": 4, "n_head": 8}, 29_518_848),
]
"""Configs that leave sizes to their type, and the parameters of the models of transformers 5.24."""


@pytest.mark.parametrize(("sizes", "parameters"), LEAVING_OUT)
def test_what_is_left_out_is_the_types_default(sizes: Config, parameters: int, tmp_path: Path) -> None:
    model = read_config(written(tmp_path, SMALL | sizes))
    assert model.num_parameters == pytest.approx(parameters, rel=0.002)


def test_these_are_the_parameters_of_transformers_models(tmp_path: Path) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    for sizes, parameters in LEAVING_OUT:
        written(tmp_path, SMALL | sizes)
        with torch.device("meta"):
            theirs = transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.from_pretrained(tmp_path)
            )
        assert sum(weight.numel() for weight in theirs.parameters()) == parameters, sizes


def test_a_path_stands_for_a_name_and_sizes_are_changed(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", CONFIGS["llama2_7b"])
    model = read_model(str(path), num_layers=2, sequence_length=128, precision="single")
    assert (model.name, [count for count, _ in model.runs], model.num_tokens) == ("mine", [1, 2, 1], 128)
    other = write_json(tmp_path / "tiny.json", CONFIGS["llama2_7b"])
    assert read_model(str(other)).name == "tiny"
    without = {name: size for name, size in CONFIGS["llama2_7b"].items() if "position" not in name}
    assert read_config(written(tmp_path, without), sequence_length=8).num_tokens == 8


def test_layers_with_and_without_window(tmp_path: Path) -> None:
    """Every second by default, every third, none or all with full attention."""
    base = CONFIGS["gpt_oss_20b"] | {"num_hidden_layers": 6, "num_local_experts": 4}
    kinds = ("sliding_attention", "full_attention")

    def runs(full: list[int]) -> Any:
        types = [kinds[i in full] for i in range(6)]
        return read_config(written(tmp_path, base | {"layer_types": types})).runs

    assert read_config(written(tmp_path, base | {"layer_types": None})).runs == runs([1, 3, 5])
    patterns = [runs(full) for full in ([1, 3, 5], [2, 5], [], [*range(6)])]
    assert all(one != other for i, one in enumerate(patterns) for other in patterns[:i])
    assert runs([*range(6)]) == read_config(written(tmp_path, base | {"sliding_window": None})).runs


WRONG: list[tuple[str, Config, str]] = [
    ("llama2_7b", {"model_type": "lama"}, "model_type: 'lama' is not known; did you mean llama?"),
    (
        "llama2_7b",
        {"model_type": "llava", "text_config": {}},
        "model_type: 'llava' is not known; give its text_config",
    ),
    ("llama2_7b", {"vocab_size": ...}, "vocab_size: None is not a whole number of at least 1"),
    ("qwen3_0.6b", {"use_sliding_window": True}, "use_sliding_window: True is not False; there is no shape"),
    ("qwen3_30b_a3b", {"mlp_only_layers": [5]}, "mlp_only_layers: layers [5] have no experts; there is"),
    ("gpt_oss_20b", {"layer_types": ["x"]}, "layer_types: ['x'] is not a list of 24 sliding_attention, of"),
    ("nemotron_h_8b", {"hybrid_override_pattern": "ME"}, "pattern: 'ME' is not of the letters M, * and -"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG)
def test_a_wrong_file_is_told_in_one_line(name: str, change: Config, message: str, tmp_path: Path) -> None:
    left = {key: size for key, size in (CONFIGS[name] | change).items() if size is not ...}
    path = written(tmp_path, left)
    with raises_line(PlacementError, f"{path}: {message}"):
        read_config(path)


def test_other_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", CONFIGS["llama2_7b"])
    with raises_line(PlacementError, f"{path}: num_layer: is no size of mine; did you mean num_layers?"):
        read_config(path, num_layer=2)
    with raises_line(PlacementError, "none.json: cannot be read (No such file or directory); give a "):
        read_model("none.json")
    (tmp_path / "list.json").write_text("[1]")
    with raises_line(PlacementError, f"{tmp_path / 'list.json'}: [1] is not a mapping"):
        read_config(tmp_path / "list.json")


def test_positions_and_routers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    options = {"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}, "rms_norm_eps": 1e-5}
    write_json(path, config("llama", 64, 2, 4, 100, **options))
    details = read_config(path).details
    assert (details.rope_base, details.rope_share, details.norm_epsilon) == (5e5, 0.5, 1e-5)
    groups = {"n_group": 4, "topk_group": 2, "rope_theta": 10_000, "scoring_func": "sigmoid"}
    write_json(path, CONFIGS["deepseek_v3"] | groups)
    details = read_config(path).details
    assert (details.router_groups, details.chosen_groups, details.router_scaling) == (4, 2, 2.5)
    assert details.router_biases and details.rope_base == 1e4
