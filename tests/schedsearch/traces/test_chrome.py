"""Tables from traces of torch's profiler: made by torch here, and written as it writes them on GPUs."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from one_line_errors import raises_line
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.profiler import ProfilerActivity, profile, schedule

from schedsearch.traces import chrome
from schedsearch.traces.chrome import read_chrome
from schedsearch.traces.table import Span, TraceError

MICRO_BATCHES = 4
STAGES = {"GPipe": ([0], [1]), "Interleaved1F1B": ([0, 2], [1, 3]), "ZBVZeroBubble": ([0, 3], [1, 2])}
"""Stages of each rank, by schedule."""


def train(folder: Path, name: str, rank: int) -> None:
    """Run two iterations of a rank under torch's profiler."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    ids, last = STAGES[name][rank], max(map(max, STAGES[name]))
    model = nn.ModuleList(nn.Linear(8, 8) for _ in ids)
    stages = [PipelineStage(*stage, last + 1, torch.device("cpu")) for stage in zip(model, ids, strict=True)]
    kind = get_schedule_class(name)
    run = kind(stages if last > 1 else stages[0], MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters())
    steps = schedule(wait=1, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps) as profiled:
        for _ in range(4):
            inputs, targets = (torch.ones(8, 8) for _ in range(2))
            run.step(*([inputs] if 0 in ids else []), **({"target": targets} if last in ids else {}))
            optimizer.step()
            profiled.step()
    profiled.export_chrome_trace(str(folder / f"trace_{rank}.json.gz"))
    dist.destroy_process_group()


@pytest.mark.parametrize("name", STAGES)
def test_a_run_of_torch_becomes_a_table(name: str, tmp_path: Path) -> None:
    fork = get_context("fork")
    processes = [fork.Process(target=train, args=(tmp_path, name, rank), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
    table = read_chrome(tmp_path)
    assert not table.lines
    assert not table.is_one_clock
    blocks = [(span.iteration, span.rank, span.stage, span.kind, span.micro_batch) for span in table.spans]
    assert sorted(block for block in blocks if block[3] in "FBIW") == sorted(
        (step, rank, stage, kind, n)
        for step in (2, 3)
        for rank, stages in enumerate(STAGES[name])
        for stage in stages
        for kind in ("FIW" if name == "ZBVZeroBubble" else "FB")
        for n in range(MICRO_BATCHES)
    )
    assert sorted(block for block in blocks if block[3] == "optimizer") == [
        (step, rank, None, "optimizer", None) for step in (2, 3) for rank in range(2)
    ]
    for rank in range(2):  # a block begins when its input has come, and blocks of a rank follow each other
        spans = sorted(span[4:6] for span in table.spans if span.rank == rank and span.kind in "FBIW")
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    spans = {(*span[1:4], span.iteration): span[4:6] for span in table.spans}
    assert all(spans[0, "F", n, 3][1] <= spans[1, "F", n, 3][0] for n in range(MICRO_BATCHES))


def span(kind: str, name: str, begin_us: float, time_us: float, **rest: object) -> dict[str, object]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 7, "ts": begin_us, "dur": time_us} | rest


def launched(key: int, at_us: float, kernel: str, begin_us: float, time_us: float) -> list[object]:
    arguments = {"args": {"correlation": key}}
    launch = span("cuda_runtime", "cudaLaunchKernel", at_us, 4, **arguments)
    return [launch, span("kernel", kernel, begin_us, time_us, **arguments, pid=0)]


def on_gpu(rank: int) -> str:
    """A trace of a rank with kernels: two pipelines of two ranks, whose stages their rank tells."""
    annotation = "user_annotation"
    events = [
        span("python_function", "megatron/core/schedules.py(289): forward_step", 0, 100),
        *launched(1, 10, "gemm", 1000, 500),
        *launched(2, 20, "ncclDevKernel_AllReduce", 1500, 250),
        *launched(3, 30, "gemm", 2000, 250),
        *launched(4, 300, "ncclDevKernel_SendRecv", 3000, 500),
        span(annotation, "Optimizer.step#Adam.step", 400, 100),
        *launched(5, 410, "adam", 4000, 1000),
        span(annotation, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 500, 250),
        span(annotation, "PP:(0F1;1B0)OVERLAP_F_B", 800, 50),
        span(annotation, "PP:0F1", 900, 50),
        span(annotation, "PP:1B0", 950, 50),
        span(annotation, "ProfilerStep#5", 0, 700),
    ]
    groups = [{"pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": [rank % 2, rank % 2 + 2]}]
    head = {"rank": rank, "pg_config": groups}
    return json.dumps(
        {"distributedInfo": head, "traceEvents": events, "baseTimeNanoseconds": 10**18 + 10**6 * rank}
    )


def test_kernels_and_process_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of a chunk, and with the ranks' clocks, of which each begins 1 ms after the last."""
    paths = [tmp_path / f"{rank}.json" for rank in (1, 2)]
    for rank, path in enumerate(paths, 1):
        path.write_text(on_gpu(rank))
    table, seen = read_chrome(paths), list[object]()
    for chunk in (300, 997):
        monkeypatch.setattr(chrome, "_CHUNK", chunk)
        assert read_chrome(tmp_path, None, lambda *event: seen.append(event)).spans == table.spans
    assert seen
    assert table.num_stages == 2
    assert table.lines[0].endswith(
        "1 labels such as 'PP:(0F1;1B0)OVERLAP_F_B' were left out, which name no one block of a stage"
    )
    for rank, stage, replica, offset in ((1, 0, 1, 0.0), (2, 1, 0, 1.0)):
        assert [span for span in table.spans if span.rank == rank and span.iteration is not None] == [
            Span(rank, at, kind, None, begin + offset, end + offset, 5, replica)
            for at, kind, begin, end in [
                (stage, "F", 1.0, 2.25),
                (None, "optimizer", 4.0, 5.0),
                (None, "data", 0.5, 0.75),
                (stage, "collective", 1.5, 1.75),
                (None, "message", 3.0, 3.5),
            ]
        ]


def test_broken_traces_are_refused_by_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json.gz"
    good = [json.dumps(span("user_annotation", f"PP:0F{n}", n, 1)) for n in range(50)]
    monkeypatch.setattr(chrome, "_CHUNK", 100)
    for line in (1, 20, 50):
        wrong = [*good[: line - 1], good[0][:-1] + ', "args": oops}', *good[line:]]
        path.write_bytes(gzip.compress(("[" + ",\n".join(wrong) + "]").encode()))
        with raises_line(
            TraceError, str(path), has=f"is not JSON, packed by gzip or not (Expecting value in line {line})"
        ):
            read_chrome(path)
    path.write_text("[" + ",\n".join(good))
    with raises_line(TraceError, str(path), has="in line 50); give a whole trace"):
        read_chrome(path)


def test_interleaved_stages_of_megatron_need_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "rank3.json"
    path.write_text(
        json.dumps([span("", "core/schedules.py(9): forward_step_helper", 0, 9), span("", "f 1 mb 2", 0, 9)])
    )
    with raises_line(TraceError, str(path), has="Megatron-LM ran interleaved stages, and its labels do not "):
        read_chrome(path)
    spans = read_chrome([path], r"(?P<kind>f) (?P<chunk>\d) mb (?P<micro_batch>\d)").spans
    assert spans == [Span(3, 4, "F", 2, 0.0, 0.009)]
