"""Runs of one batch of micro-batches that differ: searched, planned, simulated, run and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import refusal

from runtime.codegen.script import programs_of, read_scripts
from schedsearch.schedule_file import read_schedule

LENGTHS = [4, 24, 8, 12]
OPTIONS = [
    *("placement=v_shape", "placement.num_devices=2", "search.work_limit=1", "energy.num_plans=3"),
    *("energy.slowdown=1.1", "runtime.launcher=in_process", "runtime.device=cpu", "runtime.hidden_size=8"),
]


def table(path: Path, changed: str = "") -> str:
    rows = [
        f"{n},{block},{time * length}"
        for n, length in enumerate(LENGTHS)
        for block, time in (("F0", 1), ("F1", 1), ("B1", 2), ("B0", 2))
    ]
    path.write_text("\n".join(["micro_batch,block,time_ms", *rows, changed]))
    return f"search.micro_batches={path}"


def test_a_batch_is_searched_planned_simulated_run_and_compared(ran, tmp_path: Path) -> None:
    done = ran(
        "run",
        *(*OPTIONS, table(tmp_path / "batch.csv"), f"runtime.sequence_lengths={LENGTHS}".replace(" ", "")),
        *("runtime.simulated_gpus=true", "runtime.trace=true", "runtime.iterations=2", "runtime.verify=all"),
    )
    out = tmp_path / "out"
    schedule = read_schedule(out / "schedule.json")
    tick_ms = schedule.placement.tick_ms
    assert [schedule.block("F0", n).time * tick_ms for n in range(4)] == pytest.approx(LENGTHS)
    scripts = read_scripts(out / "scripts")
    assert programs_of(scripts).chosen == schedule.chosen
    assert scripts[0].model.sequence_lengths == tuple(LENGTHS)
    measured = json.loads((out / "measurement.json").read_text())
    assert measured["bitwise_equal"] and measured["max_gradient_error"] == 0
    simulated = json.loads((out / "simulated.json").read_text())
    plan = json.loads((out / "plan.json").read_text())
    assert simulated["time_ms"] == pytest.approx(plan["time_ms"]), "virtual GPUs run what was planned"
    assert "The searched schedule takes" in done.stdout


def test_what_a_run_cannot_do_is_refused_before_the_search(tmp_path: Path) -> None:
    given, out = table(tmp_path / "batch.csv"), tmp_path / "out"
    error = refusal("run", [*OPTIONS, given, "runtime.sequence_lengths=[1,2,3]"], out)
    assert error.startswith("runtime.sequence_lengths: has 3 lengths for 4 micro-batches")
    error = refusal("run", [*OPTIONS, given, "runtime.sequence_lengths=[1,2,3,99]"], out)
    assert error.startswith("runtime.sequence_lengths: 99 is more than sequence_length, 64; use less")
    lengths = "runtime.sequence_lengths=[4,24,8,12]"
    error = refusal("run", [*OPTIONS, given, lengths, "runtime.programs=folder"], out)
    assert error.startswith("runtime.clocks: true makes clocks for one order of the blocks")
    absent = table(tmp_path / "batch.csv", "4,F0,0\n4,B0,0\n")
    error = refusal("run", [*OPTIONS, absent], out)
    assert error.startswith(
        "search.micro_batches: F0 does not run as micro-batch 4, where its time is 0, but F1"
    )
