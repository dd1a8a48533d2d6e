"""Traces of jobs: what is read of them, what is left out, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from made_up_job_traces import write_trace

from schedsearch.replay.pipeline import job_pipeline, orders_of
from schedsearch.replay.trace import JobTraceError, read_job_trace, read_job_traces


def seconds(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return (0.010 if kind == "F" else 0.020) * (1 + 0.1 * n) * (1 + 0.5 * replica)


def changed(path: Path, change: dict[str, str], drop: str = "") -> None:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines = [line for line in lines if not drop or drop not in line]
    text = "\n".join(lines)
    for old, new in change.items():
        text = text.replace(old, new, 1)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(("chunks", "tensor"), [(1, 1), (2, 1), (1, 2)])
def test_a_trace_says_what_each_replica_ran(tmp_path: Path, chunks: int, tensor: int) -> None:
    trace = read_job_trace(write_trace(tmp_path, seconds, chunks=chunks, tensor=tensor))
    assert (trace.job, trace.num_stages, trace.num_chunks, list(trace.steps)) == ("job", 2, chunks, [3, 4])
    for replica, run in enumerate(trace.steps[3]):
        assert run.num_micro_batches == 4
        assert len(run.blocks) == 4 * 2 * 2 * chunks
        assert run.blocks["F1", 3].time_ms == pytest.approx(13 * (1 + 0.5 * replica))


def test_a_pipeline_has_messages_memory_and_speeds(tmp_path: Path) -> None:
    steps = range(10)
    trace = read_job_trace(write_trace(tmp_path, seconds, steps=tuple(steps), message=0.0005))
    pipeline = job_pipeline(trace)
    assert {(a, b): t for a, b, t in pipeline.placement.transfer} == {
        ("F0", "F1"): 500,
        ("B1", "B0"): 500,
    }
    assert pipeline.placement.memory == (2, 1)
    slow = pipeline.speeds[1]["F0"] / pipeline.speeds[0]["F0"]
    assert slow == pytest.approx(1.5, rel=0.01)
    order = orders_of(trace.steps[3][0], {"F0": 0, "B0": 0, "F1": 1, "B1": 1}, 2)
    assert order[1][:3] == [("F1", 0), ("B1", 0), ("F1", 1)]


def test_an_iteration_without_a_block_is_left_out_and_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path, seconds)
    changed(path, {}, drop="1,1,3,4,backward-compute")
    trace = read_job_trace(path)
    assert list(trace.steps) == [3]
    assert trace.lines == ("job: step 4 is left out: B1 of micro-batch 0 on rank 3 is missing",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"forward-compute,1.0": "forward-compute,x1.0"}, "line 2, column start_ts: 'x1.0"),
        ({"0,0,0,3,forward": "0,0,0, -3,forward"}, "line 2, column step: '-3' is not a whole number"),
        (
            {"0,0,0,3,forward": "5,0,0,3,forward"},
            "step 4 is left out: replica 2 has no blocks",
        ),
    ],
)
def test_a_wrong_trace_is_one_line(tmp_path: Path, change: dict[str, str], says: str) -> None:
    path = write_trace(tmp_path, seconds)
    changed(path, change)
    with pytest.raises(JobTraceError) as caught:
        read_job_trace(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_of_some_replicas_is_read_and_said(tmp_path: Path) -> None:
    path = write_trace(tmp_path, seconds)
    (tmp_path / "meta-job.yaml").write_text("dp_size: 8\npp_size: 2\n")
    trace = read_job_trace(path)
    assert [len(step) for step in trace.steps.values()] == [2, 2]
    assert trace.lines == ("job: has 2 replicas, where the meta file says dp_size 8; these are replayed",)


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobTraceError, match="has no trace-NAME"):
        read_job_traces(tmp_path)
    path = write_trace(tmp_path, seconds)
    assert read_job_traces(tmp_path) == [path]
    meta = tmp_path / "meta-job.yaml"
    meta.write_text("dp_size: two\npp_size: 2\n")
    with pytest.raises(JobTraceError, match="dp_size: 'two' is not a whole number; give 1 or more"):
        read_job_trace(path)
    path.write_bytes(path.read_bytes()[:-9])
    meta.write_text("dp_size: 2\npp_size: 2\n")
    with pytest.raises(JobTraceError, match="packed by gzip"):
        read_job_trace(path)
    meta.unlink()
    with pytest.raises(JobTraceError, match="there is no meta-job.yaml beside it"):
        read_job_traces(tmp_path)
