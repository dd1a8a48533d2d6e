"""Requests that wait for a job's next plan: they sleep until there is news of it, and need no thread."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

from runtime.server.answers import DeployedPlanAnswer
from runtime.server.errors import NotYetError
from runtime.server.service import Service

MOST_WAIT_S = 60.0
"""How long a request may wait."""

_LEAST_WAIT_S = 1e-3
"""Clocks that differ a little must not make a request that waits ask without a pause."""

Answer = TypeVar("Answer")


class News:
    """Wakes the requests that wait for news of a job.

    Args:
        loop: In which they wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for nothing yet."""
        self._loop = loop
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self.is_over = False

    def tell(self, job: str) -> None:
        """Wake all that wait for a job; from any thread."""
        self._loop.call_soon_threadsafe(self._wake, job)

    def close(self) -> None:
        """Wake all that wait for anything, and let nobody wait any more."""
        self.is_over = True
        for job in self._waiting:
            self._wake(job)

    @contextmanager
    def of(self, job: str) -> Iterator[asyncio.Event]:
        """Give what is set at each news of a job."""
        event = asyncio.Event()
        self._waiting[job].add(event)
        try:
            yield event
        finally:
            self._waiting[job].discard(event)
            if not self._waiting[job]:
                del self._waiting[job]

    def _wake(self, job: str) -> None:
        for event in self._waiting.get(job, ()):
            event.set()


async def at_once(alone: threading.RLock, answer: Callable[[], Answer]) -> Answer:
    """Answer here what takes less time than going to a thread, unless it would wait for who writes."""
    if not alone.acquire(blocking=False):
        return await run_in_threadpool(answer)
    try:
        return answer()
    finally:
        alone.release()


async def deployed(
    service: Service, news: News, job: str, device: int | None, newer_than: int, wait_s: float
) -> DeployedPlanAnswer | None:
    """Return what `Deployments.deployed` does, as soon as there is a plan, or None after a time without.

    Raises:
        RequestError: There is no such job or device, or the job has failed, or is not ready by then.
    """
    loop, plans = asyncio.get_running_loop(), service.deployments
    end_s = loop.time() + wait_s
    with news.of(job) as event:
        while True:
            event.clear()
            left_s = 0.0 if news.is_over else end_s - loop.time()
            try:
                found = await at_once(service.alone, lambda: plans.deployed(job, device, newer_than))
            except NotYetError:
                if left_s <= 0:
                    raise
                found = None
            if found is not None or left_s <= 0:
                return found
            due_s = max(plans.due_in_s(job), _LEAST_WAIT_S)
            await _wait(event, min(left_s, due_s))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
