"""A clock of a script is changed: the change acts, in runs and on virtual GPUs, or is refused in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from four_clocks import four_clocks
from places import GOLDEN
from small_runs import SYNTHETIC, change, launched

from placements.shapes import m_shape, v_shape
from runtime.check import check_file, main
from runtime.clocks.periodic_clocks import PeriodicClocks
from runtime.codegen.codegen import generate
from runtime.codegen.script import programs_of, read_script, read_scripts
from runtime.launching.launch import LaunchError
from runtime.profiling.profiler import Sweep
from runtime.program.calls import ScriptError
from runtime.program.lower import lower
from runtime.virtual.virtual_gpu import VirtualGpu
from runtime.virtual.virtual_run import run_virtually
from schedsearch.baselines import gpipe, one_f_one_b, one_f_one_b_plus

"""What device 0 of `v_shape` runs."""

PERIODIC = {
    "F0": PeriodicClocks([1410, 1395], 1200, [1410]),
    "F1": PeriodicClocks([1410], 1410, [1410]),
    "B1": PeriodicClocks([1410], 1410, [1410]),
    "B0": PeriodicClocks([1410], 1305, [1380, 1410]),
}


@pytest.fixture
def v_scripts(tmp_path: Path) -> Path:
    """The golden scripts of 1F1B on two devices: device 0 has a table for B0, device 1 none."""
    return Path(shutil.copytree(GOLDEN / "scripts", tmp_path / "v_shape"))


@pytest.fixture
def periodic(tmp_path: Path) -> Path:
    """Scripts for any number of micro-batches: device 0 has a table for both blocks."""
    generate(lower(one_f_one_b(v_shape(2), 8)), PERIODIC, SYNTHETIC, tmp_path)
    return tmp_path


def clocks_of(script: Path, block: str, num_micro_batches: int | None = None) -> list[int | None]:
    calls = read_script(script).at(num_micro_batches).calls
    return [run.clock_mhz for run in calls.runs if run.block == block]


def test_a_changed_argument_acts(v_scripts: Path) -> None:
    change(v_scripts / "device_0.py", '"F0", n + 1, clock_mhz=1410', '"F0", n + 1, clock_mhz=1305')
    assert "finish even if" in check_file(v_scripts)
    run = launched(v_scripts, 2, 1, launcher="in_process")
    assert run.clock_requests[0] == (1410, 1305, 1410, 1305, 1395, 1305, 1380, 1410)
    assert run.comparison.bitwise_equal


def test_changed_clocks_of_any_number_of_micro_batches_act(periodic: Path) -> None:
    script = periodic / "device_0.py"
    change(script, "steady=1200, last=[1410]", "steady=[1110, 1125], last=[1380, 1365]")
    assert clocks_of(script, "F0") == [1410, 1395, 1110, 1125, 1110, 1125, 1380, 1365]
    assert clocks_of(script, "F0", 5) == [1410, 1395, 1110, 1380, 1365]
    run = launched(periodic, 2, 1, launcher="in_process", num_micro_batches=5)
    assert [*run.clock_requests[0]] == [run.clock_mhz for run in read_script(script).at(5).calls.runs]


def test_a_changed_clock_acts_on_virtual_gpus(tmp_path: Path) -> None:
    """The last block of the iteration runs at half of its clock."""
    placement = v_shape(2)
    profile = four_clocks(placement)
    generate(lower(gpipe(placement, 2)), {b.name: [1200] * 2 for b in placement.blocks}, SYNTHETIC, tmp_path)

    def time_ms() -> float:
        gpus = [VirtualGpu(1200, 50.0) for _ in range(2)]
        return run_virtually(programs_of(read_scripts(tmp_path)), profile, gpus).time_ms

    before_ms = time_ms()
    change(tmp_path / "device_0.py", '"B0", n, clock_mhz=1200', '"B0", n, clock_mhz=[1200, 600][n]')
    assert time_ms() == pytest.approx(before_ms + placement.by_name["B0"].time)
    change(tmp_path / "device_0.py", "[1200, 600][n]", "[1200, 615][n]")
    message = "B0 of micro-batch 1 has clock_mhz=615, at which the profile has no cost; use 600 or 800"
    with pytest.raises(ScriptError, match=message):
        time_ms()


@pytest.mark.parametrize("clock", ["0", "1305.0", "True"])
def test_a_clock_that_is_no_whole_number_is_refused(
    clock: str, v_scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = v_scripts / "device_1.py"
    line = change(script, '"F1", 0, clock_mhz=1410', f'"F1", 0, clock_mhz={clock}')
    assert main([str(v_scripts)]) == 2
    assert capsys.readouterr().err == (
        f"{script}: line {line}: F1 of micro-batch 0 has clock_mhz={clock}; give whole MHz above 0\n"
    )
    with pytest.raises((ScriptError, LaunchError), match="give whole MHz above 0"):
        launched(v_scripts, 2, 1, launcher="in_process")


def test_a_clock_that_the_table_lacks_is_refused(v_scripts: Path) -> None:
    script = v_scripts / "device_0.py"
    change(script, "[1410, 1395, 1380, 1410]", "[1410, 1395]")
    with pytest.raises(ScriptError) as error:
        check_file(v_scripts)
    assert str(error.value).startswith(f"{script}: line ")
    assert """fails (IndexError: list index out of range) in 'device.backward("B0", n, """ in str(error.value)


def test_a_block_without_a_clock_beside_others_that_have_one_is_refused(v_scripts: Path) -> None:
    script = v_scripts / "device_1.py"
    line = change(script, '"B1", 0, clock_mhz=1410', '"B1", 0')
    with pytest.raises(ScriptError) as error:
        check_file(v_scripts)
    assert str(error.value) == (
        f"{script}: line {line}: B1 of micro-batch 0 has no clock_mhz, but F1 of micro-batch 0 has (line "
        f"{line - 2}); give one to all blocks of the script, or to none"
    )


def test_a_script_may_leave_all_its_clocks_alone(v_scripts: Path) -> None:
    script = v_scripts / "device_1.py"
    script.write_text(script.read_text().replace(", clock_mhz=1410", ""))
    run = launched(v_scripts, 2, 1, launcher="in_process")
    assert (len(run.clock_requests[0]), run.clock_requests[1]) == (8, ())


def test_a_block_of_several_devices_has_one_clock(tmp_path: Path) -> None:
    placement = m_shape(2)
    clocks = {block.name: [1410] * 4 for block in placement.blocks}
    generate(lower(one_f_one_b_plus(placement, 4)), clocks, SYNTHETIC, tmp_path)
    assert "finish even if" in check_file(tmp_path)
    change(tmp_path / "device_1.py", '"E", 0, clock_mhz=1410', '"E", 0, clock_mhz=1200')
    with pytest.raises(ScriptError) as error:
        check_file(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}/device_1.py: E of micro-batch 0 has clock_mhz=1200, but 1410 in {tmp_path}/device_0.py; "
        "give a block of several devices the same clock on all"
    )


def test_a_profile_is_not_taken_of_scripts_with_clocks(v_scripts: Path) -> None:
    """A profile goes through all clocks, so the scripts' clocks would have no effect."""
    with pytest.raises(LaunchError, match="a profile goes through all clocks; make scripts without clocks"):
        launched(v_scripts, 2, 1, launcher="in_process", sweep=Sweep(iterations=1))
