"""Batches: cut into equal micro-batches, read ahead in the loader's own order, resumed at the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from placements.shapes import k_shape, v_shape
from runtime.loops.batches import BatchData, BatchError, FailedBatch, micro_batches
from runtime.loops.prefetched_loader import PrefetchedLoader

CPU = torch.device("cpu")


class Numbers(Dataset[Tensor]):
    """The numbers from 0 on; takes note of those that were read."""

    def __init__(self, count: int) -> None:
        self.count, self.read = count, list[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        self.read.append(index)
        return torch.tensor(index)


class Stream(IterableDataset[int]):
    """The numbers from 0 to 5, of which nobody knows beforehand how many there are."""

    def __iter__(self) -> Iterator[int]:
        yield from range(6)


def alone(loader: DataLoader[Any], seed: int = 0) -> PrefetchedLoader:
    """Return a loader of the only process."""
    return PrefetchedLoader(loader, True, lambda value: [value], seed)


def shuffled(dataset: Dataset[Tensor]) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(2))


def test_batches_come_in_the_loaders_own_order() -> None:
    """Also in later epochs."""
    ours, theirs = alone(shuffled(Numbers(10))), shuffled(Numbers(10))
    for _ in range(3):
        assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]
    assert len(ours) == 4


def test_after_a_loop_that_was_left_early_comes_the_next_epoch() -> None:
    """The same one however far the thread had read ahead."""

    def epochs(wait: bool) -> list[list[int]]:
        loader = alone(shuffled(Numbers(10)))
        iterator = iter(loader)
        next(iterator)
        while wait and loader._reader is not None and not loader._reader._queue.full():
            pass
        return [batch.tolist() for batch in loader]

    assert epochs(True) == epochs(False)
    assert sorted(number for batch in epochs(True) for number in batch) == list(range(10))


@pytest.mark.parametrize("num_done", [1, 3, 4, 6])
def test_a_loader_goes_on_with_the_very_next_batch(num_done: int) -> None:
    """Batches that were done are not read again."""
    whole = alone(shuffled(Numbers(10)))
    batches = [(epoch, batch.tolist()) for epoch in range(3) for batch in whole]
    first, found = alone(shuffled(Numbers(10))), 0
    state: dict[str, Any] = {}
    for _ in range(2):
        for _ in first:
            found += 1
            if found == num_done:
                state = first.state_dict()
    dataset = Numbers(10)
    second = alone(shuffled(dataset))
    second.load_state_dict(state)
    left = [batch.tolist() for _ in range(3 - state["epoch"]) for batch in second]
    assert left == [batch for _, batch in batches[num_done:]]
    assert len(dataset.read) == sum(map(len, left))


def test_a_loader_without_generator_is_shuffled_by_the_seed() -> None:
    """So processes that read read the same, whatever their own random numbers are."""

    def read(seed: int) -> list[list[int]]:
        torch.rand(3)
        loader = DataLoader(Numbers(12), batch_size=4, shuffle=True)
        return [batch.tolist() for batch in alone(loader, seed)]

    assert read(1) == read(1) != read(2)


def test_a_stream_is_resumed_by_reading_it() -> None:
    loader = alone(DataLoader(Stream(), batch_size=2))
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    loader.load_state_dict({"epoch": 1, "num_batches": 2, "generator": loader.state_dict()["generator"]})
    assert [batch.tolist() for batch in loader] == [[4, 5]]


def test_a_process_that_reads_nothing_touches_no_dataset() -> None:
    """It gets None for each batch, though its own loader is missing."""
    begun, ended = torch.Generator().get_state(), torch.Generator().manual_seed(1).get_state()
    told = [[None, (3, begun.numpy().tobytes())], [None, ended.numpy().tobytes()]]
    loader = PrefetchedLoader(None, False, lambda value: told.pop(0))
    assert list(loader) == [None, None, None]
    assert torch.equal(loader.state_dict()["generator"], ended), "it knows where those that read stand"
    with pytest.raises(TypeError, match="only a process that reads"):
        len(loader)


def test_what_is_no_data_loader_is_refused() -> None:
    with pytest.raises(BatchError, match="^loader: a list is no torch DataLoader; give one$"):
        PrefetchedLoader([1], True, lambda value: [value])  # type: ignore[arg-type]


def test_loaders_that_differ_are_refused() -> None:
    loader = PrefetchedLoader(None, False, lambda value: [(3, b"one"), (3, b"other")])
    with pytest.raises(BatchError, match="processes that read shuffle otherwise; give all the same dataset"):
        next(iter(loader))


def test_what_fails_is_handed_on_and_its_thread_ends() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> Tensor:
            if index == 4:
                raise OSError("disk\nlost")
            return super().__getitem__(index)

    before = threading.active_count()
    *fine, failed = list(alone(DataLoader(Broken(6), batch_size=2)))[:3]
    assert [batch.tolist() for batch in fine] == [[0, 1], [2, 3]]
    assert failed == FailedBatch("the data loader failed (OSError: disk lost)")
    for look_into in (lambda: tuple(failed), lambda: failed[0]):  # as a loop does before its step
        with pytest.raises(BatchError, match=r"^the data loader failed \(OSError: disk lost\)$"):
            look_into()
    assert threading.active_count() == before
    with pytest.raises(BatchError, match=r"^the data loader failed \(OSError: disk lost\)$"):
        micro_batches(failed, 2)


def test_a_list_of_micro_batches_is_taken_as_it_is() -> None:
    """A DataLoader makes lists of pairs of samples too: [inputs, targets], which are no micro-batches."""
    pairs = [(torch.ones(2), torch.zeros(2)), (torch.ones(3), torch.zeros(3))]
    assert micro_batches(pairs, 2) == pairs
    (one,) = DataLoader(TensorDataset(torch.arange(4), torch.arange(4)), batch_size=4)
    assert [inputs.tolist() for inputs, _ in micro_batches(one, 2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (None, r"is a NoneType; give the pair \(inputs, targets\)"),
        ([torch.ones(2)] * 3, "is a list of 3; give the pair"),
        ([(torch.ones(2), None)] * 3, "is a list of 3 micro-batches instead of 2; give 2"),
        ((torch.ones(4), torch.ones(6)), "its tensors have 4 and 6 samples"),
        ((None, None), "its tensors have no samples"),
        ((torch.ones(5), None), "5 samples make no 2 equal micro-batches; give a multiple of 2"),
    ],
)
def test_other_batches_are_refused(batch: object, reason: str) -> None:
    with pytest.raises(BatchError, match=f"^batch: {reason}") as error:
        micro_batches(batch, 2)
    assert "\n" not in str(error.value)


def test_blocks_read_their_own_part() -> None:
    """Of inputs and targets by block, as their type; a process may have only what its blocks read."""
    data = BatchData(k_shape(2), 0, 3, torch.float64, CPU)
    assert (data.is_first, data.is_last, data.reads) == (True, True, True)
    assert data.take(({"F0": torch.ones(4, 3), "F1": torch.ones(4, 5)}, torch.arange(4)), 2) == 2
    assert data.read("F0", 0, 1).inputs[0].dtype == torch.float64
    assert data.read("J", 0, 1).targets[0].tolist() == [2, 3]
    assert data.read("J", 0, 1).seed != data.read("J", 1, 1).seed
    with pytest.raises(BatchError, match="batch: has inputs for F1, none for F0; add them"):
        data.take(({"F1": torch.ones(4, 5)}, torch.arange(4)), 2)
    with pytest.raises(BatchError, match="batch: has a NoneType among the targets of J; give tensors"):
        data.take((torch.ones(4, 3), None), 2)
    with pytest.raises(
        BatchError, match="batch: 5 samples make no whole micro-batches of 2; give a multiple"
    ):
        data.take((torch.ones(5, 3), torch.arange(5)), None)
    assert data.take((torch.ones(6, 3), torch.arange(6)), None) == 3

    middle = BatchData(v_shape(3), 1, 0, torch.float32, CPU)
    middle.check(({"F0": torch.ones(4)}, {"F2": torch.ones(4)}))
    for batch in (({"F1": torch.ones(4)}, None), [(None, {"F1": torch.ones(1)})]):
        with pytest.raises(BatchError, match="for F1, which no block reads"):
            middle.check(batch)

    last = BatchData(v_shape(2), 1, 0, torch.float32, CPU)
    assert (last.is_first, last.is_last) == (False, True)
    assert last.take((None, torch.arange(4)), 4) == 4
