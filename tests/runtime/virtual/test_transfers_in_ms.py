"""Simulated GPUs take ms and mJ where a placement counts in ticks of 0.25 ms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from quarter_ms import MIXED, PROFILE, SCHEDULE

from runtime.codegen.codegen import generate
from runtime.program.lower import lower
from runtime.virtual.virtual_gpu import SimulatedGpu
from runtime.virtual.virtual_run import VirtualRun, VirtualScripts, run_virtually
from schedsearch.schedule import Schedule

MODEL = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}

ONE_GPU_EACH = Schedule(replace(SCHEDULE.placement, num_gpus=()), 2, SCHEDULE.blocks)


@pytest.fixture
def run(tmp_path: Path) -> VirtualRun:
    generate(lower(ONE_GPU_EACH), MIXED, MODEL, tmp_path)
    gpus = [SimulatedGpu(1100, 50.0) for _ in range(2)]
    return run_virtually(VirtualScripts.read(tmp_path), PROFILE, gpus)


def test_a_transfer_takes_its_ticks_in_ms(run: VirtualRun) -> None:
    """F0 takes 2 and 3 ms at its clocks, its message of 4 ticks 1 ms; B1 5 ms, its message of 6 ticks 1.5."""
    assert run.start_ms == {
        ("F0", 0): 0.0,
        ("F0", 1): 2.0,
        ("F1", 0): 3.0,
        ("F1", 1): 7.0,
        ("B1", 0): 10.0,
        ("B1", 1): 15.0,
        ("B0", 0): 16.5,
        ("B0", 1): 21.5,
    }
    assert run.time_ms == 21.5 + 6.0


def test_energies_are_mj_of_work_and_of_waiting(run: VirtualRun) -> None:
    """Device 0 works 2 + 3 + 4 + 6 ms of 27.5, device 1 works 4 + 3 + 5 + 5; each waits at 50 W."""
    work_mj = (750 + 610 + 1270 + 1110) + (530 + 880 + 1340 + 1340)
    waiting_ms = (27.5 - 15) + (27.5 - 17)
    assert run.energy_mj == pytest.approx(work_mj + 50 * waiting_ms)


def test_messages_are_on_their_way_as_long(run: VirtualRun) -> None:
    sends = [
        (each.producer, each.posted_ms, each.ended_ms) for record in run.records for each in record.sends
    ]
    assert sends == [("F0", 2.0, 3.0), ("F0", 5.0, 6.0), ("B1", 15.0, 16.5), ("B1", 20.0, 21.5)]
    waited = {
        (each.consumer, each.micro_batch): (each.waited_ms, each.ended_ms)
        for record in run.records
        for each in record.receives
    }
    assert waited == {
        ("F1", 0): (0.0, 3.0),
        ("F1", 1): (7.0, 7.0),
        ("B0", 0): (5.0, 16.5),
        ("B0", 1): (20.5, 21.5),
    }
