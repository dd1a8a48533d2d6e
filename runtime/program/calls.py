"""What a script asks for, recorded but not carried out, so that it is checked before any process waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.program import instructions as program
from runtime.program.instructions import Instruction


class ScriptError(ValueError):
    """A script does not run what its placement says, or was started in the wrong way."""


class Transfer(NamedTuple):
    """What a message carries: the tensor that a block hands to another.

    Attributes:
        producer: The block that made it.
        consumer: The block that takes it.
        micro_batch: Of both.
    """

    producer: str
    consumer: str
    micro_batch: int

    def __str__(self) -> str:
        """Return it as errors name it."""
        return f"{self.producer} -> {self.consumer} of micro-batch {self.micro_batch}"


class Run(NamedTuple):
    """A call of `Device.run`.

    Attributes:
        block: Name of the block.
        micro_batch: Which micro-batch.
        clock_mhz: The clock asked for before it, or None.
    """

    block: str
    micro_batch: int
    clock_mhz: int | None


@dataclass
class Calls:
    """The calls of a script's iteration, written down without being carried out.

    A script may call it like a `Device`; so counts and mistakes are known before any process waits.

    Attributes:
        runs: Blocks, in order.
        sends: What is sent, in order; once for each target.
        receives: What is received, in order.
        instructions: All of these, in order.
    """

    runs: list[Run] = field(default_factory=list)
    sends: list[tuple[Transfer, int]] = field(default_factory=list)
    receives: list[tuple[Transfer, int]] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)

    def run(self, block: str, micro_batch: int, clock_mhz: int | None = None) -> None:
        """Write down a run.

        Raises:
            ScriptError: The clock is none that a GPU can be asked for.
        """
        if clock_mhz is not None and (type(clock_mhz) is not int or clock_mhz < 1):
            asks = f"{block} of micro-batch {micro_batch} asks for {clock_mhz!r} MHz"
            raise ScriptError(f"{asks}; give a whole number above 0")
        self.runs.append(Run(block, micro_batch, clock_mhz))
        self.instructions.append(program.Run(block, micro_batch))

    def send(self, producer: str, consumer: str, micro_batch: int, *, target: int) -> None:
        """Write down a send."""
        self.sends.append((Transfer(producer, consumer, micro_batch), target))
        self.instructions.append(program.Send(producer, consumer, micro_batch, target))

    def receive(self, producer: str, consumer: str, micro_batch: int, *, source: int) -> None:
        """Write down a receive."""
        self.receives.append((Transfer(producer, consumer, micro_batch), source))
        self.instructions.append(program.Receive(producer, consumer, micro_batch, source))

    @property
    def count(self) -> int:
        """Number of calls."""
        return len(self.instructions)

    @property
    def asks_for_clocks(self) -> bool:
        """Whether any block is given a clock."""
        return any(run.clock_mhz is not None for run in self.runs)
