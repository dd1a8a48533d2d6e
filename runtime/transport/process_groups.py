"""Devices that are processes, joined by `torch.distributed`: a group for each communicator.

Messages carry no tags, because NCCL has none: on a channel they match by order. Gloo matches them so for each
source and target apart, and gives each group a thread in every process, so there one group carries all
channels. Every process creates every group of `runtime.transport.communicators`, in that order: torch numbers
groups, and a process that left one out would give the next ones other names than the others do. Of the
default group only its backend and its processes are used; no message goes over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from placements import Placement
from runtime.program.calls import ScriptError
from runtime.transport.communicators import Channel, Communicator, StreamTeam, Team, communicators
from runtime.transport.contact import Contact
from runtime.transport.protocol import Pending, Transport, shards_and_groups
from runtime.transport.shards import Shards

T = TypeVar("T")

_MEETING = 1
"""Tag of what devices send each other when they meet, in a group that may carry messages too."""

NCCL_EXTRA_S = 600.0
"""Extra time that NCCL waits beyond a device, which counts from later on and says where it stands."""


@dataclass(frozen=True)
class _Received:
    """A receive into a buffer of the stream of receives, which the stream that waits takes over."""

    work: Pending
    buffer: Tensor

    def wait(self) -> None:
        self.work.wait()
        self.buffer.record_stream(torch.cuda.current_stream())  # no new receive gets its memory meanwhile

    def is_completed(self) -> bool:
        return self.work.is_completed()


@dataclass(frozen=True)
class Channels(Transport):
    """The groups of one process.

    Attributes:
        control: All devices, over gloo; for barriers and small objects, and for messages where no other group
            carries them.
        channels: Group of each channel; on gloo `control`.
        receive_stream: Stream of a GPU for receives. NCCL starts an operation when what its stream held is
            done; the stream of the blocks would make a receive that is posted early wait for these.
    """

    control: dist.ProcessGroup
    channels: Mapping[Channel, dist.ProcessGroup]
    shards: Mapping[str, Shards]
    contact: Contact
    timeout_s: float = 300.0
    groups: Mapping[str, Shards] = field(default_factory=dict)
    receive_stream: torch.cuda.Stream | None = None

    @property
    def device(self) -> torch.device:
        """Return where this process's tensors live."""
        return torch_device()

    @property
    def is_left(self) -> bool:
        """Return whether this process ends where others may be at another place."""
        return self.contact.is_left

    def receiving(self) -> AbstractContextManager[object]:
        """Return the stream of receives as the current one."""
        return nullcontext() if self.receive_stream is None else torch.cuda.stream(self.receive_stream)

    def receive(self, buffer: Tensor, channel: Channel) -> Pending:
        """Post a receive."""
        work: Pending | None = dist.irecv(buffer, channel[0], group=self.channels[channel])
        assert work is not None
        return work if self.receive_stream is None else _Received(work, buffer)

    def send(self, tensor: Tensor, channel: Channel) -> Pending:
        """Begin a send."""
        work: Pending | None = dist.isend(tensor, channel[1], group=self.channels[channel])
        assert work is not None
        return work

    def barrier(self) -> None:
        """Wait for all devices."""
        with self.contact.meeting():
            dist.barrier(group=self.control)

    def collect(self, value: object) -> list[Any]:
        """Return every device's value."""
        with self.contact.meeting():
            collected: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(collected, value, group=self.control)
            return collected

    def add_up(self, values: Sequence[float]) -> list[float]:
        """Return sums over all devices."""
        total = torch.tensor(values, dtype=torch.float64)
        with self.contact.meeting():
            dist.all_reduce(total, group=self.control)
        totals: list[float] = total.tolist()
        return totals

    def meet(self, devices: Sequence[int]) -> None:
        """Wait for some devices, over the group of all."""
        others, token = [other for other in devices if other != dist.get_rank()], torch.zeros(1)
        with self.contact.meeting(devices):
            sent = [dist.isend(token, other, group=self.control, tag=_MEETING) for other in others]
            for other in others:
                dist.recv(torch.empty_like(token), other, group=self.control, tag=_MEETING)
            for work in sent:
                assert work is not None
                work.wait()

    def cause(self, error: RuntimeError, device: int | None = None) -> str | None:
        """Return why a transfer failed, if another process has said so or is gone."""
        return self.contact.cause(error, None if device is None else [device])

    def group_beside(self) -> dist.ProcessGroup:
        """Create a group of all processes, on the CPU."""
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timedelta(seconds=self.timeout_s))
        return group

    def connect_copies(self, teams: Iterable[Team]) -> Mapping[Team, Shards]:
        """Create and warm up a group for each team."""
        beside = [Communicator(f"copies {' '.join(map(str, team))}", team) for team in teams]
        groups = {communicator.devices: _new_group(communicator, self.timeout_s) for communicator in beside}
        connected = {
            team: _shards(team, group, self.contact)
            for team, group in groups.items()
            if dist.get_rank() in team
        }
        for copies in connected.values():
            copies.begin_gather(_token())()
        return dict(connected)


@dataclass(frozen=True, kw_only=True)
class GroupShards(Shards):
    """A team of processes, with a group of its own; `meeting` around a wait says why others do not come."""

    group: dist.ProcessGroup
    meeting: Callable[[], AbstractContextManager[None]]

    def begin_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Begin an all-gather."""
        received = [torch.empty_like(tensor) for _ in range(self.count)]
        return self._begun(received, dist.all_gather, received, tensor)

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin an all-reduce."""
        return self._begun(tensor, dist.all_reduce, tensor)

    def begin_broadcast(self, tensor: Tensor, source: int) -> Callable[[], Tensor]:
        """Begin a broadcast."""
        return self._begun(tensor, dist.broadcast, tensor, group_src=source)

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Carry an all-to-all out."""
        arrived, rows = rows.new_empty((sum(received), *rows.shape[1:])), rows.contiguous()
        return self._begun(arrived, dist.all_to_all_single, arrived, rows, list(received), list(sent))()

    def _begun(
        self, result: T, operation: Callable[..., dist.Work | None], *given: object, **more: object
    ) -> Callable[[], T]:
        """Begin an operation; the function returned waits for its end and returns its result."""
        with self.meeting():
            work = operation(*given, **more, group=self.group, async_op=True)
        assert work is not None

        def wait() -> T:
            with self.meeting():
                work.wait()
            return result

        return wait


def connect(
    placement: Placement,
    channels: Sequence[Channel],
    device: int,
    timeout_s: float,
    *,
    exact: bool = True,
) -> Channels:
    """Create and warm up all groups; every device must call it with the same arguments but `device`.

    Args:
        placement: Placement whose devices are the ranks of the default group.
        channels: All (source, target) pairs that messages take, in the same order everywhere.
        device: The caller.
        timeout_s: Time that one transfer may wait for its other end.
        exact: Whether sums over shards are made in their order; see `runtime.transport.shards`.

    Raises:
        ScriptError: The default group has other processes, or is bound to a GPU, so that torch would make
            every group by splitting the communicator of all.
    """
    size, rank = dist.get_world_size(), dist.get_rank()
    if (size, rank) != (placement.num_devices, device):
        raise ScriptError(
            f"torch's default group: has {size} processes, this one of rank {rank}, for device {device} of "
            f"{placement.num_devices}; start a process for each device, of its rank"
        )
    if dist.group.WORLD is not None and dist.group.WORLD.bound_device_id is not None:
        raise ScriptError(
            "torch's default group: is bound to a GPU, so each group of two would be split off that of all; "
            "leave device_id out of init_process_group"
        )
    in_control = _backend() == "gloo"
    control: dist.ProcessGroup = dist.new_group(
        backend="gloo", timeout=timedelta(seconds=timeout_s), group_desc="schedsearch control"
    )
    wanted = communicators(placement, () if in_control else channels)
    made = {communicator: _new_group(communicator, timeout_s) for communicator in wanted}
    links = dict.fromkeys(channels, control) if in_control else {}
    links |= {link.channel: group for link, group in made.items() if link.channel is not None}
    token = _token()
    for source, target in channels:
        if device == source:
            dist.send(token, target, group=links[source, target])
        elif device == target:
            dist.recv(token, source, group=links[source, target])
    # The store has no public name; torchrun's outlives this process, as one made here would not.
    contact = Contact(dist.distributed_c10d._get_default_store(), device, placement.num_devices)
    teams: dict[StreamTeam, Shards] = {}
    for link, group in made.items():
        if link.channel is None and device in link.devices:
            teams[link.devices, link.stream] = _shards(link.devices, group, contact, exact)
    for shards in teams.values():
        shards.gather(token)
    # A stream of another priority is not of the pool from which communicators take theirs.
    stream = torch.cuda.Stream(priority=-1) if _backend() == "nccl" else None  # type: ignore[no-untyped-call]
    block_shards, groups = shards_and_groups(placement, device, teams)
    return Channels(control, links, block_shards, contact, timeout_s, groups, stream)


def _shards(team: Team, group: dist.ProcessGroup, contact: Contact, exact: bool = True) -> GroupShards:
    place, meeting = (team.index(dist.get_rank()), len(team), exact), partial(contact.meeting, team)
    return GroupShards(*place, group=group, meeting=meeting)


def _new_group(communicator: Communicator, timeout_s: float) -> dist.ProcessGroup:
    """Create a group; on processes that are not in it that takes no time, and no meeting with the others."""
    group: dist.ProcessGroup = dist.new_group(
        list(communicator.devices),
        timeout=timedelta(seconds=timeout_s + (NCCL_EXTRA_S if _backend() == "nccl" else 0.0)),
        backend=_backend(),
        group_desc=f"schedsearch {communicator.name}",
    )
    return group


def _backend() -> str:
    """Return the backend of tensors in the default group, gloo or nccl; it may have both, for CPU and GPU."""
    name = str(dist.get_backend())
    if name in ("gloo", "nccl"):
        return name
    return "nccl" if "nccl" in dist.get_backend_config() and torch.cuda.is_available() else "gloo"


def _token() -> Tensor:
    """Return a tensor to warm up a group: a lazy first use among others could deadlock or be timed."""
    return torch.zeros(1, device=torch_device())


def torch_device() -> torch.device:
    """Return where this process's tensors live: its GPU under NCCL, the CPU otherwise."""
    if _backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
