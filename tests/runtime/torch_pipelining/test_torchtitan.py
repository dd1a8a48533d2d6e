"""Torchtitan's own Llama, cut and scheduled by its own code, trains with tables of ours.

Only where torchtitan can be imported. Its `pipeline_llm` and the option for a CSV are its own, on gloo and on
CPUs; its trainer calls `step` in a way that torch 2.13 does not have, so the loop is the test's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from four_clocks import plan_of
from joined import join

import schedsearch
from placements.shapes import v_shape, wave_shape
from runtime.clocks.clock import RecordingClock
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import in_loss_order, torch_order
from runtime.torch_pipelining.table import read_torch_csv
from schedsearch.baselines import one_f_one_b, v_half
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search

pytest.importorskip("torchtitan.distributed.pipeline_parallel")
pytest.importorskip("torchtitan.models.llama3")

NUM_RANKS, NUM_MICRO_BATCHES, LENGTH, VOCABULARY = 4, 8, 16, 2048


def searched() -> Schedule:
    """A searched schedule of a stage for each rank, for torchtitan's ``1F1B``."""
    shape = v_shape(NUM_RANKS, forward_time=2, backward_time=3)
    ends = [(block.after[-1], block.name) for block in shape.blocks if block.after]
    messages = tuple((source, target, 2) for source, target in ends)  # so that it is not 1F1B
    placement = replace(shape, transfer=messages, memory=(6,) * NUM_RANKS)
    schedule = search(placement, NUM_MICRO_BATCHES, work_limit=5).schedule
    assert schedule is not None
    assert str(torch_order(schedule)) != str(torch_order(one_f_one_b(shape, NUM_MICRO_BATCHES)))
    return schedule


def half_memory() -> Schedule:
    """Eight stages, forth and back over the ranks, for ``ZBVZeroBubble``; torch ships nothing like it."""
    return v_half(wave_shape(NUM_RANKS, 2, split_backward=True), NUM_MICRO_BATCHES)


class Run:
    """Iterations of torchtitan's small Llama in one process of a pipeline."""

    def __init__(self, rank: int, kind: str, table: str) -> None:
        from torchtitan.components.loss import CrossEntropyLoss
        from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
        from torchtitan.distributed import ParallelDims, parallel_dims
        from torchtitan.distributed.pipeline_parallel import pipeline_llm
        from torchtitan.models.common.attention import ScaledDotProductAttention
        from torchtitan.models.llama3 import llama3_configs

        parallel_dims.device_type = "cpu"  # it takes a GPU where torch has none
        config = llama3_configs["debugmodel"]("flex")
        for layer in config.layers:
            layer.attention.inner_attention = ScaledDotProductAttention.Config()  # the others need a GPU
        parallelism = ParallelismConfig(
            pipeline_parallel_degree=NUM_RANKS,
            data_parallel_shard_degree=1,
            pipeline_parallel_schedule=kind,
            pipeline_parallel_schedule_csv=table,
            spmd_backend="partial_dtensor",
        )
        torch.manual_seed(0)
        model = config.build()
        model.init_states()
        self.schedule, self.parts, self.is_first, self.is_last = pipeline_llm(
            model,
            parallel_dims=ParallelDims.from_config(parallelism, NUM_RANKS),
            training=TrainingConfig(local_batch_size=NUM_MICRO_BATCHES, seq_len=LENGTH, steps=1),
            parallelism=parallelism,
            compile_config=CompileConfig(),
            ac_config=None,
            dump_folder="",
            device=torch.device("cpu"),
            model_config=config,
            parallelize_fn=lambda part, **options: part,
            loss_fn=CrossEntropyLoss(CrossEntropyLoss.Config(global_vocab_size=VOCABULARY)),
        )

    def train(self, num_iterations: int) -> list[float]:
        """Return the losses, on the rank of the last stage."""
        parameters = [weight for part in self.parts for weight in part.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=1e-3)
        generator = torch.Generator().manual_seed(1)
        totals: list[float] = []
        for _ in range(num_iterations):
            size = (NUM_MICRO_BATCHES, LENGTH + 1)
            tokens = torch.randint(0, VOCABULARY, size, generator=generator)
            losses: list[torch.Tensor] = []
            given: dict[str, Any] = {"target": tokens[:, 1:].contiguous(), "losses": losses}
            optimizer.zero_grad()
            self.schedule.step(
                *([tokens[:, :-1]] if self.is_first else []),
                **(given if self.is_last else {}),
                loss_kwargs={"global_valid_tokens": torch.tensor(float(NUM_MICRO_BATCHES * LENGTH))},
            )
            optimizer.step()
            totals += [sum(loss.item() for loss in losses)] * self.is_last
        return totals


@pytest.mark.parametrize(("make", "kind"), [(searched, "1F1B"), (half_memory, "ZBVZeroBubble")])
def test_its_llama_trains_with_our_table_as_with_its_own_schedule(
    make: Any, kind: str, tmp_path: Path
) -> None:
    """With the same losses, at the clocks of a plan, which change nothing."""
    schedule = in_loss_order(make())
    table = tmp_path / "schedule.csv"
    table.write_text(str(torch_order(schedule)))
    assert check_order(read_torch_csv(table)).num_micro_batches == NUM_MICRO_BATCHES
    plan = plan_of(schedule)

    def all_of(rank: int) -> tuple[list[float], list[float], list[int]]:
        meeting = f"file://{tmp_path}/meeting"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=NUM_RANKS)
        theirs = Run(rank, kind, "").train(3)
        clock, ours = RecordingClock(), Run(rank, kind, str(table))
        with schedsearch.clocks(plan, ours.schedule, schedule=schedule, clock=clock):
            from_table = ours.train(3)
        dist.barrier()
        dist.destroy_process_group()
        return theirs, from_table, clock.requests

    results = join(NUM_RANKS, all_of, tmp_path)
    ((theirs, from_table),) = [losses for *losses, _ in results if losses[0]]
    assert len(theirs) == 3
    assert theirs[0] > theirs[-1]
    assert from_table == pytest.approx(theirs, rel=1e-6)
    assert from_table[0] == theirs[0]
    for rank, (*_, requests) in enumerate(results):
        assert requests == [plan.clock_mhz[block][n] for block, n in schedule.order(rank)] * 3
