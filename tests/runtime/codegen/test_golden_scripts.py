"""Golden scripts: what generation writes, to be read, and run as they lie there against the plain model."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import GOLDEN, ROOT
from small_runs import SYNTHETIC, blocks_of, comparison_of, launched

from placements.shapes import m_shape, v_shape
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks
from runtime.codegen.codegen import generate
from runtime.codegen.header import PICTURE_WIDTH
from runtime.codegen.script import programs_of, read_script, read_scripts
from runtime.program.lower import lower
from runtime.verify.saved_programs import check_file
from schedsearch.baselines import gpipe, one_f_one_b, one_f_one_b_plus, zb_h1
from schedsearch.picture import both_ends
from schedsearch.schedule import Schedule

EACH = {"F0": [1410] * 4, "F1": [1410] * 4, "B1": [1410] * 4, "B0": [1410, 1395, 1380, 1410]}
PERIODIC = {
    "F0": PeriodicClocks([1410, 1395], 1200, [1410]),
    "F1": PeriodicClocks([1410], 1410, [1410]),
    "B1": PeriodicClocks([1410], 1410, [1410]),
    "B0": PeriodicClocks([1410], 1305, [1380, 1410]),
}


@dataclass(frozen=True)
class Golden:
    """A schedule whose scripts are kept, with its clocks and its name for people."""

    schedule: Schedule
    clocks: ScriptClocks
    title: str


CASES = {
    "v_shape": Golden(one_f_one_b(v_shape(2), 4), EACH, "v_shape, 1F1B"),
    "periodic": Golden(one_f_one_b(v_shape(2), 8), PERIODIC, "v_shape, 1F1B"),
    "gpipe": Golden(gpipe(v_shape(3), 4), {}, "v_shape, GPipe"),
    "m_shape": Golden(one_f_one_b_plus(m_shape(2), 4), {}, "m_shape, 1F1B+"),
    "zero_bubble": Golden(zb_h1(v_shape(3, split_backward=True), 6), {}, "v_shape, ZB-H1"),
}


def files(case: Golden, folder: Path) -> list[Path]:
    blocks, _ = blocks_of(case.schedule.placement)
    scripts = generate(
        lower(case.schedule).with_specs(blocks.spec_between),
        case.clocks,
        SYNTHETIC,
        folder,
        title=case.title,
        picture=both_ends(case.schedule, PICTURE_WIDTH),
        versions={"schedsearch": "0.1.0", "torch": "2.13.0"},
    )
    return [folder / "job.json", *scripts]


@pytest.mark.parametrize("name", CASES)
def test_text_of_scripts_and_job(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    for path in files(CASES[name], tmp_path / name):
        golden(f"scripts/{name}/{path.name}", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", [f"scripts/{name}" for name in CASES])
def test_golden_scripts_are_safe_and_train_as_the_plain_model(folder: str) -> None:
    case = CASES[Path(folder).name]
    assert programs_of(read_scripts(GOLDEN / folder)).placement == case.schedule.placement
    assert "finish even if" in check_file(GOLDEN / folder)
    launcher = "fork" if folder.endswith("/v_shape") else "in_process"
    run = launched(GOLDEN / folder, case.schedule.placement.num_devices, 2, launcher=launcher)
    assert comparison_of(run).is_equal
    assert comparison_of(run).bitwise_equal


def test_a_launch_of_another_number_and_the_same_clocks() -> None:
    run = launched(GOLDEN / "scripts/periodic", 2, 1, launcher="in_process", num_micro_batches=5)
    assert comparison_of(run).is_equal
    requests = [[PERIODIC[b].at(n, 5) for b, n in order] for order in one_f_one_b_orders(5)]
    for device, asked in run.clock_requests.items():
        assert list(asked) == requests[device]


def one_f_one_b_orders(number: int) -> list[list[tuple[str, int]]]:
    schedule = one_f_one_b(v_shape(2), number)
    return [schedule.order(device) for device in range(2)]


def test_each_run_has_its_clock_and_each_action_its_line() -> None:
    for path in sorted((GOLDEN / "scripts/v_shape").glob("*.py")):
        text = path.read_text()
        lines = text.splitlines()
        script = read_script(path)
        runs = iter(script.calls.runs)
        for instruction, number in zip(script.calls.instructions, script.calls.lines, strict=True):
            line = lines[number - 1]
            assert line.strip().startswith("device.")
            if "clock_mhz=" in line:
                run = next(runs)
                assert f'"{run.block}"' in line
                assert f"clock_mhz={run.clock_mhz})" in line or f'CLOCKS["{run.block}"]' in line
            assert str(instruction).split()[1].split("#")[0] in line
        assert next(runs, None) is None
        (iteration,) = (
            node
            for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef) and node.name == "iteration"
        )
        calls = [node for node in ast.walk(iteration) if isinstance(node, ast.Call)]
        assert len({call.lineno for call in calls}) == len(calls)


def test_reading_a_script_never_trains(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "scripts/v_shape", tmp_path / "scripts"))
    for path in folder.glob("*.py"):
        text = path.read_text()
        path.write_text(
            text.replace("    run(iteration", '    raise RuntimeError("trains")\n    run(iteration')
        )
    assert "finish even if" in check_file(folder)


def test_a_script_started_alone_says_how_to_start_all() -> None:
    command = [sys.executable, str(GOLDEN / "scripts/v_shape/device_0.py")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PYTHONPATH": "."}
    )
    assert "this is one of several processes; start all with" in done.stderr
