"""The clocks of a plan in torch's own pipelining, whose schedules and tables run as they do without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from four_clocks import plan_of
from joined import join
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime, get_schedule_class
from torch_tables import batch, shipped, stages_of_model

import schedsearch
from placements.shapes import v_shape
from runtime.clocks.clock import RecordingClock
from runtime.hooks.plan_clocks import PlanClocks
from runtime.program.calls import ScriptError
from runtime.torch_pipelining.csv import from_torch, torch_order
from runtime.torch_pipelining.table import parse_order
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import FrequencyPlan

NUM_RANKS, NUM_MICRO_BATCHES = 2, 4


def table_of(name: str) -> str:
    """The order of a schedule that torch ships; of 1F1B, which torch has no table of, it is ours."""
    if name == "1F1B":
        return str(torch_order(one_f_one_b(v_shape(NUM_RANKS), NUM_MICRO_BATCHES)))
    rows = shipped(name, NUM_RANKS, NUM_MICRO_BATCHES).pipeline_order
    return "".join(",".join("" if a is None else str(a) for a in rows[rank]) + "\n" for rank in rows)


def stages_on(rank: int, numbers: Sequence[int], num_stages: int) -> list[PipelineStage]:
    model = stages_of_model(num_stages)
    return [PipelineStage(model[stage], stage, num_stages, torch.device("cpu")) for stage in numbers]


def run(schedule: Any, numbers: Sequence[int], num_stages: int) -> list[Tensor]:
    """Return the losses of an iteration, where they are, after the gradients."""
    inputs, targets = batch(NUM_MICRO_BATCHES)
    losses: list[Tensor] = []
    last = {"target": targets, "losses": losses} if num_stages - 1 in numbers else {}
    schedule.step(*([inputs] if 0 in numbers else []), **last)
    stages = getattr(schedule, "_stages", None) or [schedule._stage]
    gradients = [weight.grad.clone() for stage in stages for weight in stage.submod.parameters()]
    for stage in stages:
        stage.submod.zero_grad()
    return [*gradients, *losses]


@pytest.mark.parametrize("kind", ["1F1B", "ZBVZeroBubble", "table"])
def test_each_call_of_a_stage_gets_the_clock_of_its_block(kind: str, tmp_path: Path) -> None:
    """With the same losses and gradients, bit for bit, before and after."""
    table = table_of("InterleavedZeroBubble" if kind == "table" else kind)
    order = parse_order(table)
    plan_schedule = from_torch(order)
    plan, num_stages = plan_of(plan_schedule), len(order.rank_of)
    (tmp_path / "table.csv").write_text(table)

    def rank_of(rank: int) -> tuple[list[int], list[Tensor], list[Tensor]]:
        dist.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/meeting", rank=rank, world_size=NUM_RANKS
        )
        numbers = [stage for stage, where in order.rank_of.items() if where == rank]

        def build() -> Any:
            stages = stages_on(rank, numbers, num_stages)
            if kind == "table":
                schedule = _PipelineScheduleRuntime(stages, NUM_MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
                schedule._load_csv(str(tmp_path / "table.csv"), format="compute_only")
                return schedule
            first: Any = stages[0] if kind == "1F1B" else stages
            return get_schedule_class(kind)(first, NUM_MICRO_BATCHES, loss_fn=nn.functional.mse_loss)

        alone = run(build(), numbers, num_stages)
        clock, watched = RecordingClock(), build()
        with schedsearch.clocks(plan, watched, schedule=plan_schedule, clock=clock):
            with_clocks = run(watched, numbers, num_stages)
            again = run(watched, numbers, num_stages)
        after = run(watched, numbers, num_stages)
        assert all(torch.equal(*pair) for pair in zip(with_clocks, again, strict=True))
        assert all(torch.equal(*pair) for pair in zip(with_clocks, after, strict=True))
        dist.destroy_process_group()
        return clock.requests, alone, with_clocks

    for rank, (requests, alone, with_clocks) in enumerate(join(NUM_RANKS, rank_of, tmp_path)):
        wanted = [plan.clock_mhz[block][n] for block, n in plan_schedule.order(rank)]
        assert requests == wanted * 2
        assert with_clocks
        assert all(torch.equal(*pair) for pair in zip(alone, with_clocks, strict=True))


class Stage:
    """As much of a stage of torch as a test of its rank needs."""

    def __init__(self, stage_index: int, group_rank: int) -> None:
        self.stage_index, self.group_rank, self.device = stage_index, group_rank, torch.device("cpu")
        self.grads = [True]

    def forward_one_chunk(self, *arguments: object) -> None: ...

    def backward_one_chunk(self, *arguments: object, **options: object) -> None: ...

    def backward_weight_one_chunk(self, *arguments: object) -> None: ...


def test_stages_of_another_rank_are_refused() -> None:
    schedule = from_torch(parse_order(table_of("ZBVZeroBubble")))
    with (
        pytest.raises(
            ScriptError, match=r"stages: this rank has \[1, 3\], and device 1 of the plan has \[1, 2\]"
        ),
        PlanClocks(plan_of(schedule), [Stage(1, 1), Stage(3, 1)], schedule=schedule, clock=RecordingClock()),
    ):
        pass


def test_a_whole_backward_in_a_plan_of_halves_asks_for_both() -> None:
    """And for the clock of each where torch runs the halves apart; the stage is as it was afterwards."""
    schedule = from_torch(parse_order("0F0,0I0,0F1,0W0,0I1,0W1"))
    clock, stage = RecordingClock(), Stage(0, 0)
    plan = FrequencyPlan({"F0": (1, 2), "I0": (3, 4), "W0": (5, 6)}, 1.0, 1.0, 1.0)
    before = dict(vars(stage))
    with PlanClocks(plan, [stage], schedule=schedule, clock=clock) as clocks:
        stage.forward_one_chunk(0, ())
        stage.backward_one_chunk(0, None, False)
        stage.forward_one_chunk(1, ())
        stage.backward_weight_one_chunk(0)
        stage.backward_one_chunk(1, loss=None, full_backward=True, last_backward=True)
        with torch.no_grad():
            stage.forward_one_chunk(0, ())
        clocks.begin_iteration()
        stage.forward_one_chunk(0, ())
    assert clock.requests == [1, 3, 2, 5, 4, 6, 1]
    assert vars(stage) == before
