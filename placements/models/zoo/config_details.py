"""What a `config.json` of Hugging Face says beside the sizes: of positions, norms, biases and routers.

What a file leaves out is as transformers 5 has it for most types; `config_json` fills in what others have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placements.forms.reading import Field
from placements.models.chain import ModelDetails

_USUAL: Mapping[str, Any] = {
    "rope_theta": 1e4,
    "partial_rotary_factor": 1.0,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "norm_topk_prob": False,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "router_aux_loss_coef": 0.001,
}
_OTHER_NAMES = {
    "rotary_emb_base": "rope_theta",
    "rotary_pct": "partial_rotary_factor",
    "layer_norm_eps": "rms_norm_eps",
    "layer_norm_epsilon": "rms_norm_eps",
    "aux_loss_alpha": "router_aux_loss_coef",
}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def details_of(data: Field) -> ModelDetails:
    """Return what a file says beside the sizes.

    Raises:
        PlacementError: A field has a value of another kind.
    """
    kind = data["model_type"].text()
    found = dict(_USUAL)
    rotary = data.get("rope_parameters")
    for field in (data, rotary) if isinstance(rotary.value, dict) else (data,):
        for name in (*_USUAL, *_OTHER_NAMES):
            key, value = _OTHER_NAMES.get(name, name), field.get(name)
            if value.value is not None:
                kind_of = type(_USUAL[key])
                found[key] = value.typed(kind_of) if kind_of in (str, bool) else value.number()
    details = ModelDetails(
        rope_base=found["rope_theta"] or None,
        rope_share=found["partial_rotary_factor"],
        norm_epsilon=found["rms_norm_eps"],
        qkv_biases=found["attention_bias"] and kind != "gpt_neox",
        gpt_oss_parts=kind == "gpt_oss",
    )
    if not any(data.get(name).value for name in _EXPERTS):
        return details
    scores, is_grouped, scaling = found["scoring_func"], found["n_group"] > 1, found["routed_scaling_factor"]
    return replace(
        details,
        router_scores=scores,
        scores_before_choice=scores == "softmax" and not found["norm_topk_prob"],
        router_groups=int(found["n_group"]) if is_grouped else None,
        chosen_groups=int(found["topk_group"]) if is_grouped else None,
        router_scaling=None if scaling == 1 else scaling,
        router_biases=scores == "sigmoid",
        balance_loss=found["router_aux_loss_coef"],
    )
