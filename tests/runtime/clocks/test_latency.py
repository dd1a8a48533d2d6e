"""Latencies of clocks: measured on the simulated driver, which has known ones, and told to scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_driver import DirectClock, FakeDriver, FakeGpu
from small_runs import trained

from placements import ProfileError
from placements.hardware import ClockLatency
from placements.shapes import v_shape
from runtime.clocks.latency import (
    BLOCK_MS,
    Change,
    LatencyError,
    Probe,
    ProbeAnswer,
    measure,
    read_clock_latency,
    write_clock_latency,
)
from runtime.program.lower import lower
from schedsearch.baselines import gpipe

CLOCKS = range(300, 1800 + 1, 15)
TRIED = (300, 600, 1200, 1800)


def probe_of(gpu: FakeGpu) -> Probe:
    """A probe that computes in virtual time."""

    def look(slower_mhz: int) -> ProbeAnswer:
        begin_ms, millions = gpu.now_ms(), BLOCK_MS * slower_mhz / 1000
        gpu.cycles(millions)
        return ProbeAnswer(begin_ms, 1000 * millions / (gpu.now_ms() - begin_ms))

    return Probe(gpu.now_ms, look, "virtual work")


@pytest.mark.parametrize("latency_ms", [0.0, 3.3, 17.0])
def test_what_is_measured_is_the_latency_of_the_driver(driver: FakeDriver, latency_ms: float) -> None:
    """To within a block of the probe; changes to low clocks take 8 ms longer here."""
    driver.setup(1, CLOCKS, latency_ms)
    driver.slow(700, 8.0)
    gpu = FakeGpu(driver, 0, DirectClock())
    changes = measure(gpu, probe_of(gpu), TRIED, lambda line: None, repeats=2, window_ms=40.0)  # type: ignore[arg-type]
    assert {change[:2] for change in changes} == {(a, b) for a in TRIED for b in TRIED if a != b}
    for change in changes:
        known_ms = latency_ms + (8.0 if change.to_mhz < 700 else 0.0)
        assert len(change.latency_ms) == 2
        for measured_ms in change.latency_ms:
            assert measured_ms == pytest.approx(known_ms, abs=BLOCK_MS)


def test_a_clock_that_comes_after_the_window_is_an_error(driver: FakeDriver) -> None:
    driver.setup(1, CLOCKS, 50.0)
    gpu = FakeGpu(driver, 0, DirectClock())
    with pytest.raises(LatencyError, match="is not in force at the end of the window.*longer --window-ms"):
        measure(gpu, probe_of(gpu), (600, 1200), lambda line: None, 1, 30.0)  # type: ignore[arg-type]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runtime.clock", "latency", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_measures_and_writes_a_file(driver: FakeDriver, tmp_path: Path) -> None:
    """In real time: a busy machine makes the figures larger, or even needs a longer window, as it is told."""
    driver.setup(1, range(500, 2000 + 1, 500), latency_ms=12.0)
    driver.slow(900, 20.0)
    driver.run_in_real_time()
    path = tmp_path / "latency.json"
    for window_ms in (100, 500, 2500):
        done = run(
            "--num-clocks", "3", "--repeats", "1", "--window-ms", f"{window_ms}", "--output", str(path)
        )
        if done.returncode == 0:
            break
        assert "longer --window-ms" in done.stderr
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == (
        f"{path}; use it with: profile.clock_latency={path} energy.dwell_ms=auto energy.switch_ms=auto"
    )
    data = json.loads(path.read_text())
    assert data["gpu"] == "Simulated GPU"
    assert [change[:2] for change in data["changes"]] == [
        [500, 1000], [1000, 500], [500, 2000], [2000, 500], [1000, 2000], [2000, 1000]
    ]  # fmt: skip
    for _, to_mhz, measured_ms in data["changes"]:
        assert min(measured_ms) >= (32.0 if to_mhz < 900 else 12.0)
    table = read_clock_latency(path)
    assert table.to_ms(500) >= 32.0
    assert table.longest_ms >= table.typical_ms >= 12.0
    assert driver.lines()[-1] == "0 reset"


def test_a_clock_is_given_back_when_the_measurement_fails(driver: FakeDriver) -> None:
    driver.setup(1, range(500, 2000 + 1, 500), latency_ms=1e6)
    driver.run_in_real_time()
    done = run("--num-clocks", "2", "--window-ms", "5")
    assert done.returncode == 1
    assert "is not in force at the end of the window" in done.stderr
    assert driver.lines()[-1] == "0 reset"


def test_wrong_arguments_are_named() -> None:
    for option in ("--num-clocks", "--repeats", "--window-ms"):
        done = run(option, "0")
        assert done.returncode == 2
        assert f"argument {option}: '0' is not a whole number of at least" in done.stderr


def test_a_table_takes_medians_and_the_slowest_way_to_a_clock(tmp_path: Path) -> None:
    rows = (600, 1200, (4.0, 5.0, 60.0)), (900, 1200, (7.0,)), (1200, 600, (20.0, 22.0))
    path = write_clock_latency(tmp_path / "latency.json", "a GPU", "by hand", [Change(*row) for row in rows])
    assert read_clock_latency(path) == ClockLatency(
        7.0,
        42.0,
        f"{path}, a GPU: by hand; dwell assumed",
        {600: 21.0, 1200: 7.0},
        {(600, 1200): 5.0, (900, 1200): 7.0, (1200, 600): 21.0},
    )


def test_a_latency_is_linear_between_known_clocks_and_constant_outside() -> None:
    table = ClockLatency(7.0, 42.0, "", {1200: 7.0, 600: 21.0})
    assert [table.to_ms(mhz) for mhz in (300, 600, 900, 1200, 1800)] == [21.0, 21.0, 14.0, 7.0, 7.0]
    assert table.longest_ms == 21.0
    assert ClockLatency(10.0, 20.0, "").to_ms(900) == ClockLatency(10.0, 20.0, "").longest_ms == 10.0


WRONG = [
    ("{", "is not JSON"),
    ('{"changes": []}', r"changes: \[\] is not a list of measured changes"),
    ('{"changes": [[600, 900, [Infinity]]]}', r"changes\[0\]\[2\]\[0\]: inf is not a number of 0 or more"),
    ('{"schema_version": 2, "changes": [1]}', "schema_version: 2 is not known; write 1"),
    ('{"changes": [[600, 1200]]}', r"changes\[0\]: \[600, 1200\] is not \[from_mhz, to_mhz, latency_ms\]"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "latency.json").write_text(text)
    with pytest.raises(ProfileError, match=message):
        read_clock_latency(tmp_path / "latency.json")


TWO_CHANGES = (Change(600, 1200, (10.0,)), Change(1200, 600, (30.0,)))
MODEL = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_clock_latency(tmp_path / "latency.json", "a GPU", "by hand", TWO_CHANGES)


def test_a_wrong_file_is_known_before_the_start(tmp_path: Path, table: Path) -> None:
    programs = lower(gpipe(v_shape(1), 2))
    with pytest.raises(ProfileError, match=r"none\.json: cannot be read"):
        trained(programs, MODEL, clock_latency=tmp_path / "none.json")
    assert trained(programs, MODEL, None, 1, clock_latency=table).iterations == 1
