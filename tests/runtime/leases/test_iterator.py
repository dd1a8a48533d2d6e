"""The iterator of a leased job: its steps, batches and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.leases.iterator import LeasedIterator
from runtime.leases.lease import LEASES, JobFolder, Lease, LeaseError

NOBODY = 2**22 + 1
"""No process has this id, on Linux."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    monkeypatch.setenv(LEASES, str(tmp_path))
    found = JobFolder(tmp_path)
    found.begin()
    return found


def lease(number: int, first: int, until: int, pid: int | None = None) -> Lease:
    return Lease(number, first, until, "v100", (0,), os.getpid() if pid is None else pid)


def run(loader: Any) -> tuple[list[Any], list[str]]:
    """Return the batches of a process, and the names of the checkpoints that it read and wrote."""
    said: list[str] = []

    def save(path: Path) -> None:
        path.write_text("all")
        said.append(f"wrote {path.name}")

    return [*LeasedIterator(loader, lambda path: said.append(f"read {path.name}"), save)], said


def test_a_lease_its_renewal_and_the_next_process(folder: JobFolder) -> None:
    folder.start(lease(1, 0, 3))
    folder.answer(1, lease(2, 3, 5))
    folder.answer(2, None)
    assert run("wxyz") == (["w", "x", "y", "z", "w"], ["wrote torn_5"])
    assert folder.is_reported(1)
    assert folder.is_reported(2)
    assert folder.newest_checkpoint() == (5, folder.path / "checkpoints/5")
    folder.start(lease(4, 5, 7))
    folder.answer(4, None)
    assert run("wxyz") == (["x", "y"], ["read 5", "wrote torn_7"])


def test_a_lease_of_no_steps_writes_no_checkpoint_again(folder: JobFolder) -> None:
    folder.save(5, lambda path: path.write_text("all"), 0)
    folder.start(lease(3, 5, 5))
    folder.answer(3, None)
    assert run("wxyz") == ([], ["read 5"])


def test_a_job_whose_scheduler_is_gone_writes_a_checkpoint(folder: JobFolder) -> None:
    folder.start(lease(1, 0, 2, NOBODY))
    assert run("wxyz") == (["w", "x"], ["wrote torn_2"])


def test_one_of_several_processes_says_after_which_step_all_stop(folder: JobFolder) -> None:
    """Rank 1 may be a step ahead in its look, and has read the step before it is done with it."""
    assert folder.stop_step(4, 0, 2) is None
    folder.stop()
    assert folder.stop_step(4, 1, 2) is None
    assert folder.stop_step(4, 0, 2) == 5
    assert folder.stop_step(5, 1, 2) == 5
    folder.begin()
    folder.stop()
    assert folder.stop_step(4, 0, 1) == 4


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
def test_epochs_of_a_loader_that_goes_on(folder: JobFolder, loader: Any, first: list[str]) -> None:
    folder.save(4, lambda path: path.write_text("all"), 0)
    folder.start(lease(1, 4, 7))
    folder.answer(1, None)
    assert run(loader)[0] == first


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEASES, raising=False)
    with pytest.raises(LeaseError, match="SCHEDSEARCH_LEASES is not set; start this script with schedsearch"):
        run("xyz")
    monkeypatch.setenv(LEASES, str(tmp_path))
    with pytest.raises(LeaseError, match="lease.json: there is no lease; start the job with run.command"):
        run("xyz")
    JobFolder(tmp_path).start(lease(1, 0, 2))
    with pytest.raises(LeaseError, match="the loader has no batches; give it at least one"):
        run([])
    with pytest.raises(LeaseError, match="the loader has no length; give one that has, or load_state_dict"):
        run(iter("xyz"))


def test_a_job_that_another_run_left_behind_is_not_started_twice(folder: JobFolder) -> None:
    folder.start(lease(1, 0, 2))
    folder.answer(1, None)
    run("xyz")  # by this process, which goes on
    with pytest.raises(LeaseError, match=f"process {os.getpid()} of a run before still runs this job; wait"):
        folder.begin()
    folder.enter(NOBODY)
    folder.begin()
    assert folder.newest_checkpoint()[0] == 2
