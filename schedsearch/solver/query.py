"""What a search asks of a solver: whether there is a repetend of a period, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from threading import Event
from typing import NamedTuple, Protocol

from placements import Placement
from schedsearch.repetend import Repetend


class Answer(Enum):
    """What a solver says to a query; UNKNOWN means that it gave up, never that there is none."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Query:
    """Is there a repetend like this?

    Attributes:
        placement: What runs where, without optimizer blocks; its capacities count.
        micro_batches: Micro-batches per repetend.
        period: Ticks.
        span: Longest time from first start to last end of one round's micro-batches, in ticks; None for any.
        latency: Longest time from first start to last end of each single micro-batch; None for any.
    """

    placement: Placement
    micro_batches: int
    period: int
    span: int | None = None
    latency: int | None = None


class MemoryTurn(NamedTuple):
    """How a device with one block that allocates memory and one that releases it shares its capacity.

    Attributes:
        allocates: The block that allocates.
        releases: The block that releases the same amount.
        room: How many times the amount fits. As each block runs the micro-batches in their order, memory
            suffices just if each micro-batch's allocation waits for the release of the one so many before.
    """

    allocates: str
    releases: str
    room: int


def memory_turn(placement: Placement, device: int) -> MemoryTurn | None:
    """Return how a device's memory is shared in turns, or None where it is not so simple."""
    blocks = placement.on(device)
    allocating = [block for block in blocks if block.memory_on(device) > 0]
    releasing = [block for block in blocks if block.memory_on(device) < 0]
    if placement.free_memory is None or len(allocating) != 1 or len(releasing) != 1:
        return None
    if any(block.transient for block in blocks):
        return None
    room = placement.free_memory[device] // allocating[0].memory_on(device)
    return MemoryTurn(allocating[0].name, releasing[0].name, room)


Spend = Callable[[float], None]
"""Is told how much work was done, as by `schedsearch.solver.effort.Effort.spend`."""


def uncounted(work: float) -> None:
    """Do not count work."""


class Solver(Protocol):
    """Decides whether a repetend exists."""

    def __call__(
        self,
        query: Query,
        timeout_s: float = ...,
        seed: int = 0,
        work: float = math.inf,
        spend: Spend = uncounted,
    ) -> tuple[Answer, Repetend | None]:
        """Return the answer, and the repetend when it is YES.

        Args:
            query: What is asked.
            timeout_s: Seconds after which the answer is UNKNOWN.
            seed: Of the solver's random choices.
            work: After which it is UNKNOWN, too, whatever the machine; about a second each.
            spend: Told how much of it was done.

        Raises:
            KeyboardInterrupt: The solver was interrupted from the keyboard.
        """


class LimitedSolver(Protocol):
    """A `Solver` that can be stopped by another thread."""

    def __call__(
        self,
        query: Query,
        timeout_s: float = ...,
        seed: int = 0,
        work: float = math.inf,
        spend: Spend = uncounted,
        unwanted: Event | None = None,
    ) -> tuple[Answer, Repetend | None]:
        """Return what a `Solver` does.

        Args:
            query: As for a `Solver`.
            timeout_s: Likewise.
            seed: Likewise.
            work: Likewise.
            spend: Likewise.
            unwanted: Set by another thread once no answer is needed any more.

        Raises:
            KeyboardInterrupt: The solver was interrupted from the keyboard.
        """


def has_room(query: Query) -> bool:
    """Return whether each block fits into the period: one that does not would run into itself."""
    return all(block.time <= query.period for block in query.placement.blocks)
