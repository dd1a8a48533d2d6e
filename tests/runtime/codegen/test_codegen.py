"""Generated scripts: their text, and that they call exactly the programs' instructions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from one_line_errors import raises_line

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, v_shape
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks
from runtime.codegen.codegen import ClockPlanError, generate
from runtime.codegen.job import JobError
from runtime.codegen.script import read_script
from runtime.program.instructions import Programs, Run
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b


def clocks_of(programs: Programs) -> dict[str, list[int]]:
    """Return a different clock for every block of every micro-batch."""
    n = programs.num_micro_batches
    return {
        block.name: [300 + 15 * (i * n + j) for j in range(n)]
        for i, block in enumerate(programs.placement.blocks)
    }


def assert_calls_equal_programs(
    programs: Programs,
    clock_mhz: Mapping[str, Sequence[int]],
    directory: Path,
    shift: int = 1,
    title: str = "",
) -> None:
    scripts = generate(programs, clock_mhz, {"width": 8}, directory, shift=shift, title=title)
    assert [script.name for script in scripts] == [
        f"device_{d}.py" for d in range(programs.placement.num_devices)
    ]
    for path, program in zip(scripts, programs.instructions, strict=True):
        script = read_script(path)
        assert tuple(script.calls.instructions) == program
        runs = [run for run in program if isinstance(run, Run)]
        expected = [clock_mhz[run.block][run.micro_batch] if clock_mhz else None for run in runs]
        assert [run.clock_mhz for run in script.calls.runs] == expected
        assert script.placement == programs.placement
        assert script.channels == programs.channels
        assert (script.model_data, script.num_micro_batches) == ({"width": 8}, programs.num_micro_batches)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [1, 2])
@pytest.mark.parametrize("clocked", [False, True])
def test_scripts_call_what_the_programs_say(shape: str, shift: int, clocked: bool, tmp_path: Path) -> None:
    programs = lower(gpipe(SHAPES[shape](4), 5))
    assert_calls_equal_programs(programs, clocks_of(programs) if clocked else {}, tmp_path, shift)


def test_a_steady_state_is_a_loop_and_an_iteration_has_no_branches(tmp_path: Path) -> None:
    programs = lower(one_f_one_b(v_shape(4), 16))
    for script in generate(programs, {}, {}, tmp_path):
        text = script.read_text(encoding="utf-8")
        assert "    # Repetend: one micro-batch per round.\n    for n in range(" in text
        body = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)).body
        assert [type(node) for node in body].count(ast.For) == 1
        assert not any(isinstance(node, (ast.If, ast.While)) for node in ast.walk(ast.Module(body, [])))
        imports = [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        assert [ast.unparse(node) for node in imports] == ["from runtime.device import Device, run"]


def test_a_device_without_blocks_has_an_empty_iteration(tmp_path: Path) -> None:
    lonely = Placement("lonely", 2, (Block("F0", Kind.F, (1,), 1),))
    assert_calls_equal_programs(lower(gpipe(lonely, 2)), {"F0": [1410, 1395]}, tmp_path)


HOSTILE = [
    '"""',
    "'''",
    "\\",
    'a"b',
    "a'b\"c",
    '"); import os #',
    "{n}",
    "new\nline",
    "\x00",
    "\u2028",
    "größe",
    "🙂",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_cannot_break_a_script(name: str, tmp_path: Path) -> None:
    odd = Placement(name, 2, (Block(name, Kind.F, (0,), 1), Block("end", Kind.F, (1,), 1, after=(name,))))
    programs = lower(gpipe(odd, 3))
    assert_calls_equal_programs(programs, clocks_of(programs), tmp_path / "plan", title=name)
    generate(
        programs, {}, {name: [name]}, tmp_path / "other", title=f"{name}\\", picture=f'0 | {name}\n1 | "'
    )
    for script in (tmp_path / "other").glob("*.py"):
        docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
        assert docstring.startswith(f"Device {script.stem[-1]} of 2 of ")


@pytest.mark.parametrize("value", [float("nan"), {1}, object])
def test_a_model_that_is_not_data_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"^model: cannot be written to job.json \(.*\); use text"):
        generate(lower(gpipe(v_shape(1), 1)), {}, {"layers": [1, value]}, tmp_path)


@pytest.mark.parametrize(
    ("clock_mhz", "message"),
    [
        (
            {"F0": [1410] * 2},
            "clock_mhz: has no clocks for block 'B0'; give one for each of the 2 micro-batches",
        ),
        (
            {"F0": [1410] * 2, "B0": [1410]},
            "clock_mhz: has 1 clocks for block 'B0'; give one for each of the 2 ",
        ),
        ({"F9": [1410] * 2}, "clock_mhz: v_shape has no block 'F9'; use the names of the placement"),
        ({"F0": PeriodicClocks([], 1410, [])}, "clock_mhz: has no clocks for block 'B0'; give one for"),
    ],
)
def test_clocks_that_do_not_fit_are_refused(clock_mhz: ScriptClocks, message: str, tmp_path: Path) -> None:
    with raises_line(ClockPlanError, message):
        generate(lower(gpipe(v_shape(1), 2)), clock_mhz, {}, tmp_path)
    assert not list(tmp_path.iterdir())
