"""All devices in one process whose messages go through NCCL, from the one GPU to itself."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.transport.in_memory import Network, Turns
from runtime.transport.protocol import Channel, Pending

LATE_CYCLES = 10_000_000
"""By how many of the GPU's cycles a message is late; who does not wait computes with something else."""


@dataclass
class _Transfer:
    """A send or a receive; it has begun when it met its other end, and ends when NCCL says so."""

    turns: Turns
    device: int
    tensor: Tensor
    works: list[Pending] = field(default_factory=list)
    is_met: bool = False

    def wait(self) -> None:
        """Let the stream, not the script, wait for the end."""
        self.turns.wait_until(self.device, lambda: self.is_met)
        for work in self.works:
            work.wait()

    def is_completed(self) -> bool:
        return self.is_met and all(work.is_completed() for work in self.works)


class LoopbackNetwork(Network):
    """A network with the transfers that a `Device` gets under NCCL; on the CPU they are copies."""

    num_messages = 0

    def __init__(self, num_devices: int, **options: object) -> None:
        super().__init__(num_devices, **options)  # type: ignore[arg-type]
        self._begun: dict[tuple[Channel, bool], deque[_Transfer]] = defaultdict(deque)

    def send(self, tensor: Tensor, channel: Channel) -> _Transfer:  # type: ignore[override]
        return self._begin(tensor, channel, True)

    def receive(self, buffer: Tensor, channel: Channel) -> _Transfer:  # type: ignore[override]
        return self._begin(buffer, channel, False)

    def _begin(self, tensor: Tensor, channel: Channel, sends: bool) -> _Transfer:
        transfer = _Transfer(self.turns, channel[0] if sends else channel[1], tensor)
        self._begun[channel, sends].append(transfer)
        sent, received = self._begun[channel, True], self._begun[channel, False]
        if sent and received:
            self._move(sent.popleft(), received.popleft())
        return transfer

    def _move(self, sent: _Transfer, received: _Transfer) -> None:
        type(self).num_messages += 1
        if self.device.type == "cuda":
            sent.works = received.works = self._given_to_nccl(sent.tensor, received.tensor)
        else:
            received.tensor.copy_(sent.tensor)
        sent.is_met = received.is_met = True

    def _given_to_nccl(self, sent: Tensor, received: Tensor) -> list[Pending]:
        """Begin a message that takes some milliseconds, while the compute stream could go on."""
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            torch.cuda._sleep(LATE_CYCLES)
            operations = [dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)]
            return list(dist.batch_isend_irecv(operations))
