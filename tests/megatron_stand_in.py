"""A model as Megatron-LM's pipeline takes it: chunks with a config, and a step of a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from placements import Placement
from runtime.hooks.megatron import MegatronOrder

LENGTH, MICRO_BATCH, HIDDEN, NUM_MICRO_BATCHES = 3, 2, 4, 6


class Chunk(nn.Module):
    """A stage; the first takes data, the others the input tensor that was set."""

    def __init__(self, stage: int, num_stages: int, config: Any) -> None:
        super().__init__()
        torch.manual_seed(stage)
        self.layer = nn.Linear(HIDDEN, HIDDEN)
        self.config, self.is_first = config, stage == 0
        self.taken: Tensor | None = None

    def set_input_tensor(self, tensors: list[Tensor]) -> None:
        (self.taken,) = tensors

    def forward(self, data: Tensor) -> Tensor:
        taken = data if self.is_first else self.taken
        assert taken is not None
        return torch.tanh(self.layer(taken))


class Wrapped(nn.Module):
    """A chunk's data-parallel wrapper, as in Megatron-LM."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, data: Tensor) -> Any:
        return self.module(data)


def config(**others: Any) -> SimpleNamespace:
    """The fields of Megatron-LM's config that a step reads, as it sets them by default."""
    fields: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "pipeline_dtype": torch.float32,
        "sequence_parallel": False,
        "timers": None,
        "barrier_with_L1_time": True,
        "finalize_model_grads_func": None,
        "calculate_per_token_loss": False,
        "no_sync_func": None,
        "grad_sync_func": None,
        "param_sync_func": None,
        "grad_scale_func": None,
        "enable_autocast": False,
        "autocast_dtype": None,
        "variable_seq_lengths": False,
        "num_moe_experts": None,
        "cuda_graph_impl": "none",
    }
    return SimpleNamespace(**fields | others)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of each micro-batch."""
    generator = torch.Generator().manual_seed(99)
    for _ in range(NUM_MICRO_BATCHES):
        inputs, targets = torch.randn(2, LENGTH, MICRO_BATCH, HIDDEN, generator=generator)
        yield inputs, targets


def forward_step(data: Iterator[tuple[Tensor, Tensor]], model: nn.Module) -> tuple[Tensor, Any]:
    """Forward step function of a training script for Megatron-LM."""
    inputs, targets = next(data)

    def loss_function(output: Tensor, non_loss_data: bool = False) -> Any:
        loss = (output - targets).square().sum()
        return {"output": output} if non_loss_data else (loss, {"loss": loss.detach().clone()})

    return model(inputs), loss_function


def forward_step_of_tokens(data: Iterator[tuple[Tensor, Tensor]], model: nn.Module) -> tuple[Tensor, Any]:
    """The same, with the number of tokens, which differs between micro-batches."""
    output, function = forward_step(data, model)

    def with_tokens(given: Tensor, count: Callable[..., Any]) -> Any:
        loss, reported = count(given)
        return loss, torch.tensor(1 + int(reported["loss"] * 7) % 5, dtype=torch.int), reported

    return output, partial(with_tokens, count=function)


def in_one_piece(num_stages: int, with_tokens: bool = False) -> tuple[list[float], list[Tensor]]:
    """Losses, and gradients of all stages, without a pipeline; the loss is the mean over micro-batches."""
    model = nn.Sequential(*(Chunk(stage, num_stages, None) for stage in range(num_stages)))
    losses = []
    for inputs, targets in batches():
        output = inputs
        for chunk in model:
            output = torch.tanh(chunk.layer(output))
        loss = (output - targets).square().sum()
        losses.append(loss.item())
        tokens = 1 + int(loss.detach() * 7) % 5 if with_tokens else 1
        (loss / tokens / NUM_MICRO_BATCHES).backward()
    return losses, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def groups() -> SimpleNamespace:
    """Process groups: all ranks are a pipeline."""
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    every = dist.new_group(list(range(dist.get_world_size())))
    return SimpleNamespace(pp=every, tp=alone, cp=alone, dp_cp=alone, embd=None, pos_embd=None)


def meet(rank: int, count: int, folder: Path) -> SimpleNamespace:
    """Join the others, and return the process groups."""
    dist.init_process_group("gloo", f"file://{folder / 'own'}", rank=rank, world_size=count)
    return groups()


def chunks_of(rank: int, placement: Placement, given: Any, wrap: bool = True) -> list[nn.Module]:
    """The chunks of a rank."""
    num_stages = len(placement.blocks) // 2
    chunks = [Chunk(stage, num_stages, given) for stage in range(rank, num_stages, placement.num_devices)]
    return [Wrapped(chunk) if wrap else chunk for chunk in chunks]


def step(
    function: MegatronOrder | Callable[..., Any], chunks: list[nn.Module], groups: Any, **others: Any
) -> list[Any]:
    """An iteration as Megatron-LM's training asks for it."""
    arguments: dict[str, Any] = {
        "forward_step_func": forward_step,
        "data_iterator": [batches() for _ in chunks] if len(chunks) > 1 else batches(),
        "model": chunks,
        "num_microbatches": NUM_MICRO_BATCHES,
        "seq_length": LENGTH,
        "micro_batch_size": MICRO_BATCH,
        "decoder_seq_length": None,
        "forward_only": False,
        "pg_collection": groups,
    }
    return function(**arguments | others)


def gradients(chunks: list[nn.Module]) -> list[Tensor]:
    """Gradients of the chunks, in order."""
    return [param.grad for chunk in chunks for param in chunk.parameters() if param.grad is not None]
