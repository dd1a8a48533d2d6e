"""Iterations of a table: missing numbers, clocks that differ, rows left out or refused."""

from __future__ import annotations

import pytest
from made_up_job_traces import table

from schedsearch.replay.job import job_of
from schedsearch.replay.pipeline import job_pipeline, measured_orders
from schedsearch.traces.table import Span, TraceError, TraceTable


def seconds(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return (0.010 if kind == "F" else 0.020) * (1 + 0.1 * n) * (1 + 0.5 * replica)


def without(given: TraceTable, **fields: object) -> TraceTable:
    """Leave out the spans that have all these values."""
    kept = [s for s in given.spans if any(getattr(s, name) != value for name, value in fields.items())]
    return given._replace(spans=kept)


@pytest.mark.parametrize("chunks", [1, 2])
def test_each_replica_runs_each_block_of_each_micro_batch(chunks: int) -> None:
    job = job_of(table(seconds, replicas=2, chunks=chunks))
    assert (job.num_devices, [*job.steps], job.lines) == (2, [0, 1, 2], ())
    assert [job.device[f"F{n}"] for n in range(2 * chunks)] == [0, 1] * chunks
    for replica, run in enumerate(job.steps[1]):
        assert (run.num_micro_batches, len(run.blocks)) == (4, 4 * 2 * 2 * chunks)
        assert run.blocks["F1", 3].time_ms == pytest.approx(13 * (1 + 0.5 * replica))


def test_iterations_and_micro_batches_are_numbered_where_the_trace_does_not() -> None:
    numbered, plain = (job_of(table(seconds, stages=3, is_numbered=known)) for known in (True, False))
    assert plain.steps == numbered.steps


def test_a_trace_that_begins_within_an_iteration_has_the_whole_ones() -> None:
    given = table(seconds)
    spans = [s._replace(iteration=None) for s in given.spans if s.iteration or s.kind == "B" or s.micro_batch]
    job = job_of(given._replace(spans=spans))
    assert [len(step[0].blocks) for step in job.steps.values()] == [16, 16]
    assert job.lines == ("job: iteration 0 is left out: F0 of micro-batch 0 on rank 0 is missing",)


def test_clocks_that_differ_are_aligned_by_messages() -> None:
    same = job_of(table(seconds, stages=3, message=0.001))
    moved = job_of(table(seconds, stages=3, message=0.001, offset_ms=[0.0, 400.0, -70.0]))
    for number, step in same.steps.items():
        assert moved.steps[number][0].measured_ms == pytest.approx(step[0].measured_ms, abs=1e-6)
    assert moved.lines == ("job: clocks of ranks were moved by up to 400 ms, known to within 1 ms",)


def test_ranks_of_one_block_are_one() -> None:
    given = table(seconds, replicas=2)
    given = given._replace(num_replicas=None, spans=[s._replace(replica=None) for s in given.spans])
    (run,) = job_of(given, tensor_parallel=2).steps[0]
    assert run.blocks["F0", 0].time_ms == pytest.approx((10 + 15) / 2)
    assert "2 ranks run each stage; taken as data-parallel copies" in job_of(given).lines[0]


def test_whole_and_split_backwards_may_be_mixed() -> None:
    given, spans = table(seconds), []
    for span in given.spans:
        middle = (span.start_ms + span.end_ms) / 2
        if span.kind == "B" and span.micro_batch != 3:
            spans += [span._replace(kind="I", end_ms=middle), span._replace(kind="W", start_ms=middle)]
        else:
            spans.append(span)
    job = job_of(given._replace(spans=spans))
    assert [*job.device] == ["F0", "F1", "I1", "W1", "I0", "W0"]
    run = job.steps[0][0]
    assert run.blocks["I0", 3].time_ms == pytest.approx(run.blocks["W0", 3].time_ms) == pytest.approx(13)
    assert job_pipeline(job).placement.memory == (2, 1)


def test_time_around_the_blocks_is_by_kind() -> None:
    given = table(seconds, steps=(0,))
    begin, end = min(s.start_ms for s in given.spans), max(s.end_ms for s in given.spans)
    others = [
        Span(0, None, "data", None, begin - 5, begin - 2, 0, 0),
        Span(0, None, "collective", None, end - 4, end + 6, 0, 0),
        Span(0, None, "optimizer", None, end + 5, end + 9, 0, 0),
    ]
    (run,) = job_of(given._replace(spans=given.spans + others)).steps[0]
    assert run.around_ms == pytest.approx({"data": 3, "collective": 6, "optimizer": 3})
    assert run.whole_ms == pytest.approx(run.measured_ms + 5 + 9)


def test_a_pipeline_has_messages_memory_and_speeds() -> None:
    job = job_of(table(seconds, replicas=2, steps=range(10), message=0.0005))
    pipeline = job_pipeline(job)
    assert {(a, b): t for a, b, t in pipeline.placement.transfer} == {("F0", "F1"): 500, ("B1", "B0"): 500}
    assert pipeline.placement.memory == (2, 1)
    assert pipeline.speeds[1]["F0"] / pipeline.speeds[0]["F0"] == pytest.approx(1.5, rel=0.01)
    order = measured_orders(job.steps[3][0], job.device)
    assert order[1][:3] == (("F1", 0), ("B1", 0), ("F1", 1))


def test_what_is_not_whole_is_named() -> None:
    given = table(seconds, replicas=2)
    job = job_of(without(given, iteration=1, rank=3, micro_batch=0, kind="B"))
    assert [*job.steps] == [0, 2]
    assert job.lines == ("job: iteration 1 is left out: B1 of micro-batch 0 on rank 3 is missing",)
    some = job_of(without(given, rank=3)._replace(num_replicas=2))
    assert some.lines[0] == "job: replicas [1] are left out: they lack a rank of the pipeline"
    with pytest.raises(TraceError, match="job: stage 0 of 2 is on no rank; give the traces of all ranks"):
        job_of(without(given, stage=0))
    with pytest.raises(TraceError, match="job: has no iteration that is whole"):
        job_of(without(given, micro_batch=0, kind="F", rank=0))
    both = [*given.spans, given.spans[0]._replace(rank=9, stage=1), given.spans[0]._replace(rank=9, stage=2)]
    with pytest.raises(TraceError, match="ranks 2 and 9 both have stage 1, but other stages differ"):
        job_of(given._replace(spans=both))


def test_blocks_before_their_inputs_are_named() -> None:
    given = table(seconds, steps=(0, 1))
    spans = [
        s._replace(start_ms=s.start_ms - 60, end_ms=s.end_ms - 60)
        if s[:4] == (1, 1, "F", 0) and not s.iteration
        else s
        for s in given.spans
    ]
    job = job_of(given._replace(spans=spans))
    assert [*job.steps] == [1]
    assert job.lines[0].startswith(
        "job: iteration 0 is left out: F1 of micro-batch 0 begins 60 ms before the end of F0"
    )
