"""Batches: cut into equal micro-batches, each part for the blocks that read it."""

from __future__ import annotations

import pytest
import torch
from one_line_errors import raises_line
from torch.utils.data import DataLoader, TensorDataset

from placements.shapes import k_shape, v_shape
from runtime.loops.batches import BatchData, BatchError, micro_batches
from runtime.models import GIVEN_MODEL, ModelOptions

CPU, GIVEN = torch.device("cpu"), ModelOptions(GIVEN_MODEL, dtype="float64")


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
    with raises_line(BatchError, match=f"^batch: {reason}"):
        micro_batches(batch, 2)


def test_blocks_read_their_own_part() -> None:
    """Inputs and targets by block keep their types; a process may have only its own blocks' inputs."""
    data = BatchData(k_shape(2), 0, GIVEN, CPU)
    assert (data.is_first, data.is_last, data.reads) == (True, True, True)
    assert data.take(({"F0": torch.ones(4, 3), "F1": torch.ones(4, 5)}, torch.arange(4)), 2) == 2
    assert data.read("F0", 0, 1).inputs[0].dtype == torch.float64
    assert data.read("J", 0, 1).targets[0].tolist() == [2, 3]
    assert data.read("J", 0, 1).seed != data.read("J", 1, 1).seed
    with pytest.raises(BatchError, match="batch: has inputs for F1, none for F0; add them"):
        data.take(({"F1": torch.ones(4, 5)}, torch.arange(4)), 2)
    with pytest.raises(BatchError, match="batch: has a NoneType among the targets of J; give tensors"):
        data.take((torch.ones(4, 3), None), 2)
    with raises_line(BatchError, match="batch: 5 samples make no whole micro-batches of 2; give a multiple"):
        data.take((torch.ones(5, 3), torch.arange(5)), None)
    assert data.take((torch.ones(6, 3), torch.arange(6)), None) == 3

    middle = BatchData(v_shape(3), 1, GIVEN, CPU)
    middle.check(({"F0": torch.ones(4)}, {"F2": torch.ones(4)}))
    for batch in (({"F1": torch.ones(4)}, None), [(None, {"F1": torch.ones(1)})]):
        with pytest.raises(BatchError, match="for F1, which no block reads"):
            middle.check(batch)

    last = BatchData(v_shape(2), 1, GIVEN, CPU)
    assert (last.is_first, last.is_last) == (False, True)
    assert last.take((None, torch.arange(4)), 4) == 4
