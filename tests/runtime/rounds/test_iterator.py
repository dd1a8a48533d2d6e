"""The iterator of a leased job: its steps, batches and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placements.forms.texts import write_json
from runtime.rounds.iterator import FOLDER, LEASE, STARTER, LeasedIterator, LeaseError, saved_steps

NOBODY = str(2**22 + 1)
"""No process has this id, on Linux."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv(STARTER, NOBODY)
    return tmp_path


def run(folder: Path, loader: Any, *leases: tuple[int, int]) -> tuple[list[Any], list[str]]:
    """Return the batches of a process in its leases, and the checkpoints that it read and wrote."""
    said: list[str] = []
    left = iter(leases)

    def give() -> None:
        if steps := next(left, None):
            write_json(folder / LEASE, (*steps, "v100", [0]))

    def save(path: Path) -> None:
        path.write_text("all")
        said.append(f"wrote {path.name}")
        give()

    give()
    return [*LeasedIterator(loader, lambda path: said.append(f"read {path.name}"), save)], said


def test_a_lease_the_next_one_and_the_next_process(folder: Path) -> None:
    result = run(folder, "wxyz", (0, 3), (3, 5), (5, 5))
    assert result == (["w", "x", "y", "z", "w"], ["wrote torn_3", "wrote torn_5"])
    assert saved_steps(folder) == [3, 5]
    assert run(folder, "wxyz", (5, 7), (7, 7)) == (["x", "y"], ["read 5", "wrote torn_7"])
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"5", "7"}


def test_a_job_whose_scheduler_is_gone_writes_a_checkpoint(folder: Path) -> None:
    assert run(folder, "wxyz", (0, 2)) == (["w", "x"], ["wrote torn_2"])


class Sampled:
    """A loader whose order depends on the epoch."""

    def __init__(self) -> None:
        self.sampler, self.epoch = self, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[str]:
        return iter([f"{self.epoch}{letter}" for letter in "xyz"])


class KeepsPlace(Sampled):
    """A loader whose place a checkpoint holds."""

    def load_state_dict(self, state: object) -> None: ...


@pytest.mark.parametrize(
    ("loader", "first"), [(Sampled(), ["1y", "1z", "2x"]), (KeepsPlace(), ["0x", "0y", "0z"])]
)
def test_epochs_of_a_loader_that_goes_on(folder: Path, loader: Any, first: list[str]) -> None:
    assert run(folder, loader, (4, 7), (7, 7))[0] == first


def test_what_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for loader in ([], iter("xyz")):
        with pytest.raises(LeaseError, match="the loader has no batches or no length; give some, or load_"):
            run(folder, loader, (0, 2))
    monkeypatch.delenv(FOLDER)
    with pytest.raises(LeaseError, match="SCHEDSEARCH_JOB_FOLDER is not set; start this script with schedse"):
        run(folder, "xyz")
