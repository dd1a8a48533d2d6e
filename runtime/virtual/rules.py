"""Waits of transfers, on a network or under NCCL.

The rules of NCCL under torch.distributed, each with its source:

- Every communicator has a stream of its own on each of its GPUs. What is posted to it first waits for all
  that the current stream holds at that moment, and then comes in the order of posting (torch's
  ``ProcessGroupNCCL.hpp``, comment on the class). So a receive that is posted after a block's kernel waits
  for that kernel, even if the host is far ahead.
- ``wait()`` lets the current stream wait for the end of an operation, and not the host (the same comment).
- A send and its receive are kernels that need each other: both must have begun for the message to move, and
  both end then (NCCL user guide, "Point-to-point communication": blocking for the GPU).
- Messages match by their order between two ranks of a communicator; there are no tags (torch's documentation
  of ``torch.distributed.isend``).
- A collective begins when all ranks of its communicator have begun it (NCCL user guide, "Collective
  operations").

The rules of streams and work queues are in `runtime.virtual.streams`. A network is the same machine with
nothing bounded: then only the communicators matter. Not known here: small messages that leave before their
receive has begun, groups of calls, and streams that more than 32 communicators of a GPU share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Communication(StrEnum):
    """The work that a transfer holds up.

    - ``blocking``: both of its devices, from when they come to it until it has ended.
    - ``device``: no block, but every later transfer of both devices: one communicator for all, as in torch's
      batches and in its groups that are bound to a device.
    - ``pair``: every later transfer between the two devices, in either direction: one communicator for each
      pair, as torch makes them for single transfers over NCCL.
    - ``directed``: every later transfer from the one to the other: one communicator for each channel.

    `runtime.transport.process_groups` makes the communicators of the last two.
    """

    BLOCKING = "blocking"
    DEVICE = "device"
    PAIR = "pair"
    DIRECTED = "directed"


@dataclass(frozen=True)
class Rules:
    """How programs are carried out, and bounds of the GPU; by default as our scripts do on NCCL.

    Attributes:
        communicators: ``directed``, ``pair`` or ``device``.
        own_receive_stream: Whether receives are posted from a stream that holds nothing, else from the
            compute stream.
        waits_at_once: Whether the compute stream waits for every transfer where it is posted, as with
            ``runtime.blocking``.
        num_queues: Work queues of a GPU, ``CUDA_DEVICE_MAX_CONNECTIONS``, which our launcher sets to 32; None
            for as many as streams.
        ahead: How many blocks the host may be ahead of the compute stream; None for any number.
    """

    communicators: Communication = Communication.DIRECTED
    own_receive_stream: bool = True
    waits_at_once: bool = False
    num_queues: int | None = 32
    ahead: int | None = 4

    def __post_init__(self) -> None:
        """Check that they fit together."""
        if self.communicators is Communication.BLOCKING:
            raise ValueError("communicators: blocking is no set of communicators; use waits_at_once=True")

    def __str__(self) -> str:
        """Return the rules in words, for messages.

        >>> str(Rules(num_queues=1)), str(of_network(Communication.PAIR))
        ('NCCL, directed communicators, 1 work queue', 'pair communication')
        """
        for how in Communication:
            if self == of_network(how):
                return f"{how} communication"
        words = ["NCCL", f"{self.communicators} communicators"]
        words += ["receives behind blocks"] * (not self.own_receive_stream)
        words += ["waits where a transfer is posted"] * self.waits_at_once
        if self.num_queues is not None and self.num_queues != Rules.num_queues:
            words.append(f"{self.num_queues} work queue{'s' * (self.num_queues > 1)}")
        return ", ".join(words)


def of_network(communication: Communication) -> Rules:
    """Return the rules of a network, where nothing but its transfers holds up anything."""
    is_blocking = communication is Communication.BLOCKING
    communicators = Communication.DIRECTED if is_blocking else communication
    return Rules(communicators, False, is_blocking, num_queues=None, ahead=None)


NCCL_RULES: Mapping[str, Rules] = MappingProxyType(
    {
        "as the scripts do it": Rules(),
        "receives are posted behind blocks": Rules(own_receive_stream=False),
        "a communicator for each pair of devices": Rules(Communication.PAIR),
        "one communicator for all": Rules(Communication.DEVICE),
        "one work queue on each GPU": Rules(num_queues=1),
        "every transfer is waited for where it is posted": Rules(waits_at_once=True),
    }
)
"""Rules under which ``python -m runtime.check --nccl`` plays programs."""
