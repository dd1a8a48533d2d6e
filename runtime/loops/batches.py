"""Batches of a training loop of one's own: cut into micro-batches, and read ahead from a DataLoader.

A batch is a pair of inputs and targets, in the forms of `runtime.models.user.reading`; or it is a list with
a tuple (inputs, targets) for each micro-batch. Only processes with a block that reads need one. What the
blocks compute is not known here.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from queue import Full, Queue
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from placements import Kind, Placement
from runtime.models.user.reading import INPUTS, TARGETS, Reading, ReadNames, Sample, put
from runtime.models.user.seeds import digest

READ_AHEAD = 2
"""Batches that a thread reads ahead."""

POLL_S = 0.1

Pair = tuple[Any, Any]
"""Inputs and targets of a micro-batch."""


class BatchError(ValueError):
    """A batch is not what the pipeline's blocks read; the message names the part and the remedy."""


@dataclass(frozen=True)
class FailedBatch:
    """What stands for a batch that could not be read, until a step ends all processes.

    A loop that looks into it before the step is told the reason, too.

    Attributes:
        reason: In one line.
    """

    reason: str

    def __iter__(self) -> Iterator[NoReturn]:
        """Fail with the reason, as a loop that unpacks inputs and targets.

        Raises:
            BatchError: In any case.
        """
        raise BatchError(self.reason)

    def __getitem__(self, key: object) -> NoReturn:
        """Fail with the reason, as a loop that picks the inputs.

        Raises:
            BatchError: In any case.
        """
        raise BatchError(self.reason)


class BatchData:
    """What the blocks of a process read: the batch that was taken last.

    Args:
        placement: What runs where.
        device_index: The process's device in the placement.
        seed: Of all random numbers.
        dtype: Of all floats.
        device: Where tensors are put.
        weighs: Whether losses have weights: then a process with a loss reads the targets of all losses, of
            which its own is a part.
        names: Of the arguments of all blocks' modules, as far as `cut` knows them.
    """

    def __init__(
        self,
        placement: Placement,
        device_index: int,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
        weighs: bool = False,
        names: ReadNames | None = None,
    ) -> None:
        """Find the blocks that read; nothing is taken yet."""
        self._reading = Reading(
            placement, names or {}, dtype, device, lambda reason: BatchError(f"batch: {reason}")
        )
        self.num_graphs = self._reading.num_graphs
        own = {block.name for block in placement.on(device_index) if block.kind is Kind.F}
        self._begins, self._ends = (
            [block for block in readers if block in own] for readers in self._reading.blocks.values()
        )
        self._weighed = self._reading.blocks[TARGETS] if weighs and self._ends else self._ends
        self._seed = seed
        self._first: dict[tuple[str, str], list[tuple[int, ...]]] = {}
        self._read: dict[tuple[str, int], Sample] = {}

    @property
    def is_first(self) -> bool:
        """Whether a block of this process reads inputs."""
        return bool(self._begins)

    @property
    def is_last(self) -> bool:
        """Whether a block of this process computes a loss, for which it reads targets."""
        return bool(self._ends)

    @property
    def reads(self) -> bool:
        """Whether any does."""
        return self.is_first or self.is_last

    def check(self, batch: Any) -> None:
        """Ensure that some block, of this process or of another, reads each name in a batch.

        Raises:
            BatchError: No block does.
        """
        for pair in batch if _has_pairs(batch) else [batch]:
            if isinstance(pair, (tuple, list)) and len(pair) == 2:
                for what, found in zip(self._reading.blocks, pair, strict=True):
                    self._reading.check(found, what)

    def take(self, batch: Any, num_micro_batches: int | None) -> int:
        """Let the blocks read from this batch; return how many micro-batches it has for each of them.

        Args:
            batch: See the module's docstring.
            num_micro_batches: That it must have; None for as many as there are samples for.

        Raises:
            BatchError: It cannot be cut so, lacks what a block reads, has what no block reads, or its tensors
                have other shapes than those of the first batch.
        """
        count = None if num_micro_batches is None else num_micro_batches * self.num_graphs
        pairs = micro_batches(batch, count, self._num_samples())
        if len(pairs) % self.num_graphs:
            raise BatchError(
                f"batch: has {len(pairs)} micro-batches for {self.num_graphs} separate graphs of blocks; "
                f"give a multiple of {self.num_graphs}"
            )
        number = len(pairs) // self.num_graphs
        self._read = {}
        for block in dict.fromkeys((*self._begins, *self._weighed)):
            for n in range(number):
                inputs, targets = pairs[n * self.num_graphs + self._reading.graph_of[block]]
                self._read[block, n] = Sample(
                    self._tensors(inputs, block, INPUTS) if block in self._begins else (),
                    self._tensors(targets, block, TARGETS) if block in self._weighed else (),
                    0,
                )
        return number

    def read(self, block: str, iteration: int, micro_batch: int) -> Sample:
        """Return what a block reads of a micro-batch."""
        seed = digest(self._seed, block, iteration, micro_batch)
        return self._read.get((block, micro_batch), Sample((), (), 0))._replace(seed=seed)

    def _num_samples(self) -> int | None:
        """Return the samples of a micro-batch, as those of the first batch were."""
        found = next((shape for shapes in self._first.values() for shape in shapes if shape), None)
        return found[0] if found else None

    def _tensors(self, found: Any, block: str, what: str) -> tuple[Tensor, ...]:
        values = self._reading.tensors(found, block, what)
        shapes = [tuple(value.shape) for value in values]
        first = self._first.setdefault((block, what), shapes)
        if shapes != first:
            raise BatchError(
                f"batch: the {what} of a micro-batch of {block} are of shapes {shapes}, and were {first} in "
                "the first step, as its messages are; pad or cut them to these"
            )
        return values


def micro_batches(batch: Any, count: int | None, num_samples: int | None = None) -> list[Pair]:
    """Cut a batch into micro-batches of equal size, along dimension 0 of all its tensors.

    Args:
        batch: See the module's docstring.
        count: How many; None for as many as there are samples for.
        num_samples: Of a micro-batch, where `count` is None.

    Raises:
        BatchError: It is of another form, or its samples make no equal micro-batches.

    >>> pairs = micro_batches((torch.arange(4), {"F3": torch.zeros(4, 1)}), 2)
    >>> [(inputs.tolist(), list(targets["F3"].shape)) for inputs, targets in pairs]
    [([0, 1], [2, 1]), ([2, 3], [2, 1])]
    """
    if isinstance(batch, FailedBatch):
        raise BatchError(batch.reason)
    if _has_pairs(batch):
        if count is not None and len(batch) != count:
            raise BatchError(
                f"batch: is a list of {len(batch)} micro-batches instead of {count}; give {count}"
            )
        return list(batch)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        raise BatchError(
            f"batch: is a {type(batch).__name__}{length}; give the pair (inputs, targets), or a list with "
            "such a tuple for each micro-batch"
        )
    sizes = sorted({value.shape[0] if value.dim() else 0 for value in _tensors_in(batch)})
    if len(sizes) != 1:
        raise BatchError(
            f"batch: its tensors have {' and '.join(map(str, sizes)) or 'no'} samples; let dimension 0 of "
            "each be the samples, or give a list with a tuple (inputs, targets) for each micro-batch"
        )
    if count is None:
        count = sizes[0] // num_samples if num_samples and sizes[0] % num_samples == 0 else 0
        if not count:
            raise BatchError(
                f"batch: {sizes[0]} samples make no whole micro-batches of {num_samples}; give a multiple"
            )
    if not sizes[0] or sizes[0] % count:
        raise BatchError(
            f"batch: {sizes[0]} samples make no {count} equal micro-batches; give a multiple of {count}"
        )
    each = sizes[0] // count
    return [(_part(batch[0], n * each, each), _part(batch[1], n * each, each)) for n in range(count)]


def _has_pairs(batch: Any) -> bool:
    """Tell whether a batch is a list with a tuple (inputs, targets) for each micro-batch."""
    is_list = isinstance(batch, list) and bool(batch)
    return is_list and all(isinstance(each, tuple) and len(each) == 2 for each in batch)


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors_in(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors_in(each)


def _part(value: Any, first: int, length: int) -> Any:
    return _mapped(value, lambda tensor: tensor.narrow(0, first, length))


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return a nest of tensors with each changed; what is no tensor stays."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: _mapped(each, function) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(each, function) for each in value)
    return value


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
        seed: Of the shuffling, where the loader has no generator.
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
            for tensor in _tensors_in(batch):
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
            moved = _mapped(batch, lambda tensor: put(tensor, self._device))
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
