"""Processes that search side by side, and exchange findings between rounds of counted work.

The caller's process leads: it searches as it does alone, whatever the others find, so that a team never ends
with less. Each helper has a seed of its own, and takes over what all others found. At the end of a round the
leader reads the helpers' findings of the round before: it hardly waits, and no clock decides what it reads.
A helper that dies is left out. The module does not know what a finding is.

Helpers are processes of this machine, or tasks of Ray where RAY_ADDRESS is set.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing import ProcessError
from multiprocessing.connection import Client, Connection, Listener
from types import ModuleType
from typing import Any, Protocol

import cloudpickle

from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS, Ending, usable_cores
from schedsearch.solver.side_by_side import RayAddressError, ray_cluster

log = logging.getLogger(__name__)

_CALL = "SCHEDSEARCH_HELPER"
"""Environment variable of a helper: host, port, key and number, with colons between."""

_LOOK_S = 0.02
"""Seconds between two looks for a message."""

_MAX_PER_CORE = 4
"""Most workers of this machine for each core."""

_CONNECT_S = 30.0
"""Seconds after which a helper that has not connected is left out."""

_END_S = 5.0
"""Seconds in which a helper ends that has no connection any more."""

_AFTER_INTERRUPT_S = 5.0
"""Longest wait for the findings of helpers after a Ctrl-C."""


class Member(Protocol):
    """The part of a team that a search sees."""

    leads: bool
    """Whether its search goes on as it does alone."""

    left_s: float
    """Seconds that were left when it began."""

    def swap(self, finding: Any) -> list[Any]:
        """Give a round's findings; return the findings of the other workers."""


Search = Callable[[Any, Member], Any]
"""The search of a helper: a function of a module, of a problem and its place in the team. It returns its last
findings."""


class _Process:
    """A helper that is a process of this machine, with a session of its own: a Ctrl-C is passed on."""

    def __init__(self, call: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        code = f"from {__name__} import help_out; help_out()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, _CALL: call, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )

    def why_dead(self, wait_s: float = 0.0) -> str:
        """Return how it ended, for which it waits; empty while it runs."""
        try:
            code = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return ""
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return f"signal {-code}" if code < 0 else f"exit code {code}: {last[:160]}"

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


class _RayTask:
    """A helper that is a task of Ray."""

    def __init__(self, ray: ModuleType, call: str) -> None:
        self._ray, self._reference = ray, ray.remote(num_cpus=1, max_retries=0)(help_out).remote(call)

    def why_dead(self, wait_s: float = 0.0) -> str:
        """Return how it ended, for which it waits; empty while it runs or waits for a core."""
        done, _ = self._ray.wait([self._reference], timeout=wait_s)
        try:
            return "it was done" if self._ray.get(done) else ""
        except Exception as error:  # of Ray, or of the search itself
            return str(error).strip().rpartition("\n")[2][:160]

    def interrupt(self) -> None:
        self._ray.cancel(self._reference)

    def end(self) -> None:
        self._ray.cancel(self._reference, force=True)


class _Mail:
    """A connection that is read as messages come: two processes that send never wait for each other."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._came = connection, queue.SimpleQueue[Any]()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                self._came.put(self._connection.recv())
        except (EOFError, OSError) as error:
            self._came.put(error)

    def send(self, message: Any) -> None:
        with suppress(OSError):  # the other is gone, which is seen when its messages are taken
            self._connection.send(message)

    def take(self, wait_s: float | None = _LOOK_S) -> list[Any]:
        """Return the next message; none if none comes within some seconds.

        Raises:
            EOFError, OSError: The other process is gone.
        """
        try:
            message = self._came.get(timeout=wait_s)
        except queue.Empty:
            return []
        if isinstance(message, EOFError | OSError):
            raise message
        return [message]


class _Helper:
    """A helper and its messages.

    Attributes:
        finding: Its last findings that are to be known; None before the first.
        rounds: Number of rounds whose findings were read.
    """

    def __init__(self, number: int, runs: _Process | _RayTask) -> None:
        self.number, self.runs, self.began = number, runs, time.monotonic()
        self.mail: _Mail | None = None
        self.finding: Any = None
        self.rounds, self.is_done = 0, False

    def is_behind(self, rounds: float) -> bool:
        """Return whether findings of the first `rounds` rounds, or at 0 the connection, are missing."""
        return not self.is_done and (self.mail is None or self.rounds < rounds)

    def look(self) -> None:
        """Look for its connection or its next message for a moment, and whether it is lost."""
        why = ""
        if self.mail is None:
            time.sleep(_LOOK_S)
            if time.monotonic() - self.began > _CONNECT_S:
                why = "it did not begin, for want of a core or of a way to this machine"
        else:
            try:
                for message in self.mail.take():
                    self.is_done, self.finding = message
                    self.rounds += 1
                    return
            except (EOFError, OSError):
                why = self.runs.why_dead(_END_S) or "its connection is gone"
        if why := self.runs.why_dead() or why:
            self._lose(why)

    def _lose(self, why: str) -> None:
        log.warning("search.workers: worker %s is left out, the others go on: %s", self.number + 1, why)
        self.is_done = True

    def tell(self, findings: list[Any] | None) -> None:
        """Send the findings of the others; None where no more come."""
        if self.mail is not None and not self.is_done:
            self.mail.send(findings)


class Leader:
    """The member that starts the helpers, and ends them; a context.

    Args:
        search: Search of each helper.
        problems: Problem of each helper; all but the first of a team.
        effort: Effort of the leader's own search, whose time limit holds for waiting.

    Raises:
        RayAddressError: There is no cluster at ``RAY_ADDRESS``, or it has too few free cores.
        ValueError: There are too many workers for this machine.
    """

    leads, left_s = True, math.inf

    def __init__(self, search: Search, problems: Sequence[Any], effort: Effort) -> None:
        """Start the helpers; they connect while the leader goes on."""
        self._effort, self._rounds = effort, 0
        self._work = [cloudpickle.dumps((search, problem)) for problem in problems]
        start: Callable[[str], _Process | _RayTask] = _Process
        host, self._until_end = "127.0.0.1", ExitStack()
        if os.environ.get("RAY_ADDRESS"):
            ray = self._until_end.enter_context(ray_cluster())
            if (free := int(ray.available_resources().get("CPU", 0))) < len(problems):
                self._until_end.close()
                need = f"{len(problems) + 1} need {len(problems)} free cores of Ray, which has {free}"
                raise RayAddressError(f"search.workers: {need}; give fewer, or start more nodes")
            host, start = ray.util.get_node_ip_address(), partial(_RayTask, ray)
        elif len(problems) >= (most := _MAX_PER_CORE * usable_cores()):
            raise ValueError(f"search.workers: {len(problems) + 1} are too many here; give up to {most}")
        key = secrets.token_bytes(16)
        self._listener = Listener((host, 0), backlog=len(problems), authkey=key)
        where = f"{host}:{self._listener.address[1]}:{key.hex()}"
        self._helpers = [_Helper(i, start(f"{where}:{i}")) for i in range(1, len(problems) + 1)]
        threading.Thread(target=self._connect, daemon=True).start()

    def _connect(self) -> None:
        for _ in self._helpers:
            try:
                connection = self._listener.accept()
                number = connection.recv()
                connection.send(self._effort.left_s)
                connection.send_bytes(self._work[number - 1])
                self._helpers[number - 1].mail = _Mail(connection)
            except (EOFError, OSError, ProcessError):  # it died, or all is over
                continue

    def swap(self, finding: Any) -> list[Any]:
        """Send a round's findings to all helpers; return their findings of the round before.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        for helper in self._helpers:
            if not self._wait(helper, self._rounds, time.monotonic() + self._effort.left_s):
                raise OutOfTimeError
        self._rounds += 1
        for helper in self._helpers:
            others = [other.finding for other in self._helpers if other is not helper]
            helper.tell([news for news in (finding, *others) if news is not None])
        return self._known

    def finish(self, ending: Ending, beyond_s: float) -> list[Any]:
        """Return the last findings of the helpers.

        After a limit or a Ctrl-C, of which the helpers are told, it waits for them; otherwise the findings of
        the round before are the last.

        Args:
            ending: The end of the leader's own search; of the waiting, too, if there is a Ctrl-C.
            beyond_s: Seconds to wait beyond the time limit.
        """
        wait_s = _AFTER_INTERRUPT_S if ending.interrupted else self._effort.left_s + beyond_s
        is_cut = ending.interrupted or ending.out_of_work or ending.out_of_time
        end = time.monotonic() + (wait_s if is_cut else 0.0)
        with INTERRUPTS.answered() as waiting:
            for helper in self._helpers:  # one that is not connected yet is told when it is
                self._wait(helper, 0, end)
                helper.tell(None)
                if ending.interrupted and not helper.is_done:
                    helper.runs.interrupt()
            for helper in self._helpers:
                self._wait(helper, math.inf, end)
        ending.interrupted |= waiting.interrupted
        return self._known

    def _wait(self, helper: _Helper, rounds: float, end: float) -> bool:
        """Wait until time `end` for the findings of the first `rounds` rounds; return whether all came."""
        while helper.is_behind(rounds) and time.monotonic() < end:
            helper.look()
            INTERRUPTS.raise_if_seen()
        return not helper.is_behind(rounds)

    @property
    def _known(self) -> list[Any]:
        """The last findings of the helpers that were read."""
        return [helper.finding for helper in self._helpers if helper.finding is not None]

    def __enter__(self) -> Leader:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all helpers."""
        for helper in self._helpers:
            helper.runs.end()
        self._listener.close()
        self._until_end.close()


class _Follower:
    """A helper's own side: it waits for the others at the end of each round."""

    leads = False

    def __init__(self, mail: _Mail, left_s: float) -> None:
        self._mail, self._is_alone, self.left_s = mail, False, left_s

    def swap(self, finding: Any) -> list[Any]:
        """Send a round's findings; return the leader's, and the helpers' of the round before.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C.
        """
        if self._is_alone:
            return []
        self._mail.send((False, finding))
        while not (messages := self._mail.take()):
            INTERRUPTS.raise_if_seen()
        self._is_alone = messages == [None]
        return messages[0] or []


def help_out(call: str = "") -> None:
    """Be a helper, in a process that a leader started."""
    host, port, key, number = (call or os.environ[_CALL]).split(":")
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    with Client((host, int(port)), authkey=bytes.fromhex(key)) as connection:
        connection.send(int(number))
        left_s, (search, problem) = connection.recv(), cloudpickle.loads(connection.recv_bytes())
        mail = _Mail(connection)
        mail.send((True, search(problem, _Follower(mail, left_s))))
        with suppress(EOFError, OSError):  # the leader ends this process when it has read all
            while True:
                mail.take(None)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
