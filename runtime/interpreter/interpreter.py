"""The walk over a program, which calls a backend with each instruction.

Backends are the device of a run (`runtime.execution.device`), one process in order (`runtime.verify.replay`),
a step of Megatron-LM (`runtime.hooks.megatron`), and the list of calls that is proved
(`runtime.program.calls`). A generated script calls its device by itself. Virtual time (`runtime.virtual`) is
no backend: it takes the operations of all devices in one order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from runtime.program.data_parallel import Part
from runtime.program.instructions import Instruction, Run, Send


class Backend(Protocol):
    """One device's side of a program; names, numbers and parts are as in `runtime.program.instructions`."""

    def run(self, block: str, micro_batch: int, *, mode: str = ..., stream: str = ...) -> None:
        """Run a block, once all that it takes is there."""

    def send(
        self, producer: str, consumer: str, micro_batch: int, *, target: int, part: Part | None = None
    ) -> None:
        """Send a tensor that a block of this device made, without waiting for its arrival."""

    def receive(
        self, producer: str, consumer: str, micro_batch: int, *, source: int, part: Part | None = None
    ) -> None:
        """Post the receive of an input of this device's blocks, without waiting for it."""


def interpret(instructions: Iterable[Instruction], backend: Backend) -> None:
    """Call a backend with each instruction in turn.

    >>> from runtime.program.calls import Calls
    >>> calls = Calls()
    >>> interpret([Run("F0", 0), Send("F0", "F1", 0, target=1)], calls)
    >>> print(*calls.instructions)
    run F0 #0 send F0 -> F1 #0 to 1
    """
    for step in instructions:
        if isinstance(step, Run):
            backend.run(step.block, step.micro_batch, mode=step.mode, stream=step.stream)
        elif isinstance(step, Send):
            backend.send(step.producer, step.consumer, step.micro_batch, target=step.target, part=step.part)
        else:
            backend.receive(
                step.producer, step.consumer, step.micro_batch, source=step.source, part=step.part
            )
