from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from one_line_errors import raises_line

from schedsearch.traces.block_times import BlockTimes, block_times
from schedsearch.traces.table import TraceError


def label(name: str, begin_us: float, time_us: float, **rest: object) -> dict[str, object]:
    place = {"pid": 7, "tid": 7, "cat": "user_annotation"}
    return {"ph": "X", "name": name, "ts": begin_us, "dur": time_us} | place | rest


def launched(correlation: int, at_us: float, begin_us: float, time_us: float, **rest: object) -> list[object]:
    """A launch by torch's thread for backwards, and its kernel."""
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 8, "ts": at_us, "dur": 4}
    kernel = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 3, "ts": begin_us, "dur": time_us} | rest
    return [{"ph": "X", "args": {"correlation": correlation}} | event for event in (launch, kernel)]


def write(path: Path, events: list[object], **rest: object) -> Path:
    path.write_text(json.dumps({"traceEvents": events} | rest))
    return path


def once(time_ms: float) -> BlockTimes:
    return BlockTimes(time_ms, time_ms, time_ms, 1)


def test_the_labels_of_torch_are_blocks(tmp_path: Path) -> None:
    events = [label("PP:3F1", 0, 2000), label("PP:3I1", 2500, 3500), label("PP:3UNSHARD", 9000, 5)]
    events += [label("PP:3I2", 2500, time) for time in (4000, 9000)]
    times = block_times(write(tmp_path / "t.json", events))
    assert times == {"F3": once(2.0), "I3": BlockTimes(4.0, 3.5, 9.0, 3)}


def test_kernels_say_how_long_a_block_runs(tmp_path: Path) -> None:
    """From the first kernel's begin to the last one's end, whichever thread launched them, without NCCL's."""
    events = [
        label("PP:0B0", 100, 100),
        label("PP:0B0", 3000, 2500, cat="gpu_user_annotation", pid=0, tid=3),
        *launched(1, 110, 3000, 400),
        *launched(2, 199, 4500, 1000),
        *launched(3, 150, 2000, 9000, name="ncclDevKernel_SendRecv"),
        *launched(4, 900, 9000, 1000),
        label("PP:0F1", 500, 250),
    ]
    times = block_times(write(tmp_path / "t.json", events))
    assert times == {"B0": once(2.5), "F0": once(0.25)}


def test_kinds_may_be_words(tmp_path: Path) -> None:
    events = [label("forward stage 2 mb 5", 0, 1000), label("backward weights stage 2 mb 4", 1000, 500)]
    times = block_times(write(tmp_path / "t.json", events), r"(?P<kind>\w+( weights)?) stage (?P<stage>\d+)")
    assert times == {"F2": once(1.0), "W2": once(0.5)}


def test_a_folder_has_a_trace_for_each_rank(tmp_path: Path) -> None:
    """The labels of torch's schedules of one stage say no stage: it is the rank."""
    for rank in range(2):
        events = [label("Forward 0", 0, 1000 + rank), label("Backward 0", 2000, 3000)]
        text = json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events})
        (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
    times = block_times(tmp_path)
    assert times == {"F0": once(1.0), "B0": once(3.0), "F1": once(1.001), "B1": once(3.0)}


def test_a_pattern_may_name_the_block(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [label("block E", 0, 1000)])
    assert block_times(path, r"block (?P<block>\w+)") == {"E": once(1.0)}


@pytest.mark.parametrize(
    ("text", "pattern", "message"),
    [
        ("{", None, "t.json: is not JSON"),
        ('[{"ph": "M"}, oops, {"ph": "X"}]', None, "t.json: is not JSON"),
        ('[{"ph": "X", "ts": Infinity, "dur": 3}]', None, "traceEvents[0].ts: inf is not a time; give micro"),
        ('[{"ph": "X", "ts": 1, "dur": NaN}]', None, "traceEvents[0].dur: nan is not a time; give micro"),
        ('[{"ph": "X", "name": "PP:0F0", "ts": 1, "dur": 0}]', None, "t.json: F0 takes 0 ms in most runs; "),
        (
            '[{"ph": "X", "name": "PP:(0F1;3B0)OVERLAP_F_B", "ts": 1, "dur": 9}]',
            None,
            "t.json: F0 ran only within 'PP:(0F1;3B0)OVERLAP_F_B', which does not tell its blocks'",
        ),
        ('[{"ph": "X", "name": "PP:0F0", "dur": 3}]', None, "traceEvents[0]: lacks the field 'ts'; add it"),
        ('[{"ph": "X", "ts": 1, "dur": -3}]', None, "traceEvents[0].dur: -3 is not a time; give micro"),
        ('[{"ph": "X", "name": "step", "ts": 1, "dur": 3}]', None, "it has 'step'; give a pattern with the"),
        ("[]", "(", "pattern: '(' is no regular expression"),
        ("[]", "step", "pattern: names no block; add a group (?P<kind>...) or (?P<block>...)"),
        ("[]", "(?P<kind>.)(?P<rank>.)", "pattern: has an unknown group 'rank'; the groups are block, stage"),
        ('[{"ph": "X", "name": "F", "ts": 1, "dur": 3}]', "(?P<kind>F)", "label 'F': says no stage, and the"),
        ('[{"ph": "X", "name": "x", "ts": 1, "dur": 3}]', "(?P<kind>x)", "label 'x': 'x' is no kind; let"),
    ],
)  # fmt: skip
def test_a_wrong_trace_is_one_line(tmp_path: Path, text: str, pattern: str | None, message: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with raises_line(TraceError, has=message):
        block_times(tmp_path / "t.json", pattern)


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        block_times(tmp_path / "none.json")
    with pytest.raises(TraceError, match="has no .json"):
        block_times(tmp_path)
    (tmp_path / "broken.json.gz").write_bytes(gzip.compress(b"[]")[:-4])
    with pytest.raises(TraceError, match="is not JSON, packed by gzip or not"):
        block_times(tmp_path / "broken.json.gz")
