"""Golden scripts: the generator's output, to be read, and run as they are against the unpipelined model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from places import GOLDEN, ROOT
from small_runs import SYNTHETIC, blocks_of, comparison_of, launched

from placements.shapes import v_shape
from runtime.check import check_file
from runtime.codegen.codegen import PICTURE_WIDTH, generate
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b
from schedsearch.picture import fitted

CLOCKS = {"F0": [1410] * 4, "F1": [1410] * 4, "B1": [1410] * 4, "B0": [1410, 1395, 1380, 1410]}
SCRIPTS = GOLDEN / "scripts"


def test_text_of_scripts_and_job(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    schedule = one_f_one_b(v_shape(2), 4)
    blocks, _ = blocks_of(schedule.placement)
    scripts = generate(
        lower(schedule).with_specs(blocks.spec_between),
        CLOCKS,
        SYNTHETIC,
        tmp_path / "v_shape",
        title="v_shape, 1F1B",
        picture=fitted(schedule, PICTURE_WIDTH, with_end=True),
        versions={"schedsearch": "0.1.0", "torch": "2.13.0"},
    )
    for path in (tmp_path / "v_shape/job.json", *scripts):
        golden(f"scripts/{path.name}", path.read_text(encoding="utf-8"))


def test_golden_scripts_are_safe_and_train_as_the_plain_model() -> None:
    assert "finish even if" in check_file(SCRIPTS)
    comparison = comparison_of(launched(SCRIPTS, 2, 2, launcher="fork"))
    assert comparison.is_equal
    assert comparison.bitwise_equal


def test_a_script_started_alone_says_how_to_start_all() -> None:
    command = [sys.executable, str(SCRIPTS / "device_0.py")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PYTHONPATH": "."}
    )
    assert "this is one of several processes; start all with" in done.stderr
