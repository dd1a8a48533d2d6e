"""Block times come from traces of our own runs and of torch's profiler."""

import csv
import json
from pathlib import Path

import pytest
import torch
from commands import one_line_error
from perfetto_rules import read_events, thread_of
from torch.profiler import ProfilerActivity, profile, record_function

SMALL = ["runtime.hidden_size=8", "runtime.sequence_length=8", "search.num_micro_batches=3"]
TWO_STAGES = ["placement=v_shape", "placement.num_devices=2"]


def times_ms(path: Path) -> dict[str, float]:
    with path.open(newline="") as file:
        return {row["block"]: 1e3 * float(row["time"]) for row in csv.DictReader(file)}


def test_a_run_of_ours_gives_the_times_of_its_blocks(ran, tmp_path: Path) -> None:
    run = [*TWO_STAGES, "runtime.launcher=in_process", "runtime.trace=true", *SMALL]
    ran("run", *run)
    (tmp_path / "out").rename(tmp_path / "run")
    trace = tmp_path / "run/trace.json"
    ran("profile", *TWO_STAGES, f"profiling.trace={trace}")
    measured: dict[str, list[float]] = {}
    events = read_events(trace)
    for event in (event for device in (0, 1) for event in thread_of(events, device, "measured")):
        measured.setdefault(event["args"]["block"], []).append(event["args"]["measured_ms"])
    times = times_ms(tmp_path / "out/profile.csv")
    assert times.keys() == {"F0", "F1", "B0", "B1"} == measured.keys()
    for block, recorded in measured.items():
        assert min(recorded) - 0.002 <= times[block] <= max(recorded) + 0.002
        runs = sorted(recorded)
        assert times[block] == pytest.approx((runs[len(runs) // 2] + runs[~(len(runs) // 2)]) / 2, abs=0.002)
    ran("search", "placement=profiled", f"placement.path={tmp_path / 'out'}")


def test_torch_profiles_are_read(ran, tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for micro_batch in range(3):
            for stage in range(2):
                with record_function(f"PP:{stage}F{micro_batch}"):
                    torch.ones(64, 64) @ torch.ones(64, 64)
    profiled.export_chrome_trace(str(tmp_path / "torch.json.gz"))
    done = ran("profile", *TWO_STAGES, f"profiling.trace={tmp_path / 'torch.json.gz'}")
    spans = {event.key: event.cpu_time_total / 1e3 for event in profiled.key_averages()}
    runs = [[spans[f"PP:{stage}F{n}"] for n in range(3)] for stage in range(2)]
    times = times_ms(tmp_path / "out/profile.csv")
    assert times == pytest.approx({f"F{stage}": sorted(runs[stage])[1] for stage in range(2)}, abs=0.002)
    assert "not run: B1, B0; their times stay as they are" in done.stdout


def test_blocks_of_another_placement_are_refused(command, tmp_path: Path) -> None:
    event = {"ph": "X", "name": "PP:5F0", "ts": 1, "dur": 3, "pid": 1, "tid": 1}
    (tmp_path / "t.json").write_text(json.dumps([event]))
    done = command("profile", *TWO_STAGES, f"profiling.trace={tmp_path / 't.json'}")
    assert "has the block F5, and v_shape has F0, F1, B1, B0; give the placement" in one_line_error(done)
