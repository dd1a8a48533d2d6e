"""Streams of a device beside the one that computes: blocks that are given away, whose tensors come later.

On a GPU each is a CUDA stream, and tensors come with an event that their taker's stream waits for.
On the CPU each is a thread that runs its blocks one after the other, and its taker waits for the block. The
stream that computes is the script itself: on the CPU a block of another stream begins at the earliest when
the script comes to it, so after the computing block before it. Not known here: what blocks do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue

import torch
from torch import Tensor

Made = Mapping[str, Tensor]
"""Tensors that a block made, by the block that takes them."""

Later = Callable[[], Made]
"""Waits for a block, or lets the current CUDA stream wait, and returns its tensors."""


class ThreadStreams:
    """A thread for each stream, which begins with its first block and ends with the iteration."""

    def __init__(self) -> None:
        self._jobs: dict[str, SimpleQueue[tuple[Callable[[], Made], Future[Made]] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._given: list[Future[Made]] = []

    def run(self, stream: str, job: Callable[[], Made]) -> Later:
        """Run a block behind the stream's others; the job waits for its own inputs."""
        if stream not in self._jobs:
            self._jobs[stream] = SimpleQueue()
            arguments = self._jobs[stream], torch.get_num_threads()
            self._threads.append(threading.Thread(target=_work, args=arguments, name=stream, daemon=True))
            self._threads[-1].start()
        future: Future[Made] = Future()
        self._given.append(future)
        self._jobs[stream].put((job, future))
        return future.result

    def computed(self, made: Made) -> Later:
        """Return the tensors of a block of the current stream, for takers of any stream."""
        return lambda: made

    def finish(self) -> None:
        """Wait until all streams are empty, and raise the first failure; blocks may be given again."""
        for future in self._given:
            future.result()
        for jobs in self._jobs.values():
            jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._jobs, self._threads, self._given = {}, [], []


def _work(jobs: SimpleQueue[tuple[Callable[[], Made], Future[Made]] | None], num_threads: int) -> None:
    """Run jobs one after the other; after a failure nothing more."""
    torch.set_num_threads(num_threads)  # OpenMP keeps it for each thread, and results depend on it.
    failure: BaseException | None = None
    while (task := jobs.get()) is not None:
        job, future = task
        try:
            if failure is not None:
                raise failure
            future.set_result(job())
        except BaseException as error:
            failure = error
            future.set_exception(error)


class CudaStreams:
    """A CUDA stream for each stream; the script gives all their work to the GPU and waits for none."""

    def __init__(self) -> None:
        self._streams: dict[str, torch.cuda.Stream] = {}

    def run(self, stream: str, job: Callable[[], Made]) -> Later:
        """Give the GPU a block."""
        if stream not in self._streams:
            self._streams[stream] = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._streams[stream]):
            return self.computed(job())

    def computed(self, made: Made) -> Later:
        """Let a taker's stream wait for the current one's work so far, and keep the memory it reads."""
        event = torch.cuda.current_stream().record_event()

        def later() -> Made:
            current = torch.cuda.current_stream()
            current.wait_event(event)
            for tensor in made.values():
                tensor.record_stream(current)
            return made

        return later

    def finish(self) -> None:
        """Let the computing stream, which is waited for, wait for all."""
        for stream in self._streams.values():
            torch.cuda.current_stream().wait_stream(stream)


SideStreams = ThreadStreams | CudaStreams
"""Streams beside ``compute``."""


def side_streams(device: torch.device) -> SideStreams:
    """Return new ones for a device whose tensors live there."""
    return CudaStreams() if device.type == "cuda" else ThreadStreams()
