"""Traces of all forms: the operations that ran are read, and a wrong file is one line."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_up_job_traces import write_trace
from places import SHARED_DATA

from placements.shapes import loop_shape, v_shape, wave_shape
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b, zb_v
from schedsearch.schedule import Schedule
from schedsearch.traces.reading import CHROME, FORMS, NSIGHT, form_of, read_folder
from schedsearch.traces.table import BLOCK_KINDS, TraceError


def seconds(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return (0.010 if kind == "F" else 0.020) * (1 + 0.1 * n) * (1 + 0.5 * replica)


def changed(path: Path, change: dict[str, str]) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    for old, new in change.items():
        text = text.replace(old, new, 1)
    path.write_bytes(gzip.compress(text.encode()))


def refused(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_folder(path)
    assert str(path if path.is_dir() else path.parent) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("chunks", "tensor"), [(1, 1), (2, 1), (1, 2)])
def test_a_jobs_table_says_what_each_rank_ran(tmp_path: Path, chunks: int, tensor: int) -> None:
    path = write_trace(tmp_path, seconds, chunks=chunks, tensor=tensor)
    (table,) = read_folder(tmp_path)
    assert (table.job, table.num_replicas, table.num_stages, table.num_chunks) == ("job", 2, 2, chunks)
    blocks = [span for span in table.spans if span.kind in BLOCK_KINDS]
    assert Counter(span.iteration for span in blocks) == dict.fromkeys(
        (3, 4), 2 * 4 * 2 * 2 * chunks * tensor
    )
    times = {(s.kind, s.stage, s.micro_batch, s.replica): s.end_ms - s.start_ms for s in blocks}
    assert times["F", 2 * chunks - 1, 3, 1] == pytest.approx(13 * 1.5)
    assert Counter(span.kind for span in table.spans)["optimizer"] == 2 * 2
    plain = tmp_path / "plain" / "trace-job.csv"
    plain.parent.mkdir()
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    (tmp_path / "meta-job.yaml").rename(plain.parent / "meta-job.yaml")
    assert read_folder(plain) == [table]


def test_other_operations_are_read_or_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path, seconds)
    rows = ("0,0,0,3,forward-send,1,0.1,0,-1,-1,-1", "0,0,0,3,embedding-grads-all-reduce,9,0.1,0,0,-1,-1")
    more = (*rows, "0,0,0,3,gc,9,0.5,0,-1,0,-1", "0,0,0,3,dump,9,0.0,0,-1,0,-1")
    changed(path, {"\n": "\n" + "\n".join(more) + "\n"})
    (tmp_path / "meta-job.yaml").write_text("dp_size: 8\npp_size: 2\n")
    (table,) = read_folder(tmp_path)
    by_kind = {span.kind: (span.stage, span.micro_batch, span.start_ms) for span in table.spans[:2]}
    assert by_kind == {"message": (0, None, 1000), "collective": (0, None, 9000)}
    assert table.lines == (
        "job: has 2 replicas, where the meta file says dp_size 8; these are replayed",
        "job: gc is of no known type; 1 operations, 500 ms in all, are left out",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward-compute,1.0": "forward-compute,x1.0"}, "line 2, column start_ts: 'x1.0"),
        ({"0,0,0,3,forward": "0,0,0, -3,forward"}, "line 2, column step: '-3' is not a whole number"),
        ({",0,0,0,0\n": ",0,0, -1,0\n"}, "line 2, column mb_id: is empty or -1; a forward"),
        ({"0,0,0,3,forward": "0,2,0,3,forward"}, "column stage: goes to 2, where the meta file says"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, change: dict[str, str], message: str) -> None:
    path = write_trace(tmp_path, seconds)
    changed(path, change)
    assert f"{path}: {message}" in refused(path)


def test_wrong_files_of_a_job_are_one_line(tmp_path: Path) -> None:
    path = write_trace(tmp_path, seconds)
    meta = tmp_path / "meta-job.yaml"
    meta.write_text("dp_size: two\npp_size: 2\n")
    assert f"{meta}: dp_size: 'two' is not a whole number; give 1 or more" in refused(path)
    meta.unlink()
    assert "there is no meta-job.yaml beside it" in refused(path)
    path.write_bytes(path.read_bytes()[:-9])
    assert "it cannot be unpacked" in refused(path)


def write_primus(folder: Path, schedule: Schedule, chunks: int, has_names: bool) -> None:
    """Write two iterations of a schedule as Primus does; its ranks' clocks differ."""
    placement, number, total = schedule.placement, schedule.num_micro_batches, schedule.makespan + 2.0
    for rank in range(placement.num_devices):
        fields: dict[str, Any] = {"total": total, "memory": 1.5}
        for name, kinds in (("fwd", "F"), ("bwd", "BI"), ("wgrad", "W")):
            runs = [key for key in schedule.order(rank) if placement.by_name[key[0]].kind.value in kinds]
            starts = [schedule.start_of[key] + 0.25 * rank for key in runs]
            times = [placement.by_name[key[0]].time for key in runs]
            fields[f"{name}_start"] = starts
            fields[f"{name}_end"] = [start + time for start, time in zip(starts, times, strict=True)]
            fields[f"{name}_minibatch"] = [n for _, n in runs] if has_names else []
            chunk = [int(block[1:]) // placement.num_devices for block, _ in runs]
            fields[f"{name}_chunk"] = chunk if has_names else []
        (folder / f"pp_rank_{rank}.json").write_text(json.dumps({"1": fields, "2": fields}, indent=2))
    config = {"dp_size": 2, "pp_size": placement.num_devices, "vp_size": chunks, "num_mbs": number}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("schedule", "chunks", "has_names"),
    [
        (one_f_one_b(v_shape(3), 5), 1, False),
        (interleaved_one_f_one_b(loop_shape(3), 9, 3), 2, False),
        (interleaved_one_f_one_b(loop_shape(3), 7), 2, True),
        (zb_v(wave_shape(3, split_backward=True), 6), 2, True),
    ],
)
def test_primus_data_say_the_schedule_that_ran(
    tmp_path: Path, schedule: Schedule, chunks: int, has_names: bool
) -> None:
    write_primus(tmp_path, schedule, chunks, has_names)
    (table,) = read_folder(tmp_path)
    assert table == read_folder(tmp_path / "pp_rank_1.json")[0]
    assert (table.num_replicas, table.num_stages, table.num_chunks, table.is_one_clock) == (
        2,
        3,
        chunks,
        False,
    )
    starts = {
        (f"{span.kind}{span.stage}", span.micro_batch): span.start_ms - 0.25 * span.rank
        for span in table.spans
        if span.iteration == 1 and span.stage is not None
    }
    assert starts == {key: pytest.approx(start) for key, start in schedule.start_of.items()}
    total = schedule.makespan + 2.0
    assert table.iteration_ms == {1: total, 2: total}
    assert min(span.start_ms for span in table.spans if span.iteration == 2) == pytest.approx(total)
    assert (table.lines, table.num_replicas) == ((), 2)


def test_pairs_that_primus_measures_together_are_divided(tmp_path: Path) -> None:
    write_primus(tmp_path, one_f_one_b(v_shape(2), 2), 1, True)
    path = tmp_path / "pp_rank_1.json"
    data = json.loads(path.read_text())
    for of_iteration in data.values():
        for name in ("start", "end"):
            of_iteration[f"fwd_{name}"][1] = of_iteration[f"bwd_{name}"][0]
    path.write_text(json.dumps(data))
    (table,) = read_folder(tmp_path)
    times = {(s.kind, s.micro_batch): s.end_ms - s.start_ms for s in table.spans if s.rank and s.stage}
    assert times["B", 0] == pytest.approx(2 * times["F", 1])
    assert "2 pairs of a forward and a backward are measured together" in table.lines[0]


def test_wrong_primus_data_are_one_line(tmp_path: Path) -> None:
    write_primus(tmp_path, one_f_one_b(v_shape(2), 2), 1, False)
    path = tmp_path / "pp_rank_1.json"
    data = json.loads(path.read_text())
    del data["2"]["bwd_end"][0]
    path.write_text(json.dumps(data))
    assert "2: has 2 times in bwd_start and 1 in bwd_end, where 2 blocks ran" in refused(tmp_path)
    path.write_text(json.dumps({"7": data["1"]}))
    assert "no iteration is in the files of all ranks" in refused(tmp_path)
    path.unlink()
    assert f"{path}: is missing, where config.json says pp_size 2" in refused(tmp_path)
    (tmp_path / "config.json").unlink()
    assert "has no config.json" in refused(tmp_path)


def own_events() -> list[dict[str, Any]]:
    """Return a block of each of two devices, as planned and as measured by a run."""
    ran = {"ph": "X", "ts": 2000.0, "dur": 1500.0}
    facts = {"micro_batch": 3, "iteration": 7, "measured_ms": 1.5}
    return [
        ran | {"pid": n + 1, "name": f"{block}.3", "args": {"block": block, **facts, **waiting}}
        for n, block in enumerate(("F0", "B1"))
        for waiting in ({}, {"waiting_ms": 0.0})
    ]


def test_measured_blocks_of_an_own_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": own_events()}))
    (table,) = read_folder(path)
    blocks = [(span.rank, span.stage, span.kind, span.micro_batch) for span in table.spans]
    assert blocks == [(0, 0, "F", 3), (1, 1, "B", 3)]
    assert all((span.start_ms, span.end_ms) == (2.0, 3.5) for span in table.spans)
    assert table.is_one_clock


def test_forms_are_told_apart_by_content(tmp_path: Path) -> None:
    write_trace(tmp_path, seconds)
    write_trace(tmp_path, seconds, name="other")
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": own_events()}))
    (tmp_path / "README.md").write_text("forward-compute")
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    tables = read_folder(tmp_path)
    assert [table.job for table in tables] == ["job", "other", "trace"]
    assert [table.lines for table in tables] == [()] * 3
    file = tmp_path / "notes.csv"
    assert refused(file) == f"{file}: is no trace; traces that can be read are {'; '.join(FORMS)}"
    file.write_bytes(gzip.compress(b'[{"ph": "X", "name": "PP:0F0"}]'))
    assert form_of(file) == CHROME
    file.write_bytes(b"SQLite format 3\0")
    assert form_of(file) == NSIGHT
    file.write_bytes(b"PAR1\0")
    assert "is Parquet; write it as a table, by pandas" in refused(file)
    file.unlink()
    assert "there is no such file or folder" in refused(file)


@pytest.mark.parametrize(
    ("name", "number", "micro_batches"), [("stragglers", 32, 4), ("primus_trace", 18, 16)]
)
def test_published_jobs_are_whole(name: str, number: int, micro_batches: int) -> None:
    if not (SHARED_DATA / name).is_dir():
        pytest.skip("the published traces are not here")
    (table,) = read_folder(SHARED_DATA / name)
    assert table.lines == ()
    ran = Counter((s.iteration, s.replica, s.stage) for s in table.spans if s.kind in BLOCK_KINDS)
    assert table.num_replicas is not None and table.num_stages is not None
    assert len(ran) == number * table.num_replicas * table.num_stages
    assert {*ran.values()} == {2 * micro_batches}
