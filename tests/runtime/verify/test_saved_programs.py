"""The check of saved programs: scripts, their text, and tables of torch; exit codes and messages."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line_errors import raises_line
from places import ROOT
from small_runs import change, with_hidden_forms

from placements.forms.texts import write_json, write_text
from placements.placement_file import placement_to_dict
from placements.shapes import SHAPES, m_shape, v_shape
from runtime.check import check_file, main
from runtime.codegen.codegen import generate
from runtime.codegen.script import programs_of, read_scripts
from runtime.program.deadlock import UnsafeProgramsError
from runtime.program.lower import lower
from runtime.program.program_file import ProgramFileError, programs_to_dict, read_programs
from runtime.program.tensor_spec import TensorSpec
from runtime.torch_pipelining.csv import torch_order
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule_file import schedule_to_dict

PROGRAMS = with_hidden_forms(lower(gpipe(m_shape(2), 3)))


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Scripts with loops and clocks, whose model does not exist."""
    clocks = {block.name: [1410, 900, 1410] for block in PROGRAMS.placement.blocks}
    generate(PROGRAMS, clocks, {"name": "never built"}, tmp_path / "scripts")
    return tmp_path / "scripts"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_json(tmp_path / "programs.json", programs_to_dict(PROGRAMS))


@pytest.mark.parametrize("shape", SHAPES)
def test_scripts_and_text_hold_the_programs(shape: str, tmp_path: Path) -> None:
    known = lower(gpipe(SHAPES[shape](2), 5))
    for programs in (known, known.with_specs(one_for_each_producer)):
        generate(programs, {}, {}, tmp_path)
        assert programs_of(read_scripts(tmp_path)) == programs
        path = write_json(tmp_path / "programs.json", programs_to_dict(programs))
        assert read_programs(path) == programs


def one_for_each_producer(producer: str, consumer: str) -> TensorSpec:
    return TensorSpec("bfloat16", (len(producer), *map(ord, producer)))


def test_what_was_proved_is_said_in_a_line_for_each_file(
    scripts: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_text(scripts.parent / "order.csv", str(torch_order(one_f_one_b(v_shape(2), 4))))
    assert main([str(scripts), str(saved), str(table)]) == 0
    output = capsys.readouterr()
    facts = (
        "safe: programs: 2 devices, 3 micro-batches, 9 messages on 2 channels, 6 collective blocks "
        "(run by several devices together); finish even if every send and receive blocks its device; "
        "shapes and types are the same at both ends; 3 communicators on NCCL"
    )
    assert output.out.splitlines() == [
        f"{scripts}: {facts}",
        f"{saved}: {facts}",
        f"{table}: safe: compute_only, lowered as torch does: 2 ranks, 2 stages, 4 micro-batches, 8 messages "
        "on 2 channels, 4 collectives of FSDP; finishes even if every message and collective blocks its "
        "rank; 15 ticks, 15 with all messages of a rank in one queue, 19 with collectives in computations "
        "too (rank 1: 1B2 waits 2 behind 1RECV_F3); with late receives 15 ticks, and no pending transfer "
        "holds up other work",
    ]
    assert output.err == ""


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "script missing": (
        lambda folder: (folder / "device_1.py").unlink(),
        "has no device_1.py for the 2 devices of m_shape; generate the scripts again",
    ),
    "no scripts": (
        lambda folder: [path.unlink() for path in folder.iterdir()],
        "has no device_0.py; give a folder of generated scripts",
    ),
    "one too many": (
        lambda folder: (folder / "device_2.py").write_text((folder / "device_0.py").read_text()),
        "device_2.py: m_shape has 2 devices only; delete the script",
    ),
    "no job": (
        lambda folder: (folder / "job.json").unlink(),
        "job.json: cannot be read (No such file or directory); give the job.json written with the scripts",
    ),
    "names no job": (
        lambda folder: change(folder / "device_1.py", "JOB = ", "ABC = "),
        "device_1.py: has no JOB; generate the scripts again",
    ),
    "no iteration": (
        lambda folder: change(folder / "device_1.py", "def iteration(", "def repetition("),
        "device_1.py: has no iteration; generate the scripts again",
    ),
    "not Python": (
        lambda folder: (folder / "device_0.py").write_text("device 0\n"),
        "device_0.py: fails (SyntaxError: ",
    ),
    "ends the program": (
        lambda folder: change(folder / "device_0.py", "JOB = ", "EXIT = exit(0)\nJOB = "),
        "fails (SystemExit: 0) in 'EXIT = exit(0)'; correct it, or generate the scripts again",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_folders_that_cannot_be_read_are_named(
    case: str, scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, message = UNREADABLE[case]
    spoil(scripts)
    assert main([str(scripts)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert message in output.err
    assert output.err.startswith(str(scripts))


def without(data: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != field}


DATA: dict[str, Any] = programs_to_dict(PROGRAMS)
ROW = {"dtype": "float64", "shape": [2], "edges": [["F0", "F1"]]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "is not a mapping; give a programs.json"),
        (without(DATA, "num_micro_batches"), "lacks the field 'num_micro_batches'"),
        (without(DATA, "programs"), "lacks the field 'programs'"),
        (DATA | {"schema_version": 3}, "schema_version: 3 is not known; write 2"),
        (without(DATA, "forms"), "lacks the field 'forms'"),
        (
            DATA | {"forms": [[], [ROW | {"more": 1}]]},
            "forms[1][0]: has an unknown field 'more'; the fields are dtype, shape, edges",
        ),
        (DATA | {"forms": [[], [ROW | {"shape": [-1]}]]}, "forms[1][0].shape[0]: -1 is not a size"),
        (DATA | {"forms": [[], [ROW, ROW]]}, "forms[1][1]: F0 -> F1 has a form already; give one only"),
        (DATA | {"num_micro_batches": 0}, "num_micro_batches: 0 is not a whole number from 1 on"),
        (DATA | {"programs": [[]]}, "programs: has 1 entries; give one for each of m_shape's 2 devices"),
        (DATA | {"programs": [[], [1]]}, "programs[1][0]: 1 is not a line; write such as 'run F0 #0'"),
        (DATA | {"programs": [["run F0 #0", "jump"], []]}, "programs[0][1]: 'jump' is not an instruction"),
        (DATA | {"placement": {}}, "placement"),
        (
            DATA | {"placement": placement_to_dict(replace(PROGRAMS.placement, num_gpus=(2, 2)))},
            "placement.num_gpus: is [2, 2], but a program is for one GPU; give each GPU as a device",
        ),
        (schedule_to_dict(gpipe(v_shape(2), 2)), "is a schedule; check it with schedsearch check"),
    ],
)
def test_a_wrong_field_is_named_with_the_remedy(data: object, message: str, tmp_path: Path) -> None:
    path = write_json(tmp_path / "programs.json", data)
    with raises_line(ProgramFileError, f"{path}: ", has=message):
        check_file(path)


def test_files_of_other_kinds_are_named(tmp_path: Path, scripts: Path) -> None:
    (tmp_path / "text.json").write_text("{")
    for path, message in (
        (tmp_path / "text.json", "is not JSON"),
        (tmp_path / "gone.json", "cannot be read"),
        (
            tmp_path / "gone",
            "No such file or directory.; give a folder of generated scripts, a programs.json or",
        ),
        (scripts / "device_0.py", "is one script; give the folder"),
        (scripts / "job.json", "is shared by the scripts; give the folder"),
    ):
        with pytest.raises(ProgramFileError, match=message):
            check_file(path)


def test_a_placement_that_cannot_be_trained_is_unsafe(saved: Path) -> None:
    data = json.loads(saved.read_text())
    data["placement"]["blocks"][-1]["kind"] = "W"
    write_json(saved, data)
    with pytest.raises(UnsafeProgramsError, match="is after no I block"):
        check_file(saved)


@given(st.data())
@settings(deadline=None)
def test_no_line_of_a_saved_program_can_be_lost(data: st.DataObject) -> None:
    rows = [list(row) for row in DATA["programs"]]
    row = data.draw(st.sampled_from(rows))
    row.pop(data.draw(st.integers(0, len(row) - 1)))
    with tempfile.TemporaryDirectory() as folder:
        path = write_json(Path(folder) / "programs.json", DATA | {"programs": rows})
        with pytest.raises(UnsafeProgramsError):
            check_file(path)


def test_the_worst_file_gives_the_exit_code_of_the_program(scripts: Path, saved: Path) -> None:
    """As a process of its own, which reads tables without torch."""
    broken = write_text(scripts.parent / "broken.csv", "0F0,0B0\n1F0,1B1\n")
    clock = write_text(scripts.parent / "clock.csv", "0F0@1410,0B0\n")
    code = "import sys; sys.modules['torch'] = None; from runtime.check import main; sys.exit(main())"
    assert main([str(saved)]) == 0
    assert main([str(broken), str(saved)]) == 1
    command = [sys.executable, "-c", code, *map(str, (saved, clock, broken))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr == (
        f"{clock}: row 1 (rank 0), cell 1: '0F0@1410' is read by torch as '0F0', without '@1410'; take that "
        "out: a cell has no place for a clock or a remark\n"
    )
    assert f"{broken}: unsafe: device 1 runs B1 of micro-batch 1, which is none of its blocks" in done.stdout


@pytest.mark.parametrize("module", ["runtime.check", "runtime.torch_csv"])
def test_the_programs_say_what_they_take(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module(module, run_name="__main__")
    assert module in capsys.readouterr().out
