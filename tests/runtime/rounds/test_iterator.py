"""The iterator of a leased job: its steps, batches and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placements.forms.texts import write_json
from runtime.rounds.iterator import ACTOR, CHECKPOINTS, LEASES, STOP, LeasedIterator, LeaseError, newest

NOBODY = str(2**22 + 1)
"""No process has this id, on Linux."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checkpoints").mkdir()
    for name, value in ((LEASES, tmp_path), (CHECKPOINTS, tmp_path / "checkpoints"), (ACTOR, os.getpid())):
        monkeypatch.setenv(name, str(value))
    return tmp_path


def give(folder: Path, *leases: tuple[int, int]) -> None:
    """Leave leases for a process; those of one before are gone."""
    for old in [*folder.glob("lease_*"), *folder.glob("did_*")]:
        old.unlink()
    for number, (first, until) in enumerate(leases):
        write_json(folder / f"lease_{number}.json", (first, until, "v100", [0]))


def run(loader: Any) -> tuple[list[Any], list[str]]:
    """Return the batches of a process, and the names of the checkpoints that it read and wrote."""
    said: list[str] = []

    def save(path: Path) -> None:
        path.write_text("all")
        said.append(f"wrote {path.name}")

    return [*LeasedIterator(loader, lambda path: said.append(f"read {path.name}"), save)], said


def test_a_lease_the_next_one_and_the_next_process(folder: Path) -> None:
    give(folder, (0, 3), (3, 5), (5, 5))
    assert run("wxyz") == (["w", "x", "y", "z", "w"], ["wrote torn_3", "wrote torn_5"])
    assert {path.name for path in folder.glob("did_*")} == {"did_0.json", "did_1.json"}
    assert newest(folder / "checkpoints") == 5
    give(folder, (5, 7), (7, 7))
    assert run("wxyz") == (["x", "y"], ["read 5", "wrote torn_7"])
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"5", "7"}


def test_a_job_whose_scheduler_is_gone_writes_a_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ACTOR, NOBODY)
    give(folder, (0, 2))
    assert run("wxyz") == (["w", "x"], ["wrote torn_2"])


def test_one_of_several_processes_says_after_which_step_all_stop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 may be a step ahead in its look, and has read the step before it is done with it."""
    give(folder, (0, 9), (2, 2))
    first = iter(batches := LeasedIterator(range(9), lambda path: None, lambda path: path.touch()))
    monkeypatch.setenv("RANK", "1")
    second = iter(LeasedIterator(range(9), lambda path: None, lambda path: path.touch()))
    assert (next(first), next(second)) == (0, 0)
    (folder / STOP).touch()
    assert (next(second), next(first)) == (1, 1)
    assert (next(second, None), next(first, None)) == (None, None)
    assert batches.num_steps == newest(folder / "checkpoints") == 2


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
    give(folder, (4, 7), (7, 7))
    assert run(loader)[0] == first


def test_what_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(folder, (0, 2))
    with pytest.raises(LeaseError, match="the loader has no batches; give it at least one"):
        run([])
    with pytest.raises(LeaseError, match="the loader has no length; give one that has, or load_state_dict"):
        run(iter("xyz"))
    monkeypatch.delenv(LEASES)
    with pytest.raises(LeaseError, match="SCHEDSEARCH_LEASES is not set; start this script with schedsearch"):
        run("xyz")
