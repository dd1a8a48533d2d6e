"""Arguments of Megatron-LM's parser (beside megatron-core 0.16) that exports may use."""

from __future__ import annotations

import argparse
import shlex

MEGATRON_NUMBERS = (
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "ffn-hidden-size",
    "seq-length",
    "max-position-embeddings",
    "vocab-size",
    "kv-channels",
    "num-query-groups",
    "num-experts",
    "moe-router-topk",
    "moe-ffn-hidden-size",
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
    "micro-batch-size",
    "global-batch-size",
    "recompute-num-layers",
    "rotary-base",
    "window-attn-skip-freq",
    "q-lora-rank",
    "kv-lora-rank",
    "qk-head-dim",
    "qk-pos-emb-head-dim",
    "v-head-dim",
    "moe-router-num-groups",
    "moe-router-group-topk",
    "moe-shared-expert-intermediate-size",
    "expert-tensor-parallel-size",
    "mtp-num-layers",
    "microbatch-group-size-per-virtual-pipeline-stage",
)
MEGATRON_SHARES = (
    *("attention-dropout", "hidden-dropout", "moe-aux-loss-coeff", "norm-epsilon", "rotary-percent"),
    *("moe-router-topk-scaling-factor", "glu-linear-offset", "activation-func-clamp-value"),
)
MEGATRON_CHOICES = {
    "position-embedding-type": ("learned_absolute", "rope", "mrope", "relative", "none"),
    "normalization": ("LayerNorm", "RMSNorm"),
    "moe-router-load-balancing-type": ("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"),
    "moe-token-dispatcher-type": ("allgather", "alltoall", "flex"),
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "data-parallel-sharding-strategy": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
    "cp-comm-type": ("p2p", "all_gather", "a2a", "a2a+p2p"),
    "ckpt-format": ("torch", "torch_dist", "torch_dcp", "fsdp_dtensor"),
    "pipeline-model-parallel-layout": None,
    "moe-layer-freq": None,
    "window-size": None,
    "rope-type": ("rope", "yarn"),
    "moe-router-score-function": ("softmax", "sigmoid"),
    "fp8-format": ("e4m3", "hybrid"),
    "fp8-recipe": ("tensorwise", "delayed", "mxfp8", "blockwise", "custom"),
    "fp4-format": ("e2m1",),
    "fp4-recipe": ("nvfp4", "custom"),
    "softmax-type": ("vanilla", "off-by-one", "learnable"),
}
MEGATRON_SWITCHES = (
    "bf16",
    "grad-reduce-in-bf16",
    "group-query-attention",
    "swiglu",
    "disable-bias-linear",
    "untie-embeddings-and-output-weights",
    "moe-grouped-gemm",
    "sequence-parallel",
    "use-distributed-optimizer",
    "use-megatron-fsdp",
    "no-gradient-accumulation-fusion",
    *("add-qkv-bias", "qk-layernorm", "multi-latent-attention", "moe-router-pre-softmax", "tp-comm-overlap"),
    *("moe-router-enable-expert-bias", "overlap-grad-reduce", "overlap-param-gather"),
    *("fp8-param-gather", "fp4-param-gather", "reuse-grad-buf-for-mxfp8-param-ag"),
    *("quick-geglu", "no-bias-dropout-fusion", "fine-grained-activation-offloading"),
)
MEGATRON_LISTS = ("recompute-modules", "offload-modules")


def words(text: str) -> list[str]:
    """Return the words of an exported command line, less its comments."""
    return shlex.split(text, comments=True)


def megatron_parser() -> argparse.ArgumentParser:
    """Return a parser with Megatron-LM's arguments; it takes no abbreviations."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in MEGATRON_NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    for name in MEGATRON_SHARES:
        parser.add_argument(f"--{name}", type=float)
    for name, values in MEGATRON_CHOICES.items():
        parser.add_argument(f"--{name}", choices=values)
    for name in MEGATRON_SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    for name in MEGATRON_LISTS:
        parser.add_argument(f"--{name}", nargs="*")
    return parser
