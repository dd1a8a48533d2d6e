"""The life of a job by one command: it profiles in its first iterations, uploads, and follows plans."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import refusal, run_here
from fake_driver import DirectClock, FakeDriver, FakeGpu
from small_runs import SMALL_GPT, launched
from torch import Tensor

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.execution import device_context
from runtime.launching.launch import LaunchError
from runtime.models import Blocks
from runtime.plans.plan_client import JOB_VARIABLE, SERVER_VARIABLE, DeployedPlan, ServerClient
from runtime.profiling import device_profiler
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.profiler import Profiler, Sweep
from runtime.program.lower import lower
from schedsearch.baselines import gpipe
from schedsearch.energy import Frontier

CYCLES = {"F0": 30.0, "B0": 60.0, "F1": 15.0, "B1": 30.0}
"""Millions, of each block: the second stage has time to spare."""

CLOCKS = range(600, 1800 + 1, 300)


class Plans:
    """Waits for the first plan, has a straggler come, and waits for the plan beside it; all in the run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.client, self.job = ServerClient(environment[SERVER_VARIABLE]), environment[JOB_VARIABLE]
        self.calls = 0

    def at_iteration_boundary(self) -> DeployedPlan | None:
        self.calls += 1
        if self.calls == 1:
            self.client.wait_until_ready(self.job)
            return self.client.deployed(self.job)
        if self.calls == 3:
            self.client.set_straggler(self.job, 7, 0.0, 1.5)
            return self.client.deployed(self.job, newer_than=1, wait_s=60)
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def simulated(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of forked processes compute on the CPU, in the time and with the energy of simulated GPUs."""
    driver.setup(2, CLOCKS)
    gpus: list[FakeGpu] = []

    class OfSimulatedGpu(DeviceProfiler):
        def __init__(self, sweep: Sweep, placement: Any, transport: Any, *more: Any) -> None:
            super().__init__(sweep, placement, transport, *more)
            device = more[1]
            gpu = FakeGpu(driver, device, DirectClock(device))
            gpus.append(gpu)
            meet = self.profiler.meet
            few = Sweep(iterations=1, rises=2)
            self.profiler = Profiler(gpu, few, gpu, CLOCKS, settle=gpu.settle, meet=meet)  # type: ignore[arg-type]
            self.profiler.power_w = lambda wait: (wait(), 60.0)[1]  # type: ignore[method-assign]

    run = Blocks.run

    def run_and_count(
        self: Blocks, block: str, micro_batch: int, arrived: Sequence[Tensor], mode: str = "keep"
    ) -> Mapping[str, Tensor]:
        made = run(self, block, micro_batch, arrived, mode)
        if gpus:
            gpus[0].cycles(CYCLES[block])
        return made

    monkeypatch.setattr(device_profiler, "WAIT_S", 0.0)
    monkeypatch.setattr(device_context, "DeviceProfiler", OfSimulatedGpu)
    monkeypatch.setattr(device_context, "open_gpu_clock", lambda *_: DirectClock(int(gpus[0]._index)))
    monkeypatch.setattr(device_context, "plans_from_environment", lambda: Plans(os.environ))
    monkeypatch.setattr(Blocks, "run", run_and_count)


SMALL = (
    *("placement=v_shape", "placement.num_devices=2", "search.num_micro_batches=3", "energy.orders=1"),
    "energy.num_plans=8",
    *("runtime.hidden_size=8", "runtime.num_heads=2", "runtime.sequence_length=8", "runtime.launcher=fork"),
)


def test_a_job_profiles_uploads_and_follows_its_plans(simulated: None, tmp_path: Path) -> None:
    """The command runs in this process; the devices are its forks and see the simulated driver."""
    more = ("runtime.server=own", "runtime.profile_online=true", "runtime.iterations=14")
    run_here("run", [*SMALL, *more], tmp_path / "out")
    measurement = json.loads((tmp_path / "out/measurement.json").read_text())
    frontier = Frontier.from_json(tmp_path / "out/served_frontier.json")
    (first, one, shortest_ms), (second, two, longer_ms) = measurement["plans"]
    assert (one, two, second) == (1, 2, first + 2)
    assert shortest_ms == frontier.shortest.time_ms < longer_ms == frontier.at(1.5 * shortest_ms).time_ms
    assert first <= 1 + len(CLOCKS), "one iteration warms up, then there is one at each clock"
    for device in (0, 1):
        orders = measurement["clock_requests"][str(device)]
        plan = frontier.shortest.clock_mhz
        assert set(orders) <= set(CLOCKS)
        assert sorted(orders[:12]) == sorted(2 * [*plan[f"F{device}"], *plan[f"B{device}"]])
    assert measurement["bitwise_equal"] is True


def test_what_measures_no_energy_or_has_no_server_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    generate(lower(gpipe(v_shape(2), 2)), {}, SMALL_GPT, tmp_path)
    with pytest.raises(LaunchError, match="profile_online: there is no server to upload to; set SCHEDSEARCH"):
        launched(tmp_path, 2, 1, launcher="in_process", profile_online=True)
    monkeypatch.setenv(SERVER_VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setenv(JOB_VARIABLE, "none")
    with pytest.raises(LaunchError, match=r"device . cannot measure energies by clock \(no GPU: times"):
        launched(tmp_path, 2, 1, launcher="in_process", profile_online=True)


def test_a_run_without_devices_needs_no_server(tmp_path: Path) -> None:
    line = refusal("run", [*SMALL, "runtime.server=own", "runtime.launcher=none"], tmp_path / "out")
    assert line.startswith("runtime.server: nothing is started that could")
