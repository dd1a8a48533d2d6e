"""A process that searches the order of the next batch: ``python -m runtime.orders.searching``.

It reads a line of JSON that says what run it is for, and then one for each batch, with the tokens of its
micro-batches; it answers each with the programs of the devices. Times are known for the lengths of the batch
of the run's own order. Of another length they are on the line through the two nearest known ones, and the
memory is that of the shortest known micro-batch that is no shorter. It loads no torch.
"""

from __future__ import annotations

import bisect
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placements import Block, Placement
from runtime.codegen.job import ScriptJob, read_job
from runtime.program.instructions import Programs
from runtime.program.lower import by_lane, lower, orders_of
from runtime.program.prefetch import prefetch_receives
from runtime.program.program_file import read_programs
from schedsearch.schedule import Schedule
from schedsearch.unequal.micro_batches import MicroBatchRow, UnequalBatch, unequal_batch
from schedsearch.unequal.starts import Orders, executed
from schedsearch.unequal.unequal_search import unequal_search

NICE = 10
"""How far the process stands back behind the devices of the run."""


class KnownLengths:
    """What the blocks of a run take and hold in micro-batches of any length.

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
