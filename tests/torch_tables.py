"""Tables of torch.distributed.pipelining for tests: those it ships, random ones, and runs by torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    _Action,
    _add_send_recv,
    _PipelineScheduleRuntime,
    get_schedule_class,
)

from experiments.benchmarks.others.torch_schedules import SHIPPED, StandIn
from placements import Block, Kind, Placement
from runtime.torch_pipelining.table import Op, TorchOrder, parse_order
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


def shipped(name: str, num_ranks: int, num_micro_batches: int, defer: bool = False):  # type: ignore[no-untyped-def]
    """A schedule that torch ships, lowered by torch; `defer` is its option `defer_pp_recv`."""
    num_stages = num_ranks * SHIPPED[name]
    stages = [StandIn(i, num_stages, num_ranks) for i in range(SHIPPED[name])]
    kind, loss = get_schedule_class(name), torch.nn.functional.cross_entropy
    if issubclass(kind, PipelineScheduleMulti):
        return kind(stages, num_micro_batches, loss_fn=loss, defer_pp_recv=defer)
    display = kind(stages[0], num_micro_batches, loss_fn=loss)._get_pipeline_order()
    order = {rank: [a for a in row if a is None or a.is_compute_op] for rank, row in display.items()}
    runtime = _PipelineScheduleRuntime(stages, num_micro_batches, loss_fn=loss, defer_pp_recv=defer)
    runtime.pipeline_order = order
    runtime._prepare_schedule_with_comms(order)
    return runtime


def table(rows: dict[int, list[object]]) -> TorchOrder:
    """A table of torch's own actions."""
    return parse_order("".join(",".join("" if a is None else str(a) for a in rows[r]) + "\n" for r in rows))


def with_transfers(order: TorchOrder) -> TorchOrder:
    """A table of computations with sends and receives where torch puts them."""
    rows = {rank: [_Action.from_str(str(c)) for c in row if c] for rank, row in enumerate(order.cells)}
    return table(_add_send_recv(rows, order.rank_of.__getitem__, len(order.rank_of)))


@st.composite
def chain_schedules(draw: st.DrawFn) -> Schedule:
    """A random schedule of a random chain: any stage on any device, backward whole or in halves."""
    num_devices = draw(st.integers(1, 3))
    device_of = draw(
        st.lists(st.integers(0, num_devices - 1), min_size=num_devices, max_size=6).filter(
            lambda devices: len(set(devices)) == num_devices
        )
    )
    split = [draw(st.booleans()) for _ in device_of]
    blocks: list[Block] = []
    for i, device in enumerate(device_of):
        blocks.append(
            Block(f"F{i}", Kind.F, (device,), draw(st.integers(1, 3)), 0, (f"F{i - 1}",) if i else ())
        )
    for i in range(len(device_of) - 1, -1, -1):
        kind = Kind.I if split[i] else Kind.B
        gradient = (f"{blocks[-1].name}",) if i < len(device_of) - 1 else ()
        if gradient and blocks[-1].kind is Kind.W:
            gradient = (blocks[-2].name,)
        blocks.append(
            Block(f"{kind}{i}", kind, (device_of[i],), draw(st.integers(1, 3)), 0, (f"F{i}", *gradient))
        )
        if split[i]:
            blocks.append(Block(f"W{i}", Kind.W, (device_of[i],), 1, 0, (f"I{i}",)))
    placement = Placement("chain", num_devices, tuple(blocks))
    num_micro_batches = draw(st.integers(1, 4))
    orders: list[list[Instance]] = [[] for _ in range(num_devices)]
    left = {n: list(placement.topological_order) for n in range(num_micro_batches)}
    while left:
        n = draw(st.sampled_from(sorted(left)))
        waiting = {block.name for block in left[n]}
        block = draw(st.sampled_from([block for block in left[n] if not waiting.intersection(block.after)]))
        left[n].remove(block)
        if not left[n]:
            del left[n]
        orders[block.devices[0]].append((block.name, n))
    return as_soon_as_possible(placement, num_micro_batches, orders)


WIDTH = 4
ROWS = 2
"""Of a micro-batch."""


def stages_of_model(num_stages: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, WIDTH)).double() for _ in range(num_stages)]


def batch(num_micro_batches: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (ROWS * num_micro_batches, WIDTH)
    return tuple(torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def gradients_of_torch(order: TorchOrder, form: str) -> list[list[Tensor]]:
    """Each stage's gradients after torch has run a table, on a process per rank."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order.csv").write_text(str(order))
        num_ranks = len(order.cells)
        processes = [
            get_context("fork").Process(target=_run_rank, args=(folder, rank, order, form), daemon=True)
            for rank in range(num_ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            process.kill()
        assert [process.exitcode for process in processes] == [0] * num_ranks
        return [torch.load(folder / f"stage_{stage}.pt") for stage in order.rank_of]


def _run_rank(folder: Path, rank: int, order: TorchOrder, form: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(order.cells)
    )
    model = stages_of_model(len(order.rank_of))
    ids = [stage for stage, where in order.rank_of.items() if where == rank]
    stages = [PipelineStage(model[stage], stage, len(model), torch.device("cpu")) for stage in ids]
    number = num_micro_batches(order)
    schedule = _PipelineScheduleRuntime(stages, number, loss_fn=nn.functional.cross_entropy)
    schedule._load_csv(str(folder / "order.csv"), format=form)  # type: ignore[arg-type]
    inputs, targets = batch(number)
    schedule.step(*([inputs] if 0 in ids else []), **({"target": targets} if len(model) - 1 in ids else {}))
    for stage in ids:
        gradients = [parameter.grad for parameter in model[stage].parameters()]
        torch.save(gradients, folder / f"stage_{stage}.pt")
    dist.barrier()
    dist.destroy_process_group()


def num_micro_batches(order: TorchOrder) -> int:
    return 1 + max(action.micro_batch or 0 for _, action in order.actions())


def gradients_of_one_process(order: TorchOrder) -> list[list[Tensor]]:
    """The same gradients without torch's pipelining, each stage's added up in the order of the table."""
    torch.set_num_threads(1)
    model, number = stages_of_model(len(order.rank_of)), num_micro_batches(order)
    inputs, targets = (whole.split(ROWS) for whole in batch(number))
    by_micro_batch = []
    for one_input, target in zip(inputs, targets, strict=True):
        output = one_input
        for stage in model:
            output = stage(output)
        parameters = [parameter for stage in model for parameter in stage.parameters()]
        by_micro_batch.append(torch.autograd.grad(nn.functional.cross_entropy(output, target), parameters))
    sums: list[list[Tensor]] = []
    for stage in range(len(model)):
        ended = (Op.BACKWARD, Op.WEIGHT)
        turns: Sequence[int] = [
            action.micro_batch or 0
            for _, action in order.actions()
            if action.stage == stage and action.op in ended
        ]
        for i in (2 * stage, 2 * stage + 1):
            total = by_micro_batch[turns[0]][i].clone()
            for n in turns[1:]:
                total += by_micro_batch[n][i]
            sums.append([*(sums.pop() if i % 2 else []), total / number])
    return sums
