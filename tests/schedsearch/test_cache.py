"""The cache: the same answer again, another for another question, and no harm from a broken entry."""

from __future__ import annotations

import ast
import contextlib
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

import joblib
import pytest
from places import ROOT
from schedsearch.core.answer import EndedBy, SearchResult, Status
from schedsearch.core.problem import Problem

from placements.shapes import v_shape
from schedsearch.baselines import HAND_MADE
from schedsearch.schedule import Schedule
from schedsearch.searches import cache
from schedsearch.searches.cache import cached_search

REQUEST = Problem(v_shape(2).with_memory(2), 3, objectives=("period",), time_limit_s=5.0)


def entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


@pytest.mark.parametrize("method", ["modulo", "tessel", "time_optimal"])
def test_the_same_search_again_is_the_same_answer(method: str, tmp_path: Path) -> None:
    asked = replace(REQUEST, method=method)
    first, was_there = cached_search(tmp_path / "new/cache", asked)
    assert not was_there
    again, was_there = cached_search(tmp_path / "new/cache", asked)
    assert was_there
    assert again == first  # its seconds too
    assert len(entries(tmp_path / "new/cache")) == 1


def test_without_a_directory_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not cached_search(None, REQUEST)[1]
    assert not cached_search(None, REQUEST)[1]
    assert not entries(tmp_path)


OTHER = {
    "placement": v_shape(2).with_memory(3),
    "num_micro_batches": 4,
    "method": "tessel",
    "micro_batches_per_repetend": 1,
    "max_micro_batches_per_repetend": 2,
    "objectives": ("period", "span"),
    "solver": "z3",
    "time_limit_s": 6.0,
    "work_limit": 1.0,
    "seed": 1,
    "begin_with": HAND_MADE["one_f_one_b"](v_shape(2), 3),
    "strategies": ("queries",),
    "without": ("annealing",),
}


@pytest.mark.parametrize("name", [field.name for field in fields(Problem)])
def test_every_argument_is_part_of_the_question(name: str, tmp_path: Path) -> None:
    cached_search(tmp_path, REQUEST)
    assert not cached_search(tmp_path, replace(REQUEST, **{name: OTHER[name]}))[1]


def test_other_code_is_another_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached_search(tmp_path, REQUEST)
    monkeypatch.setattr(cache, "source_hash", lambda: "edited")
    assert not cached_search(tmp_path, REQUEST)[1]


@pytest.mark.parametrize("library", ["z3-solver", "ortools"])
def test_another_solver_is_another_question(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached_search(tmp_path, REQUEST)
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.0" if name == library else version(name))
    assert not cached_search(tmp_path, REQUEST)[1]


def imports_of(path: Path) -> set[Path]:
    """The files of ours that a file imports, the packages above them among these."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for parts in (name.split(".") for name in names):
                above = [ROOT.joinpath(*parts[:i], "__init__.py") for i in range(1, len(parts) + 1)]
                found |= {*above, ROOT.joinpath(*parts).with_suffix(".py")}
    return {file for file in found if file.exists()}


def test_the_code_of_a_search_is_part_of_the_question_and_no_later_room_is() -> None:
    reached: set[Path] = set()
    open_files = {ROOT / "schedsearch/searches/methods.py", ROOT / "placements/pieces.py"}
    while open_files:
        reached |= open_files
        open_files = {file for each in open_files for file in imports_of(each)} - reached
    hashed = set(cache.sources())
    assert reached <= hashed
    assert ROOT / "schedsearch/solver/cpsat.py" in reached
    assert not [file for file in hashed if {"energy", "figures", "certificate"} & set(file.parts)]


def broken_entries(result: SearchResult) -> dict[str, bytes]:
    """What an entry must not be, as a file."""
    assert result.schedule is not None
    schedule = result.schedule
    late = Schedule(schedule.placement, 3, (schedule.blocks[0]._replace(start=99), *schedule.blocks[1:]))
    return {
        "empty": b"",
        "cut": pickle.dumps(result)[:-20],
        "text": b"not a pickle",
        "class gone": b"cschedsearch.search\nNoSuchClass\n.",
        "another thing": pickle.dumps([1, 2]),
        "a broken rule": pickle.dumps(replace(result, schedule=late)),
        "another placement": pickle.dumps(
            replace(result, schedule=replace(schedule, placement=schedule.placement.with_memory(9)))
        ),
        "no schedule": pickle.dumps(replace(result, schedule=None)),
    }


def test_a_broken_entry_is_computed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, _ = cached_search(tmp_path, REQUEST)
    (path,) = entries(tmp_path)
    for name, data in broken_entries(first).items():
        path.write_bytes(data)
        result, was_there = cached_search(tmp_path, REQUEST)
        assert not was_there, name
        assert result.repetend == first.repetend
        assert f"{path}: " in caplog.text
        caplog.clear()
        assert cached_search(tmp_path, REQUEST)[1], name


@pytest.mark.parametrize(
    "change",
    [{"ended_by": EndedBy.INTERRUPT}, {"status": Status.UNKNOWN, "schedule": None, "repetend": None}],
)
def test_what_is_no_answer_is_not_kept(
    change: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = cached_search(None, REQUEST)
    monkeypatch.setattr(cache, "find", lambda *_: replace(result, **change))
    assert not cached_search(tmp_path, REQUEST)[1]
    assert not cached_search(tmp_path, REQUEST)[1]
    assert not entries(tmp_path)


def test_a_proof_that_there_is_none_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = cached_search(None, REQUEST)
    none = replace(result, status=Status.INFEASIBLE, schedule=None, repetend=None, reason="too small")
    monkeypatch.setattr(cache, "find", lambda *_: none)
    assert cached_search(tmp_path, REQUEST) == (none, False)
    assert cached_search(tmp_path, REQUEST) == (none, True)


def test_a_full_disk_costs_the_entry_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_bytes", full)
    assert cached_search(tmp_path, REQUEST)[0].schedule is not None
    assert "No space left on device" in caplog.text
    assert not entries(tmp_path)


def test_a_directory_that_cannot_be_is_said_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "find", lambda *_: pytest.fail("too late"))
    with pytest.raises(OSError, match="file"):
        cached_search(tmp_path / "file", REQUEST)


def wrong_or_torn(directory: Path, result: SearchResult) -> int:
    """Write, read and remove the same entry over and over; return how often it was not whole."""
    wrong = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "find", lambda *_: result)
        for i in range(20):
            wrong += cached_search(directory, REQUEST)[0] != result
            for path in directory.glob("*.pkl"):
                with contextlib.suppress(FileNotFoundError):  # the other process has just removed it
                    wrong += joblib.load(path) != result
                if i % 3 == 0:
                    path.unlink(missing_ok=True)
    return wrong


def test_processes_can_share_a_directory(tmp_path: Path) -> None:
    result, _ = cached_search(None, REQUEST)
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        assert list(pool.map(wrong_or_torn, [tmp_path] * 2, [result] * 2)) == [0, 0]
    assert {path.suffix for path in entries(tmp_path)} <= {".pkl"}
