#!/bin/bash
# Llama 3 70B in Megatron-LM on 64 GPUs: a launch script that `given` and `placement=megatron` read.
GPUS_PER_NODE=8
NNODES=8
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
  --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672 --group-query-attention --num-query-groups 8 \
  --seq-length 8192 --max-position-embeddings 8192 --swiglu --vocab-size 128256 --untie-embeddings-and-output-weights \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 2 \
  --micro-batch-size 1 --global-batch-size 256 --bf16 --sequence-parallel
