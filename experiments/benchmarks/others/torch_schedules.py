"""The schedules that torch.distributed.pipelining ships, as schedules of ours, without a process group."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining.schedules import get_schedule_class

from runtime.torch_pipelining.csv import from_torch
from runtime.torch_pipelining.table import parse_order
from schedsearch.schedule import Schedule

SHIPPED = {
    "GPipe": 1,
    "LoopedBFS": 2,
    "Interleaved1F1B": 2,
    "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2,
    "DualPipeV": 2,
}
"""Stages per rank, by torch's name; of 1F1B it keeps no table."""


class StandIn:
    """Stand-in for a stage, for a schedule's constructor."""

    group = None
    device = torch.device("cpu")

    def __init__(self, index: int, num_stages: int, num_ranks: int) -> None:
        self.stage_index, self.num_stages = index, num_stages
        self.group_rank, self.group_size = 0, num_ranks
        self.is_first, self.is_last = index == 0, index == num_stages - 1
        self.submod = nn.Identity()


def torch_schedule(name: str, num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return one of torch's `SHIPPED` schedules, in ticks; see `runtime.torch_pipelining.csv.from_torch`.

    Torch has rules of its own for the number of micro-batches.
    """
    num_stages = num_ranks * SHIPPED[name]
    stages: list[Any] = [StandIn(i, num_stages, num_ranks) for i in range(SHIPPED[name])]
    kind: Any = get_schedule_class(name)
    made = kind(stages if SHIPPED[name] > 1 else stages[0], num_micro_batches, loss_fn=nn.functional.mse_loss)
    order = made._get_pipeline_order() if SHIPPED[name] == 1 else made.pipeline_order
    rows = (",".join(str(action or "") for action in order[rank]) for rank in range(num_ranks))
    return from_torch(parse_order("\n".join(rows)), name)
