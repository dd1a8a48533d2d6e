"""The order of each batch, searched in a process of its own while the iteration before runs.

At the end of an iteration the order of the next batch is taken over, if it is there, and that of the batch
after it is asked for. Not known here: how it is searched (`runtime.orders.searching`), and who agrees on it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from runtime.codegen.job import JOB_FILE
from runtime.codegen.script import Script
from runtime.orders.offered import OfferError
from runtime.program.calls import ScriptError
from runtime.program.instructions import Programs, parse_instruction


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
        """Start the process."""
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
            [sys.executable, "-m", "runtime.orders.searching"],
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
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
