"""Communicators: how many there are, that sharing them is safe, and that processes make and use them."""

from __future__ import annotations

from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from strategies import any_schedules

from placements import Placement
from placements.shapes import m_shape, v_shape, x_shape
from runtime.program.calls import ScriptError
from runtime.program.deadlock import check
from runtime.program.instructions import Programs, Receive, Send
from runtime.program.lower import lower, messages
from runtime.program.prefetch import prefetch_receives
from runtime.transport.communicators import communicators
from runtime.transport.process_groups import connect
from schedsearch.schedule import Schedule


def channels_of(placement: Placement) -> list[tuple[int, int]]:
    return sorted({(message.source, message.target) for message in messages(placement)})


@pytest.mark.parametrize(
    ("placement", "number"),
    [(v_shape(4), 6), (m_shape(64), 188 + 1), (x_shape(8), 14)],
    ids=lambda value: value.name if isinstance(value, Placement) else None,
)
def test_communicators_are_counted(placement: Placement, number: int) -> None:
    """An M-shape's first and last blocks are on all devices: a team, and messages from one device to all."""
    channels = channels_of(placement)
    made = communicators(placement, channels)
    assert [communicator.channel for communicator in made if communicator.channel is not None] == channels
    assert len({communicator.name for communicator in made}) == number


def between(programs: Programs, device: int, other: int) -> list[tuple[str, str, int, int]]:
    """Return the messages between two devices, either way, in the order of one of them."""
    in_order = []
    for instruction in programs.instructions[device]:
        if isinstance(instruction, Send) and instruction.target == other:
            in_order.append((instruction.producer, instruction.consumer, instruction.micro_batch, device))
        if isinstance(instruction, Receive) and instruction.source == other:
            in_order.append((instruction.producer, instruction.consumer, instruction.micro_batch, other))
    return in_order


@given(any_schedules())
def test_both_devices_of_a_pair_have_one_order_of_all_messages_between_them(schedule: Schedule) -> None:
    """So their operations meet on a communicator that carries both directions, as Megatron-LM's."""
    late = lower(schedule)
    for programs in (late, prefetch_receives(late, 1), prefetch_receives(late, 3)):
        check(programs)
        devices = range(programs.placement.num_devices)
        for device in devices:
            for other in range(device):
                assert between(programs, device, other) == between(programs, other, device)


def be(device: int, meeting: str, backend: str | None) -> None:
    """Exchange a message each way and meet in a team, beside collectives of the default group's owner."""
    placement = m_shape(3)
    dist.init_process_group(
        backend, init_method=meeting, rank=device, world_size=3, timeout=timedelta(seconds=60)
    )
    total = torch.ones(1)
    dist.all_reduce(total)
    joined = connect(placement, ((0, 1), (1, 0), (1, 2), (2, 1)), device, 60.0)
    other = {0: 1, 1: 0}.get(device)
    if other is not None:
        with joined.receiving():
            buffer = torch.empty(2)
            coming = joined.receive(buffer, (other, device))
        joined.meet((0, 1))  # takes no message that is on its way
        going = joined.send(torch.full((2,), float(device)), (device, other))
        coming.wait()
        going.wait()
        assert buffer.tolist() == [other, other]
        assert joined.channels[0, 1] is joined.channels[1, 0] is joined.control
    gathered = next(iter(joined.shards.values())).gather(torch.tensor([device]))
    assert [int(tensor) for tensor in gathered] == [0, 1, 2]
    assert joined.has((2, 1))
    assert not joined.has((0, 2))
    dist.all_reduce(total)
    assert total.item() == 9
    joined.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", None])
def test_processes_of_a_default_group_join(backend: str | None, tmp_path: Path) -> None:
    context = get_context("fork")
    meeting = f"file://{tmp_path / 'meeting'}"
    processes = [context.Process(target=be, args=(device, meeting, backend)) for device in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]


def as_process(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    """Make torch report a rank and a world size without a process group."""
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: size)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", dist.HashStore)


@pytest.mark.parametrize(("rank", "size"), [(1, 2), (0, 3)])
def test_a_default_group_of_other_processes_is_refused(
    rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_process(monkeypatch, rank, size)
    message = f"default group: has {size} processes, this one of rank {rank}, for device 0 of 2; start"
    with pytest.raises(ScriptError, match=message):
        connect(v_shape(2), (), 0, 300)


def test_a_default_group_bound_to_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    as_process(monkeypatch, 0, 2)
    bound = SimpleNamespace(bound_device_id=torch.device("cuda", 0))
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=bound))
    with pytest.raises(ScriptError, match="is bound to a GPU, .*; leave device_id out of init_process_group"):
        connect(v_shape(2), (), 0, 300)
