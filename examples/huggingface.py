"""A GPT-2 of the transformers package over the four stages of a V-shape; nothing is downloaded."""

import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from runtime.models import cut

LENGTH, TOKENS = 16, 64


def blocks():
    sizes = {"n_embd": 32, "n_layer": 4, "n_head": 4}
    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, **sizes, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).double()  # the type of runtime.dtype
    example = {"input_ids": torch.zeros(2, LENGTH, dtype=torch.int64), "use_cache": False}
    at = ["transformer.h.1", "transformer.h.2", "transformer.h.3"]
    return dict(zip(["F0", "F1", "F2", "F3"], cut(model, at, example=example), strict=True))


def data(iteration, micro_batch):
    tokens = torch.randint(TOKENS, (2, LENGTH))  # seeded for each micro-batch
    return {"input_ids": tokens}, tokens


def loss(logits, tokens):
    return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
