"""Devices that are threads of this process, of which exactly one runs at any time; transfers are copies.

A device runs until it must wait for another, and then hands over to the next one that can go on, in the
order of the devices. So a run is deterministic, and when none can go on, that is a deadlock, known at once.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from placements import Placement
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.communicators import teams_of_blocks
from runtime.transport.protocol import Channel, Pending, Team, Transport, shards_and_groups
from runtime.transport.shards import Shards

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """No device can go on: each waits for another, or for one that has ended."""


class StoppedError(RuntimeError):
    """The run was given up, because another device failed or whoever started it stopped it."""


class Turns:
    """Turns of threads that take part, each under its number; device 0 begins."""

    def __init__(self, num_devices: int) -> None:
        self._changed = threading.Condition()
        self._waits: dict[int, Callable[[], bool]] = {device: lambda: True for device in range(num_devices)}
        self._num_devices, self._turn = num_devices, 0
        self._error: RuntimeError | None = None

    def begin(self, device: int) -> None:
        """Wait for a device's turn; the first thing that its thread does."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn == device)

    def wait_until(self, device: int, is_met: Callable[[], bool]) -> None:
        """Let others go on until a condition is met; only the device whose turn it is may call it.

        Raises:
            DeadlockError: It never will be.
            StoppedError: The run was given up.
        """
        if self._error is None and not is_met():
            self._waits[device] = is_met
            self._pass_on(device)
            self.begin(device)
        if self._error is not None:
            raise type(self._error)(*self._error.args)

    def end(self, device: int, failed: bool) -> None:
        """Hand over for good; the last thing that a device's thread does."""
        if failed:
            self.stop()
        del self._waits[device]
        self._pass_on(device)

    def stop(self) -> None:
        """Let every device fail where it waits next; called from outside."""
        self._error = self._error or StoppedError("the run was stopped")

    def _pass_on(self, device: int) -> None:
        others = ((device + i) % self._num_devices for i in range(1, self._num_devices + 1))
        left = [other for other in others if other in self._waits]
        able = (other for other in left if self._error or self._waits[other]())
        following = next(able, None)
        if left and following is None:
            self._error, following = DeadlockError("the devices wait for each other"), left[0]
        with self._changed:
            self._turn = -1 if following is None else following
            self._changed.notify_all()


@contextmanager
def backward_in_own_thread(device: torch.device) -> Iterator[None]:
    """Let the backward of this thread run in this thread.

    Torch has one thread for the backward of everything on a GPU. If a block there waited for its other
    devices, theirs could not even begin.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with torch.autograd.set_multithreading_enabled(False):
        yield


@dataclass
class _Transfer:
    """A send or a receive; it is done when it has met its other end, or is buffered."""

    turns: Turns
    device: int
    tensor: Tensor
    is_done: bool = False

    def wait(self) -> None:
        self.turns.wait_until(self.device, self.is_completed)

    def is_completed(self) -> bool:
        return self.is_done


@dataclass(frozen=True, kw_only=True)
class MemoryShards(Shards):
    """A team of threads of one process; RuntimeError if they gather tensors of different forms.

    Attributes:
        exchange: Hands a value to the others; what it returns waits, and returns the values in order.
    """

    exchange: Callable[[Any], Callable[[], list[Any]]]

    def begin_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Hand a copy to the others."""
        exchanged = self.exchange(tensor.detach().clone())

        def gathered() -> list[Tensor]:
            values = exchanged()
            if len({_spec(value) for value in values}) > 1:
                raise RuntimeError("devices of a team gather tensors of different forms")
            return [value.clone() for value in values]

        return gathered

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Hand a copy to the others, and add up all."""
        exchanged = self.exchange(tensor.detach().clone())
        return lambda: tensor.copy_(torch.stack(exchanged()).sum(0))

    def begin_broadcast(self, tensor: Tensor, source: int) -> Callable[[], Tensor]:
        """Hand a copy to the others, and take one."""
        exchanged = self.exchange(tensor.detach().clone())
        return lambda: tensor.copy_(exchanged()[source])

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Hand each device its rows; RuntimeError if the numbers are others than expected."""
        parts = self.exchange(rows.detach().clone().split_with_sizes(list(sent)))()
        arrived = [of_other[self.index] for of_other in parts]
        if [len(part) for part in arrived] != list(received):
            raise RuntimeError("devices of a team exchange other numbers of rows than they expect")
        return torch.cat(arrived)


class Network:
    """Messages and exchanges of the devices of a run.

    A channel's messages match by order, as on NCCL; unlike there, a wrong shape or type is an error.

    Args:
        num_devices: Devices of the run.
        buffered: Whether a send copies its tensor and is done at once, as small ones are on NCCL; otherwise
            it ends when its receive is posted, as on gloo.
        device: Device of all tensors. On a GPU all threads give their work to one stream, in their order.

    Attributes:
        turns: Turns of the devices.
    """

    def __init__(
        self, num_devices: int, *, buffered: bool = False, device: torch.device | str = "cpu"
    ) -> None:
        self.turns = Turns(num_devices)
        self.num_devices = num_devices
        self.device = torch.device(device)
        if self.device.type == "cuda":
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._buffered = buffered
        self._sends: dict[Channel, deque[_Transfer]] = defaultdict(deque)
        self._receives: dict[Channel, deque[_Transfer]] = defaultdict(deque)
        self._exchanges: dict[tuple[str, Team, int], dict[int, Any]] = defaultdict(dict)
        self._counts: dict[tuple[str, Team, int], int] = defaultdict(int)

    def run(self, parts: Sequence[Callable[[], T]]) -> list[T]:
        """Run each device's part in a thread of its own, all in turns, and return their results, by device.

        Raises:
            DeadlockError: None of the devices can go on.
        """
        turns, results, errors = self.turns, dict[int, T](), list[BaseException]()
        num_threads = torch.get_num_threads()

        def run(device: int) -> None:
            turns.begin(device)
            torch.set_num_threads(num_threads)  # OpenMP keeps it for each thread, and results depend on it.
            try:
                with backward_in_own_thread(self.device):
                    results[device] = parts[device]()
            except BaseException as error:
                errors.append(error)
            turns.end(device, device not in results)

        threads = [threading.Thread(target=run, args=(device,), daemon=True) for device in range(len(parts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.turns = Turns(self.num_devices)  # of the next run
        if errors:
            raise errors[0]
        return [results[device] for device in range(len(parts))]

    def send(self, tensor: Tensor, channel: Channel) -> Pending:
        """Begin a send."""
        kept = tensor.clone() if self._buffered else tensor
        transfer = _Transfer(self.turns, channel[0], kept, self._buffered)
        self._sends[channel].append(transfer)
        self._match(channel)
        return transfer

    def receive(self, buffer: Tensor, channel: Channel) -> Pending:
        """Post a receive."""
        transfer = _Transfer(self.turns, channel[1], buffer)
        self._receives[channel].append(transfer)
        self._match(channel)
        return transfer

    def exchange(self, team: Team, device: int, value: Any) -> list[Any]:
        """Return the values of all devices of a team, in its order; each calls it equally often."""
        return self.begin_exchange(team, device, value)()

    def begin_exchange(
        self, team: Team, device: int, value: Any, series: str = ""
    ) -> Callable[[], list[Any]]:
        """Hand a device's value to its team; the result waits for the others' and returns all.

        Each device calls it equally often in each series; exchanges of one series do not count those of
        another.
        """
        count = self._counts[series, team, device]
        self._counts[series, team, device] += 1
        values = self._exchanges[series, team, count]
        values[device] = value

        def wait() -> list[Any]:
            self.turns.wait_until(device, lambda: len(values) == len(team))
            self._exchanges.pop((series, team, count), None)
            return [values[other] for other in team]

        return wait

    def copies(self, teams: Iterable[Team], device: int, series: str = "copies") -> dict[Team, Shards]:
        """Return a device's place in each team that it is in."""
        by_team: dict[Team, Shards] = {}
        for team in teams:
            if device in team:
                exchange = partial(self.begin_exchange, team, device, series=series)
                by_team[team] = MemoryShards(team.index(device), len(team), exchange=exchange)
        return by_team

    def _match(self, channel: Channel) -> None:
        sends, receives = self._sends[channel], self._receives[channel]
        if sends and receives:
            send, receive = sends.popleft(), receives.popleft()
            sent, wanted = (_spec(transfer.tensor) for transfer in (send, receive))
            if sent != wanted:
                raise RuntimeError(f"device {channel[0]} sends {sent} where {channel[1]} receives {wanted}")
            receive.tensor.copy_(send.tensor)
            send.is_done = receive.is_done = True


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec.of(tensor.dtype, tensor.shape)


@dataclass(frozen=True)
class MemoryTransport(Transport):
    """The way of a device, of an index, to the others of a network."""

    network: Network
    index: int
    channels: frozenset[Channel]
    shards: Mapping[str, Shards] = field(default_factory=dict)
    groups: Mapping[str, Shards] = field(default_factory=dict)
    has_own_process = False

    @classmethod
    def of(
        cls, network: Network, placement: Placement, channels: Sequence[Channel], index: int
    ) -> MemoryTransport:
        """Return the transport of a device of a placement."""
        teams = teams_of_blocks(placement)
        by_team = network.copies(dict(teams), index, series="")  # all streams run in the device's one turn
        shards = {pair: by_team[pair[0]] for pair in teams if pair[0] in by_team}
        return cls(network, index, frozenset(channels), *shards_and_groups(placement, index, shards))

    @property
    def device(self) -> torch.device:
        """Return where the network's tensors are."""
        return self.network.device

    def receive(self, buffer: Tensor, channel: Channel) -> Pending:
        """Post a receive."""
        return self.network.receive(buffer, channel)

    def send(self, tensor: Tensor, channel: Channel) -> Pending:
        """Begin a send."""
        return self.network.send(tensor, channel)

    def collect(self, value: object) -> list[Any]:
        """Return every device's value."""
        return self.network.exchange(tuple(range(self.network.num_devices)), self.index, value)

    def meet(self, devices: Sequence[int]) -> None:
        """Wait for some devices."""
        self.network.exchange(tuple(devices), self.index, None)

    def connect_copies(self, teams: Iterable[Team]) -> Mapping[Team, Shards]:
        """Return this device's place in each team."""
        return self.network.copies(teams, self.index)


NETWORK_OF: dict[str, Callable[..., Network]] = {
    "rendezvous": Network,
    "buffered": partial(Network, buffered=True),
}
"""The maker of a run's network, for each backend of the launcher ``in_process``."""
