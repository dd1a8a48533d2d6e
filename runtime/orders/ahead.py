"""The order of each batch, searched in a process of its own while the iteration before runs.

At the end of an iteration the order of the next batch is taken over, if it is there, and that of the batch
after it is asked for. The process, ``python -m runtime.orders.ahead``, reads a line of JSON with its run, and
then one for each batch, with the tokens of its micro-batches; it answers each with the programs of the
devices. Times are known for the lengths of the batch of the run's own order. Of another length they are on
the line through the two nearest known ones, and the memory is that of the shortest known micro-batch that is
no shorter. It loads no torch.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from placements import Block, Placement
from runtime.codegen.job import JOB_FILE, ScriptJob, read_job
from runtime.codegen.script import Script
from runtime.orders.offered import OfferError
from runtime.program.calls import ScriptError
from runtime.program.instructions import Programs, parse_instruction
from runtime.program.lower import by_lane, lower, orders_of
from runtime.program.prefetch import prefetch_receives
from runtime.program.program_file import read_programs
from schedsearch.schedule import Schedule
from schedsearch.unequal.micro_batches import MicroBatchRow, UnequalBatch, unequal_batch
from schedsearch.unequal.starts import Orders, executed
from schedsearch.unequal.unequal_search import unequal_search

NICE = 10
"""How far the process stands back behind the devices of the run."""


class OrderAhead:
    """Programs of batches whose micro-batches differ; a `runtime.orders.offered.ProgramSource`.

    Attributes:
        process: The process that searches.

    Args:
        script: Script of the run's own order.
        tokens_of: Returns the lengths of the micro-batches of an iteration.
        work: Units of work for each batch; the end of an iteration then waits for the order.
        time_ms: Or how long each search may take; an order that is not there in time is not run.
        ahead: Blocks of its device by which a receive is posted early.

    Raises:
        ScriptError: The run's micro-batches do not differ.
    """

    def __init__(
        self,
        script: Script,
        tokens_of: Callable[[int], Sequence[int]],
        *,
        work: float | None = None,
        time_ms: float | None = None,
        ahead: int = 1,
    ) -> None:
        assert (work is None) != (time_ms is None)
        if script.left_out:
            raise ScriptError(
                "order_ahead: knows times of any length, but not which micro-batches leave out a block; use "
                "the scripts' order alone"
            )
        if not script.batch or script.path is None:
            raise ScriptError(
                "order_ahead: is for micro-batches that differ in time; make the scripts with "
                "search.micro_batches and runtime.sequence_lengths, or leave it out"
            )
        self._script, self._tokens_of, self._waits = script, tokens_of, work is not None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime.orders.ahead"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._asked: int | None = None
        self._is_over = False
        threading.Thread(target=self._read, daemon=True).start()
        self._tell(
            job=str(script.path.with_name(JOB_FILE)),
            tokens=list(tokens_of(0)),
            work=work,
            time_s=None if time_ms is None else time_ms / 1000,
            ahead=ahead,
        )

    def __call__(self, iteration: int) -> Programs | None:
        """Return the programs of an iteration if they are there, and ask for those of the next.

        Raises:
            OfferError: The search found none, did not end in time, or its process is gone.
        """
        if self._is_over:
            return None
        try:
            return self._answer(iteration)
        finally:
            if self._asked is None and not self._is_over:
                self._asked = iteration + 1
                self._tell(iteration=iteration + 1, tokens=list(self._tokens_of(iteration + 1)))

    def _answer(self, iteration: int) -> Programs | None:
        if self._asked is None:
            return None
        try:
            answer = self._answers.get(block=self._waits)
        except Empty:
            raise OfferError("that was searched ahead is not there yet") from None
        if answer is None:
            self._is_over = True
            code = self.process.wait()
            raise OfferError(f"cannot be searched any more: the process that did ended with {code}")
        asked, self._asked = self._asked, None
        if "error" in answer:
            raise OfferError(f"was not found: {answer['error']}")
        if asked != iteration:
            raise OfferError("that was searched ahead came too late")
        instructions = tuple(tuple(map(parse_instruction, of)) for of in answer["programs"])
        script = self._script
        return Programs(script.placement, script.num_micro_batches, instructions, batch=script.batch)

    def _tell(self, **data: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # that it is gone is known from its answers
            self.process.stdin.write(json.dumps(data) + "\n")
            self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def __enter__(self) -> OrderAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()


class KnownLengths:
    """Times and memory of the blocks of a run in micro-batches of any length.

    Args:
        placement: With one decision, whose choices are micro-batches.
        batch: The choice of each micro-batch of the run's own order.
        tokens: The length of each.
    """

    def __init__(self, placement: Placement, batch: Sequence[int], tokens: Sequence[int]) -> None:
        """Take the times of the known lengths, and their mean where a length comes several times."""
        found: dict[int, list[Mapping[str, Block]]] = {}
        for choice, length in zip(batch, tokens, strict=True):
            found.setdefault(length, []).append(placement.as_run((choice,)).by_name)
        self._lengths = sorted(found)
        self._runs = [found[length] for length in self._lengths]
        self._placement = replace(placement, decisions=())

    def batch(self, tokens: Sequence[int]) -> UnequalBatch:
        """Return the batch of micro-batches of these lengths."""
        return unequal_batch(self._placement, self._rows(tokens), len(tokens))

    def _rows(self, tokens: Sequence[int]) -> Iterator[MicroBatchRow]:
        for n, length in enumerate(tokens):
            longer = self._runs[min(bisect.bisect_left(self._lengths, length), len(self._lengths) - 1)]
            for name in self._placement.by_name:
                time_ms = self._time(name, length) * self._placement.tick_ms
                memory = longer[0][name].memory
                yield MicroBatchRow(n, name, time_ms, memory if isinstance(memory, int) else None)

    def _time(self, name: str, length: int) -> int:
        """Return the ticks of a block."""
        times = [sum(run[name].time for run in runs) / len(runs) for runs in self._runs]
        if len(times) == 1:
            return max(1, round(times[0] * length / self._lengths[0]))
        i = min(max(bisect.bisect_left(self._lengths, length), 1), len(times) - 1)
        low, high = self._lengths[i - 1 : i + 1]
        slope = (times[i] - times[i - 1]) / (high - low)
        return max(1, round(times[i - 1] + slope * (length - low)))


class BatchOrders:
    """The orders of one batch after the other, each search beginning with the order before.

    Args:
        job: Job of the run.
        tokens: Lengths of the batch of its own order.
        own: Its own programs, if they are known.
        ahead: Blocks of its device by which a receive is posted early.
    """

    def __init__(self, job: ScriptJob, tokens: Sequence[int], own: Programs | None, ahead: int) -> None:
        """Begin with the run's own order."""
        self._job, self._ahead = job, ahead
        self._known = KnownLengths(job.placement, job.batch, tokens)
        self._last: tuple[Sequence[int], Orders] | None = None
        if own is not None:
            self._last = tokens, by_lane(own.placement, orders_of(own))

    def programs(self, tokens: Sequence[int], *, work: float | None, time_s: float | None) -> Programs:
        """Return the programs of a batch.

        Args:
            tokens: Length of each micro-batch.
            work: Units of work of the search.
            time_s: Or how long it may take.

        Raises:
            ValueError: No order fits the memory.
        """
        batch = self._known.batch(tokens)
        found = unequal_search(
            batch, work_limit=work, time_limit_s=time_s, begin_with=self._begin_with(batch, tokens)
        ).schedule
        if found is None:
            raise ValueError("no order of the next batch fits the memory")
        self._last = tokens, found.lane_orders
        programs = replace(lower(found, is_batch=bool(batch.chosen)), placement=self._job.placement)
        return prefetch_receives(replace(programs, batch=self._job.batch), self._ahead)

    def _begin_with(self, batch: UnequalBatch, tokens: Sequence[int]) -> Schedule | None:
        """Return the last order, each micro-batch in the place of the one that was as long among its own."""
        if self._last is None or not batch.chosen:
            return None
        before, orders = self._last
        numbers = [0] * len(tokens)
        for old, new in zip(_by_length(before), _by_length(tokens), strict=True):
            numbers[old] = new
        return executed(batch, orders, numbers)


def _by_length(tokens: Sequence[int]) -> list[int]:
    return sorted(range(len(tokens)), key=lambda n: tokens[n])


def main() -> None:
    """Answer until the other end is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    os.nice(NICE)
    given: dict[str, Any] = json.loads(sys.stdin.readline())
    path = Path(given["job"])
    own_path = path.with_name("programs.json")
    own = read_programs(own_path) if own_path.is_file() else None
    orders = BatchOrders(read_job(path), given["tokens"], own, given["ahead"])
    for line in sys.stdin:
        asked = json.loads(line)
        answer = {"iteration": asked["iteration"]}
        try:
            programs = orders.programs(asked["tokens"], work=given["work"], time_s=given["time_s"])
            answer["programs"] = [[str(each) for each in of] for of in programs.instructions]
        except ValueError as error:
            answer["error"] = str(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
