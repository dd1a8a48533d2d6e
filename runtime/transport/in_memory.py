"""All devices in one process, one thread each, of which exactly one runs at any time.

A device runs until it must wait for another, and then hands over to the next one that can go on, in the
order of the devices. So a run is deterministic, and when none can go on, that is a deadlock, known at once.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from placements import Placement
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.process_groups import Channel, shards_and_groups
from runtime.transport.shards import WHOLE, Shards


class DeadlockError(RuntimeError):
    """No device can go on: each waits for another, or for one that has ended."""


class StoppedError(RuntimeError):
    """The run was given up, because another device failed or whoever started it stopped it."""


class Turns:
    """Whose turn it is.

    Args:
        num_devices: Threads that take part, each under its number.
    """

    def __init__(self, num_devices: int) -> None:
        """Let device 0 begin."""
        self._changed = threading.Condition()
        self._waits: list[Callable[[], bool] | None] = [lambda: True for _ in range(num_devices)]
        self._turn: int | None = 0
        self._error: type[RuntimeError] | None = None

    def begin(self, device: int) -> None:
        """Wait for a device's first turn; the first thing that its thread does."""
        self._await_turn(device)

    def wait_until(self, device: int, is_met: Callable[[], bool]) -> None:
        """Let others go on until a condition is met; only the device whose turn it is may call it.

        Raises:
            DeadlockError: It never will be.
            StoppedError: The run was given up.
        """
        if self._error is None and not is_met():
            self._waits[device] = is_met
            self._pass_on(device)
            self._await_turn(device)
        if self._error is not None:
            is_deadlock = self._error is DeadlockError
            raise self._error("the devices wait for each other" if is_deadlock else "the run was stopped")

    def end(self, device: int, failed: bool) -> None:
        """Hand over for good; the last thing that a device's thread does."""
        if failed and self._error is None:
            self._error = StoppedError
        self._waits[device] = None
        self._pass_on(device)

    def stop(self) -> None:
        """Let every device fail where it waits next; called from outside."""
        self._error = self._error or StoppedError

    def _await_turn(self, device: int) -> None:
        with self._changed:
            while self._turn != device:
                self._changed.wait()

    def _pass_on(self, device: int) -> None:
        num_devices = len(self._waits)
        left = [(device + i) % num_devices for i in range(1, num_devices + 1)]
        left = [other for other in left if self._waits[other] is not None]
        able = [other for other in left if self._error or self._is_met(other)]
        if left and not able:
            self._error = DeadlockError
        with self._changed:
            self._turn = next(iter(able or left), None)
            self._changed.notify_all()

    def _is_met(self, device: int) -> bool:
        is_met = self._waits[device]
        return is_met is not None and is_met()


@dataclass
class _Transfer:
    """A send or a receive; it is done when it has met its other end."""

    turns: Turns
    device: int
    tensor: Tensor
    is_buffered: bool = False
    is_met: bool = False

    def wait(self) -> None:
        """Wait for the other end, unless a copy is kept."""
        self.turns.wait_until(self.device, self.is_completed)

    def is_completed(self) -> bool:
        """Tell whether the tensor is free again."""
        return self.is_met or self.is_buffered


class Network:
    """What the devices of a run share.

    A channel's messages match by order, as on NCCL; unlike there, a wrong shape or type is an error.

    Args:
        num_devices: Of the run.
        buffered: Whether a send copies its tensor and is done at once, as small ones are on NCCL; otherwise
            it ends when its receive is posted, as on gloo.
        device: Where all tensors are. On a GPU all threads give their work to one stream, in their order.

    Attributes:
        turns: Whose turn it is.
        num_devices: Of the run.
        device: See above.
    """

    def __init__(
        self, num_devices: int, *, buffered: bool = False, device: torch.device | str = "cpu"
    ) -> None:
        """Begin with nothing on its way."""
        self.turns = Turns(num_devices)
        self.num_devices = num_devices
        self.device = torch.device(device)
        self._buffered = buffered
        self._sends: dict[Channel, deque[_Transfer]] = defaultdict(deque)
        self._receives: dict[Channel, deque[_Transfer]] = defaultdict(deque)
        self._exchanges: dict[tuple[tuple[int, ...], int], dict[int, Any]] = defaultdict(dict)
        self._counts: dict[tuple[tuple[int, ...], int], int] = defaultdict(int)

    def send(self, tensor: Tensor, channel: Channel) -> _Transfer:
        """Begin a send."""
        kept = tensor.clone() if self._buffered else tensor
        transfer = _Transfer(self.turns, channel[0], kept, self._buffered)
        self._sends[channel].append(transfer)
        self._match(channel)
        return transfer

    def receive(self, buffer: Tensor, channel: Channel) -> _Transfer:
        """Post a receive."""
        transfer = _Transfer(self.turns, channel[1], buffer)
        self._receives[channel].append(transfer)
        self._match(channel)
        return transfer

    def exchange(self, team: tuple[int, ...], device: int, value: Any) -> list[Any]:
        """Return the values of all devices of a team, in its order; each calls it equally often."""
        count = self._counts[team, device]
        self._counts[team, device] += 1
        values = self._exchanges[team, count]
        values[device] = value
        self.turns.wait_until(device, lambda: len(values) == len(team))
        self._exchanges.pop((team, count), None)
        return [values[other] for other in team]

    def _match(self, channel: Channel) -> None:
        sends, receives = self._sends[channel], self._receives[channel]
        while sends and receives:
            send, receive = sends.popleft(), receives.popleft()
            sent, wanted = (_spec(transfer.tensor) for transfer in (send, receive))
            if sent != wanted:
                raise RuntimeError(f"device {channel[0]} sends {sent} where {channel[1]} receives {wanted}")
            receive.tensor.copy_(send.tensor)
            send.is_met = receive.is_met = True


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec.of(tensor.dtype, tensor.shape)


@dataclass(frozen=True)
class MemoryShards:
    """One shard on each device of a team; `runtime.transport.shards.Shards` in one process.

    Attributes:
        network: Over which they meet.
        team: The block's devices.
        index: The shard of this device.
    """

    network: Network
    team: tuple[int, ...]
    index: int

    @property
    def count(self) -> int:
        """Return how many shards there are."""
        return len(self.team)

    @property
    def local(self) -> tuple[int, ...]:
        """Return this device's index."""
        return (self.index,)

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Exchange the values with the other devices; every one must call at the same place.

        Raises:
            RuntimeError: The shapes or types differ, so the devices are at different places.
        """
        (value,) = values
        found = self.network.exchange(self.team, self.team[self.index], value.detach().clone())
        if len({_spec(other) for other in found}) > 1:
            raise RuntimeError(f"devices {self.team} gather tensors of different forms")
        return [other.clone() for other in found]


@dataclass(frozen=True)
class MemoryTransport:
    """How one device of a network reaches the others; a `runtime.transport.process_groups.Transport`.

    Attributes:
        network: Of the run.
        index: This device.
        channels: That there are.
        shards: For each forward block on this device its shards.
        groups: For each forward block on this device its data-parallel groups.
    """

    network: Network
    index: int
    channels: frozenset[Channel]
    shards: Mapping[str, Shards] = field(default_factory=dict)
    groups: Mapping[str, Shards] = field(default_factory=dict)

    @classmethod
    def of(
        cls, network: Network, placement: Placement, channels: Sequence[Channel], index: int
    ) -> MemoryTransport:
        """Return the transport of a device of a placement."""

        def member(team: tuple[int, ...]) -> Shards:
            return WHOLE if len(team) == 1 else MemoryShards(network, team, team.index(index))

        return cls(network, index, frozenset(channels), *shards_and_groups(placement, index, member))

    @property
    def device(self) -> torch.device:
        """Return where the network's tensors are."""
        return self.network.device

    @property
    def shares_gpu(self) -> bool:
        """Return whether the network is on a GPU."""
        return self.device.type == "cuda"

    def has(self, channel: Channel) -> bool:
        """Tell whether there is such a channel."""
        return channel in self.channels

    def receive(self, buffer: Tensor, channel: Channel) -> _Transfer:
        """Post a receive."""
        return self.network.receive(buffer, channel)

    def send(self, tensor: Tensor, channel: Channel) -> _Transfer:
        """Begin a send."""
        return self.network.send(tensor, channel)

    def barrier(self) -> None:
        """Wait for all devices."""
        self.collect(None)

    def collect(self, value: object) -> list[Any]:
        """Return every device's value."""
        return self.network.exchange(tuple(range(self.network.num_devices)), self.index, value)

    def meet(self, devices: Sequence[int]) -> None:
        """Wait for some devices."""
        self.network.exchange(tuple(devices), self.index, None)

    def connect_copies(self, copies: Iterable[tuple[int, ...]]) -> Mapping[tuple[int, ...], Shards]:
        """Return the copy of this device in each set."""
        return {
            devices: MemoryShards(self.network, devices, devices.index(self.index))
            for devices in copies
            if self.index in devices
        }
