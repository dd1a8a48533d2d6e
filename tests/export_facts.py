"""What the parsers of other systems take: facts of the versions that exports are written for.

Megatron-LM's are of its argument parser beside megatron-core 0.16, torchtitan's of `TrainingConfig` and
`ParallelismConfig` in torchtitan 0.3.0, whose flags are ``--section.field``. Only what exports may use is
listed.
"""

from __future__ import annotations

import argparse

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
    "moe-router-topk-scaling-factor",
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
)

TORCHTITAN_NUMBERS = (
    "training.seq_len",
    "training.global_batch_size",
    "training.local_batch_size",
    "parallelism.pipeline_parallel_degree",
    "parallelism.tensor_parallel_degree",
    "parallelism.context_parallel_degree",
    "parallelism.data_parallel_shard_degree",
    "parallelism.data_parallel_replicate_degree",
    "parallelism.expert_parallel_degree",
    "parallelism.pipeline_parallel_microbatch_size",
)
TORCHTITAN_CHOICES = {
    "module": ("llama3", "deepseek_v3", "gpt_oss", "qwen3", "qwen3_5", "flux", "kimi_k2_7", "muse_glimmer"),
    "config": None,
    "training.mixed_precision_param": ("bfloat16", "float32"),
    "parallelism.fsdp_reshard_after_forward": ("always", "never", "default"),
    "parallelism.pipeline_parallel_schedule": ("1F1B", "Interleaved1F1B", "GPipe", "ZBVZeroBubble"),
}
TORCHTITAN_SWITCHES = ("parallelism.no-enable-sequence-parallel", "training.disable_cuda_graphs")
TORCHTITAN_CHECKPOINTS = tuple(f"activation_checkpoint:{each}" for each in ("none", "full", "selective"))


def megatron_parser() -> argparse.ArgumentParser:
    """Return a parser that takes what Megatron-LM's takes, and nothing that is cut short."""
    return _parser(MEGATRON_NUMBERS, MEGATRON_CHOICES, MEGATRON_SWITCHES, MEGATRON_SHARES)


def torchtitan_parser() -> argparse.ArgumentParser:
    """Return the same of torchtitan's, whose kind of activation checkpointing is the last word."""
    parser = _parser(TORCHTITAN_NUMBERS, TORCHTITAN_CHOICES, TORCHTITAN_SWITCHES, ())
    parser.add_argument("--parallelism.module_fqns_per_model_part", nargs="+")
    return parser


def _parser(
    numbers: tuple[str, ...],
    choices: dict[str, tuple[str, ...] | None],
    switches: tuple[str, ...],
    shares: tuple[str, ...],
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in numbers:
        parser.add_argument(f"--{name}", type=int)
    for name in shares:
        parser.add_argument(f"--{name}", type=float)
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values)
    for name in switches:
        parser.add_argument(f"--{name}", action="store_true")
    return parser
