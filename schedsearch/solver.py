"""What a search asks of a solver: a decision, how hard to try, and two ways to get it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar

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
    """How a device with one block that takes memory and one that gives it back shares its capacity.

    Attributes:
        taker: The block that takes.
        giver: The block that gives the same amount back.
        room: How many times the amount fits. As each block runs the micro-batches in their order, memory
            suffices just if the taker of each micro-batch waits for the giver of the one so many before.
    """

    taker: str
    giver: str
    room: int


def memory_turn(placement: Placement, device: int) -> MemoryTurn | None:
    """Return how a device's memory is shared in turns, or None where it is not so simple."""
    blocks = placement.on(device)
    takers = [block for block in blocks if block.memory_on(device) > 0]
    givers = [block for block in blocks if block.memory_on(device) < 0]
    if placement.free_memory is None or len(takers) != 1 or len(givers) != 1:
        return None
    if any(block.transient for block in blocks):
        return None
    room = placement.free_memory[device] // takers[0].memory_on(device)
    return MemoryTurn(takers[0].name, givers[0].name, room)


@dataclass(frozen=True)
class Effort:
    """How hard to try.

    Attributes:
        work: CP-SAT's deterministic time, about a second each.
        timeout_s: Seconds after which to give up all the same.
        seed: Of the solver's random choices.
    """

    work: float
    timeout_s: float
    seed: int


class Interrupts:
    """Remembers Ctrl-C instead of raising KeyboardInterrupt wherever Python happens to be.

    In the middle of making a query's many thousand terms the exception would be lost in a destructor, or
    become a ctypes error. So whoever is about to wait for a solver looks here, and so does `search` between
    queries. A second Ctrl-C is passed on at once.
    """

    def __init__(self) -> None:
        self._seen = False
        self._handler: Any = None
        self._watchers = 0

    def watch(self) -> None:
        """Begin, if nobody else has; does nothing outside the main thread, which alone gets signals."""
        self._watchers += 1
        if self._watchers > 1:
            return
        self._seen = False
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.getsignal(signal.SIGINT)
            if callable(self._handler):
                signal.signal(signal.SIGINT, self._note)

    def unwatch(self) -> None:
        """End; the last to do so gives the signal back to whoever had it."""
        self._watchers -= 1
        if self._watchers > 0:
            return
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
        self._handler = None

    @property
    def seen(self) -> bool:
        """Whether there was one since `watch`."""
        return self._seen

    def raise_if_seen(self) -> None:
        """Raise KeyboardInterrupt if there was one since `watch`."""
        if self._seen:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            self._handler(number, frame)
        self._seen = True


INTERRUPTS = Interrupts()
"""Of this process; signals are the process's too."""


Result = TypeVar("Result")


def interruptible(solve: Callable[[], Result], stop: Callable[[], None]) -> Result:
    """Return what a solver's call returns, unless Ctrl-C comes first.

    The call runs in a thread, so that this one can look for Ctrl-C. Solvers that take the signal themselves
    lose it when they answer at that moment, so they must be told not to.

    Args:
        solve: What takes long.
        stop: What makes it return soon; may be called several times.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    with ThreadPoolExecutor(1) as executor:
        solving = executor.submit(solve)
        try:
            while not wait([solving], timeout=0.1).done:
                INTERRUPTS.raise_if_seen()
            INTERRUPTS.raise_if_seen()
        except BaseException:
            while not wait([solving], timeout=0.1).done:
                stop()
            raise
        return solving.result()


class Solver(Protocol):
    """Decides whether a repetend exists; see `schedsearch.smt.decide`."""

    def __call__(self, query: Query, timeout_s: float = ..., seed: int = 0) -> tuple[Answer, Repetend | None]:
        """Return the answer, and the repetend when it is YES."""


def portfolio(*solvers: Solver, first_slice_s: float = 0.5) -> Solver:
    """Return a solver that asks several in turn until one knows: first shortly, then as long as they may.

    Args:
        solvers: In the order in which they are asked.
        first_slice_s: Seconds that each gets at first; what is left after that is shared equally.
    """

    def decide(query: Query, timeout_s: float = 60.0, seed: int = 0) -> tuple[Answer, Repetend | None]:
        shortly = min(first_slice_s, timeout_s / len(solvers))
        rest = timeout_s / len(solvers) - shortly
        for given in (shortly, rest):
            for solver in solvers if given > 0 else ():
                answer, repetend = solver(query, timeout_s=given, seed=seed)
                if answer is not Answer.UNKNOWN:
                    return answer, repetend
        return Answer.UNKNOWN, None

    return decide
