"""A DataLoader read ahead by a thread, the same batches on every process that reads.

What a batch is, and how it is cut, it does not know; see `runtime.loops.batches`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from queue import Full, Queue
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from runtime.loops.batches import BatchError, FailedBatch, mapped, tensors_in
from runtime.models.user.reading import put

READ_AHEAD = 2
"""Batches that a thread reads ahead."""

POLL_S = 0.1
"""How often the thread that reads looks whether anybody still wants batches."""


class PrefetchedLoader:
    """A DataLoader read ahead by a thread, on the processes that read; the others get None for each batch.

    Every process iterates it, but only those that read touch the DataLoader and its dataset. These read the
    same batches in the same order: a DataLoader that shuffles and has no generator is given one of `seed`. A
    dataset that draws random numbers should have workers (``num_workers``), which draw their own; in a thread
    of this process it would disturb the draws of the model. A loop that is left early begins the next epoch
    when it is iterated again, as that of a DataLoader.

    What fails in the thread ends no process by itself: it is handed on as a `FailedBatch`, and the next step
    ends all processes with its reason.

    Args:
        loader: Any `torch.utils.data.DataLoader`; it may be None where `reads` is not.
        reads: Whether this process reads.
        collect: Returns the values that all processes give, by process; see
            `runtime.transport.protocol.Transport`.
        seed: Seed of the shuffling, where the loader has no generator.
        device: Where tensors are put ahead.
    """

    def __init__(
        self,
        loader: DataLoader[Any] | None,
        reads: bool,
        collect: Callable[[object], list[Any]],
        seed: int = 0,
        device: torch.device | None = None,
    ) -> None:
        """Begin before the first batch of the first epoch."""
        self._loader, self._reads, self._collect = loader, reads, collect
        self._device = device or torch.device("cpu")
        self._epoch = self._num_done = self._skipped = 0
        self._state: Tensor | None = None
        self._reader: _Reader | None = None
        self._generator: torch.Generator | None = None
        if reads:
            if loader is None:
                raise BatchError("loader: this process reads batches and has no DataLoader; give it one")
            if not isinstance(loader, DataLoader):
                raise BatchError(f"loader: a {type(loader).__name__} is no torch DataLoader; give one")
            self._generator = _generator_of(loader, seed)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch; after `load_state_dict` those that are left of the one begun."""
        self.close()
        if self._num_done and not self._skipped:  # the loop before was left early
            self._draw_anew()
            self._epoch, self._num_done, self._state = self._epoch + 1, 0, None
        skipped, self._skipped = self._skipped, 0
        left = self._agreed(skipped)
        index = 0
        while left is None or index < left:
            batch = self._reader.next() if self._reader is not None else None
            is_end = isinstance(batch, _End)
            if left is None:
                is_end = any(self._collect(is_end))
            elif is_end:
                batch, is_end = FailedBatch(f"the data loader ended {left - index} batches early"), False
            if is_end:
                break
            index += 1
            self._num_done += 1
            yield batch
        self.close()
        # Of several that read all have drawn the same, so that whoever reads after a resume can go on.
        own = None if self._generator is None else self._generator.get_state().numpy().tobytes()
        state = next((each for each in self._collect(own) if each is not None), None)
        self._epoch, self._num_done = self._epoch + 1, 0
        self._state = None if state is None else torch.frombuffer(bytearray(state), dtype=torch.uint8)

    def __len__(self) -> int:
        """Return the batches of an epoch, where this process reads."""
        if self._loader is None or not self._reads:
            raise TypeError("only a process that reads batches knows how many an epoch has")
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the loop has come: epoch, batches handed out, and the generator's state before.

        It is the same on all processes, so that any of them can go on from that of any other.
        """
        return {"epoch": self._epoch, "num_batches": self._num_done, "generator": self._state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the batch after the last one handed out, at the next iteration over it.

        The batches before are skipped without being read, but for an `IterableDataset`.
        """
        self.close()
        self._epoch, self._num_done = state["epoch"], state["num_batches"]
        self._skipped, self._state = self._num_done, state["generator"]
        if self._generator is not None and self._state is not None:
            self._generator.set_state(self._state)

    def close(self) -> None:
        """Stop the thread."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _draw_anew(self) -> None:
        """Leave an epoch for the next: how far the thread has drawn may differ from process to process."""
        if self._generator is not None and self._state is not None:
            self._generator.set_state(self._state)
            self._generator.manual_seed(int(torch.randint(2**62, (1,), generator=self._generator)))

    def _agreed(self, skipped: int) -> int | None:
        """Begin to read; return how many batches there will be, or None if nobody knows beforehand.

        Raises:
            BatchError: The processes that read would not read the same.
        """
        told: tuple[int | None, bytes] | None = None
        if self._reads:
            assert self._loader is not None
            assert self._generator is not None
            if self._state is None or not skipped:
                self._state = self._generator.get_state()
            told = _length(self._loader), self._state.numpy().tobytes()
        found = [each for each in self._collect(told) if each is not None]
        if len(set(found)) > 1:
            what = (
                "are of several lengths" if len({length for length, _ in found}) > 1 else "shuffle otherwise"
            )
            raise BatchError(
                f"loader: the DataLoaders of the processes that read {what}; give all the same dataset, "
                "sizes and generator"
            )
        if self._reads:
            assert self._loader is not None
            self._reader = _Reader(_from(self._loader, self._epoch, skipped), self._device)
        if not found:
            return 0
        length, state = found[0]
        self._state = torch.frombuffer(bytearray(state), dtype=torch.uint8)
        return None if length is None else length - skipped


def _generator_of(loader: DataLoader[Any], seed: int) -> torch.Generator:
    """Return what the order of a loader's batches depends on; give it one if it has none."""
    sampler = getattr(loader, "sampler", None)
    found: torch.Generator | None = loader.generator or getattr(sampler, "generator", None)
    if found is None:
        found = torch.Generator()
        found.manual_seed(seed)
    loader.generator = found
    if getattr(sampler, "generator", found) is None:
        sampler.generator = found  # type: ignore[union-attr]
    return found


def _length(loader: DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _from(loader: DataLoader[Any], epoch: int, skipped: int) -> Callable[[], Iterator[Any]]:
    """Return what begins to read an epoch after some batches."""
    set_epoch = getattr(loader.sampler, "set_epoch", None) if not _is_iterable(loader) else None
    if set_epoch is not None:
        set_epoch(epoch)
    if not skipped:
        return lambda: iter(loader)
    if _is_iterable(loader):
        return lambda: islice(iter(loader), skipped, None)
    rest = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    vars(rest)[name] = _After(getattr(loader, name), skipped)  # a DataLoader lets nobody set it
    if hasattr(rest, "_iterator"):
        vars(rest)["_iterator"] = None
    return lambda: iter(rest)


def _is_iterable(loader: DataLoader[Any]) -> bool:
    return isinstance(loader.dataset, IterableDataset)


class _After:
    """A sampler without its first indices, which are drawn all the same."""

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler, self._skipped = sampler, skipped

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._sampler), self._skipped, None)

    def __len__(self) -> int:
        return max(len(self._sampler) - self._skipped, 0)


class _End(NamedTuple):
    """Stands behind the last batch."""


class _Reader:
    """A thread that reads some batches ahead, and puts them on the device."""

    def __init__(self, begin: Callable[[], Iterator[Any]], device: torch.device) -> None:
        self._begin, self._device = begin, device
        self._queue: Queue[tuple[Any, Any]] = Queue(READ_AHEAD)
        self._stopped = threading.Event()
        self._last: tuple[Any, Any] | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def next(self) -> Any:
        """Return the next batch, a `FailedBatch`, or `_End`."""
        batch, event = self._last or self._queue.get()
        if isinstance(batch, (FailedBatch, _End)):
            self._last = batch, None
        if event is not None:  # the batch was copied on another stream, whose memory it holds
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(event)
            for tensor in tensors_in(batch):
                tensor.record_stream(stream)
        return batch

    def close(self) -> None:
        """Stop."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for batch in self._begin():
                if not self._hand_on(*self._moved(batch)):
                    return
            self._hand_on(_End(), None)
        except Exception as error:  # whatever a dataset raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._hand_on(FailedBatch(f"the data loader failed ({reason})"), None)

    def _moved(self, batch: Any) -> tuple[Any, Any]:
        if self._stream is None:
            return batch, None
        with torch.cuda.stream(self._stream):
            moved = mapped(batch, lambda tensor: put(tensor, self._device))
            return moved, self._stream.record_event()

    def _hand_on(self, batch: Any, event: Any) -> bool:
        """Hand a batch on; tell whether anybody wants more."""
        while not self._stopped.is_set():
            try:
                self._queue.put((batch, event), timeout=POLL_S)
            except Full:
                continue
            return True
        return False
