"""Blocks profiled in the midst of a schedule, on simulated GPUs whose power model the profiler does not know.

The generated scripts run in threads of one process. Their blocks compute as ever, and take virtual time on a
GPU for each device; where devices meet, the early ones wait at the blocking power.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_driver import DirectClock, FakeDriver, FakeGpu
from small_runs import launched

from placements import Placement
from placements.shapes import m_shape, v_shape
from runtime.codegen.codegen import generate
from runtime.execution import device_context
from runtime.execution.measurement import Measurement
from runtime.models import Blocks
from runtime.profiling import device_profiler
from runtime.profiling.device_profiler import DeviceProfiler
from runtime.profiling.profiler import Profiler, Sweep, blocking_by_clock, merged
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule

CLOCKS = range(300, 1800 + 1, 150)
FEW_CLOCKS = CLOCKS[::2]
MODEL = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}
IDLE_W, IDLE_W_PER_MHZ = 40.0, 0.02


def cycles(placement: Placement, block: str) -> float:
    """Return the millions of cycles of a block; no two alike."""
    return 30.0 + 7.0 * [each.name for each in placement.blocks].index(block)


def energy_mj(time_ms: float, clock_mhz: int) -> float:
    return time_ms * (75 + 425 * (clock_mhz / CLOCKS[-1]) ** 3)


class Pipeline:
    """Virtual GPUs below the scripts of a schedule."""

    def __init__(
        self,
        driver: FakeDriver,
        schedule: Schedule,
        monkeypatch: pytest.MonkeyPatch,
        clocks_mhz: Sequence[int] = CLOCKS,
    ) -> None:
        self.clocks_mhz = clocks_mhz
        self.placement = schedule.placement
        self.gpus = [FakeGpu(driver, d, DirectClock(d)) for d in range(self.placement.num_devices)]
        self.arrived_ms = [0.0] * len(self.gpus)
        self.draw = random.Random(3)
        pipeline, compute = self, Blocks.run

        class Virtual(DeviceProfiler):
            def __init__(self, sweep: Sweep, placement: Placement, transport: Any, *more: Any) -> None:
                super().__init__(sweep, placement, transport, *more)
                gpu = self._gpu = pipeline.gpus[self._device]
                self.profiler = Profiler(
                    gpu,
                    sweep,
                    gpu,  # type: ignore[arg-type]
                    pipeline.clocks_mhz,
                    settle=gpu.settle,
                    meet=lambda kind: self._meet(placement.by_name[kind].devices),
                    align=gpu.align if pipeline.aligns else None,
                )

            def _meet(self, team: Sequence[int]) -> None:
                """Wait in virtual time too, for the device that comes last."""
                pipeline.arrived_ms[self._device] = self._gpu.now_ms()
                self._transport.meet(team)
                self._gpu.wait(max(pipeline.arrived_ms[other] for other in team) - self._gpu.now_ms())

            def _receive(self, *arguments: Any) -> None:
                super()._receive(*arguments)
                self._gpu.wait(700.0)

        def run_block(blocks: Blocks, block: str, micro_batch: int, arrived: Any, mode: str) -> Any:
            position = pipeline.running.pop()
            pipeline.gpus[position].cycles(cycles(pipeline.placement, block))
            return compute(blocks, block, micro_batch, arrived, mode)

        begin = Profiler.begin

        def begin_late(profiler: Profiler, kind: str) -> None:
            """Come to a block whenever its tensors do."""
            index = next(d for d, gpu in enumerate(self.gpus) if gpu is profiler.meter)
            self.gpus[index].wait(self.draw.uniform(0.0, 200.0))
            begin(profiler, kind)
            self.running.append(index)

        self.aligns = False
        self.running: list[int] = []
        monkeypatch.setattr(device_context, "DeviceProfiler", Virtual)
        monkeypatch.setattr(device_profiler, "WAIT_S", 0.0)
        monkeypatch.setattr(Blocks, "run", run_block)
        monkeypatch.setattr(Profiler, "begin", begin_late)


def profiled(schedule: Schedule, sweep: Sweep, directory: Path) -> Measurement:
    generate(lower(schedule), {}, MODEL, directory)
    devices = schedule.placement.num_devices
    return launched(directory, devices, 1000, launcher="in_process", sweep=sweep)


@pytest.mark.parametrize(
    ("schedule", "counter_period_ms"),
    [(one_f_one_b(v_shape(2), 2), 0.0), (gpipe(m_shape(2), 2), 10.0)],
    ids=["v_shape", "m_shape"],
)
def test_the_profile_is_the_power_model_at_every_clock(
    driver: FakeDriver,
    schedule: Schedule,
    counter_period_ms: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No block has the waiting of its devices in it, though that is longer than the block at times."""
    driver.setup(2, FEW_CLOCKS, 10.0, counter_period_ms, IDLE_W)
    driver.wait_by_clock(IDLE_W_PER_MHZ)
    pipeline = Pipeline(driver, schedule, monkeypatch, FEW_CLOCKS)
    pipeline.aligns = counter_period_ms > 0
    found = profiled(schedule, Sweep(iterations=2, rises=100, blocking_clocks=3), tmp_path)
    costs = merged(found.profiles)
    assert costs.keys() == schedule.placement.by_name.keys()
    for block, by_clock in costs.items():
        assert [cost.clock_mhz for cost in by_clock] == list(FEW_CLOCKS)
        for cost in by_clock:
            assert cost.clock_mhz is not None
            time_ms = 1000 * cycles(schedule.placement, block) / cost.clock_mhz
            assert cost.time_ms == pytest.approx(time_ms, rel=1e-9)
            assert cost.energy_mj == pytest.approx(energy_mj(time_ms, cost.clock_mhz), rel=1e-2)
    power_w = blocking_by_clock(found.profiles)
    assert list(power_w) == [1800, 1200, 300]
    for clock_mhz, watts in power_w.items():
        assert clock_mhz is not None
        assert watts == pytest.approx(IDLE_W + IDLE_W_PER_MHZ * clock_mhz, rel=0.02)
