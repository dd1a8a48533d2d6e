"""The latency of clocks on its way to the scripts, and the clock of torch's GPU, whose UUID is NVML's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from fake_driver import FakeDriver
from small_runs import launched

from placements import ProfileError
from placements.shapes import v_shape
from runtime.clocks import gpu_clock
from runtime.clocks.gpu_clock import open_gpu_clock
from runtime.clocks.latency_file import Change, MeasuredLatency, read_clock_latency
from runtime.clocks.stream_clock import StreamClock
from runtime.codegen.codegen import generate
from runtime.execution import device_context
from runtime.execution.run_options import RunOptions
from runtime.program.calls import BlockCall
from runtime.program.lower import lower
from schedsearch.baselines import gpipe

CHANGES = (Change(600, 1200, (10.0,)), Change(1200, 600, (30.0,)))
MODEL = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return MeasuredLatency("a GPU", "by hand", CHANGES).save(tmp_path / "latency.json")


def test_the_lead_is_the_latency_of_the_clock_that_is_next(
    driver: FakeDriver, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second GPU that NVML knows may be the first that torch sees; the UUID tells."""
    monkeypatch.setattr(gpu_clock, "gpu_uuid", lambda device: "fake-1")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    runs = [BlockCall("F0", 0, 1200), BlockCall("B0", 0, 600)]
    measured = open_gpu_clock(runs, torch.device("cuda", 0), read_clock_latency(table))
    assert isinstance(measured, StreamClock)
    assert [measured._lead_s(mhz) for mhz in (600, 900, 1200)] == [0.03, 0.02, 0.01]
    measured.set(900)
    driver.wait_for("1 lock 900 900")
    measured.reset()
    assert driver.lines() == ["1 reset", "1 lock 900 900", "1 reset"]
    tabled = open_gpu_clock(runs, torch.device("cuda", 0))
    assert isinstance(tabled, StreamClock)
    assert tabled._lead_s(600) == 0.01
    tabled.reset()


def test_processes_are_told_of_the_file(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = RunOptions(clock_latency=table)
    monkeypatch.setattr(os, "environ", os.environ | options.write(tmp_path))
    assert RunOptions.of_environment().clock_latency == table
    assert device_context._latency(options) == read_clock_latency(table)
    assert device_context._latency(RunOptions()) is None


def test_a_wrong_file_is_known_before_the_start(tmp_path: Path, table: Path) -> None:
    generate(lower(gpipe(v_shape(1), 2)), {}, MODEL, tmp_path / "scripts")
    with pytest.raises(ProfileError, match=r"none\.json: cannot be read"):
        launched(tmp_path / "scripts", 1, launcher="in_process", clock_latency=tmp_path / "none.json")
    done = launched(tmp_path / "scripts", 1, launcher="in_process", clock_latency=table)
    assert done.iterations == 1
