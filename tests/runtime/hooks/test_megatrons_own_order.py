"""Orders of ours beside megatron-core 0.16's own 1F1B, with the same model; where it is installed.

``pip install megatron-core==0.16.0`` beside this project, then run this file. megatron-core makes a few
tensors on the GPU; here those are made on the CPU, and nothing else of it is changed.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from joined import join
from megatron_stand_in import NUM_MICRO_BATCHES, gradients

from placements.shapes import loop_shape, v_shape
from runtime.hooks.megatron import MegatronOrder
from schedsearch.baselines import gpipe, interleaved_one_f_one_b, one_f_one_b


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")


def on_the_cpu() -> None:
    """Make megatron-core create its tensors on the CPU, in this process."""
    made = torch.zeros

    def zeros(*sizes: Any, device: Any = None, **how: Any) -> Any:
        return made(*sizes, device=None if device == "cuda" else device, **how)

    torch.zeros = zeros  # type: ignore[assignment]
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]


SCHEDULES = {
    "1F1B": one_f_one_b(v_shape(2), NUM_MICRO_BATCHES),
    "GPipe": gpipe(v_shape(2), NUM_MICRO_BATCHES),
    "interleaved": interleaved_one_f_one_b(loop_shape(2, 2), NUM_MICRO_BATCHES),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_gpt_of_megatrons_own_code(name: str, tmp_path: Path) -> None:
    """Its groups and its model, uneven by its layout; the groups are not given, as in its training."""
    state = module("megatron.core.parallel_state")
    gpt = module("megatron.core.models.gpt.gpt_model")
    specs = module("megatron.core.models.gpt.gpt_layer_specs")
    theirs = module("megatron.core.pipeline_parallel.schedules")
    make_config = module("megatron.core.transformer.transformer_config").TransformerConfig
    schedule = SCHEDULES[name]
    num_chunks = len(schedule.placement.blocks) // 4
    layout = "Et|ttL" if num_chunks == 1 else "Et|tt|t|L"
    length, words = 8, 16

    def rank_of(rank: int) -> Any:
        dist.init_process_group("gloo", f"file://{tmp_path / 'own'}", rank=rank, world_size=2)
        on_the_cpu()
        random = module("megatron.core.tensor_parallel.random")
        random.CudaRNGStatesTracker.fork = lambda *_, **__: nullcontext()
        virtual = num_chunks if num_chunks > 1 else None
        state.initialize_model_parallel(
            pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=virtual
        )
        return [trained(function, rank, virtual) for function in (theirs.get_forward_backward_func(), ours)]

    ours = MegatronOrder(schedule)

    def trained(function: Any, rank: int, virtual: int | None) -> Any:
        config = make_config(
            num_layers=layout.count("t"),
            hidden_size=16,
            num_attention_heads=2,
            pipeline_model_parallel_size=2,
            pipeline_model_parallel_layout=layout,
            virtual_pipeline_model_parallel_size=virtual,
            pipeline_dtype=torch.float32,
            batch_p2p_comm=False,
            use_cpu_initialization=True,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            microbatch_group_size_per_vp_stage=2,
        )
        chunks = []
        for chunk in range(num_chunks):
            torch.manual_seed(100 * rank + chunk)
            last = rank == 1 and chunk == num_chunks - 1
            made = gpt.GPTModel(
                config,
                specs.get_gpt_layer_local_spec(),
                words,
                length,
                pre_process=rank == chunk == 0,
                post_process=last,
                vp_stage=chunk if virtual else None,
            )
            made.model_type = module("megatron.core.enums").ModelType.encoder_or_decoder
            chunks.append(made)

        def batches() -> Any:
            generator = torch.Generator().manual_seed(3)
            while True:
                yield torch.randint(words, (2, length), generator=generator)

        def forward_step(data: Any, model: Any) -> Any:
            tokens = next(data)
            mask = torch.ones(length, length).triu(1).bool()[None, None]
            output = model(tokens, torch.arange(length).expand(2, -1), mask, labels=tokens)
            return output, lambda loss: (loss.mean(), {"loss": loss.detach().mean()})

        iterators = [batches() for _ in chunks]
        losses = function(
            forward_step_func=forward_step,
            data_iterator=iterators if num_chunks > 1 else iterators[0],
            model=chunks,
            num_microbatches=NUM_MICRO_BATCHES,
            seq_length=length,
            micro_batch_size=2,
        )
        return [report["loss"].item() for report in losses], gradients(chunks)

    for rank, (megatrons, by_order) in enumerate(join(2, rank_of, tmp_path)):
        assert megatrons[0] == by_order[0]
        assert len(by_order[0]) == (NUM_MICRO_BATCHES if rank == 1 else 0)
        assert len(by_order[1]) > 10
        torch.testing.assert_close(by_order[1], megatrons[1], rtol=1e-5, atol=1e-8)
