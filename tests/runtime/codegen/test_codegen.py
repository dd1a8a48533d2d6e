"""Generated scripts: their text, and that they call exactly what the programs say."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT
from small_runs import with_hidden_forms

from placements import Block, Kind, Placement
from placements.placement_file import placement_from_dict
from placements.shapes import SHAPES, m_shape, v_shape
from runtime.clocks.periodic_clocks import PeriodicClocks
from runtime.codegen.codegen import ClockPlanError, generate, plan_hash
from runtime.codegen.literal import LiteralError, literal
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.picture import picture


@dataclass
class RecordingDevice:
    """Records the calls of a script as instructions, and the clocks given with runs."""

    calls: list[Instruction] = field(default_factory=list)
    clocks: list[tuple[str, int, int]] = field(default_factory=list)

    def receive(self, producer: str, consumer: str, micro_batch: int, *, source: int) -> None:
        self.calls.append(Receive(producer, consumer, micro_batch, source))

    def run(self, block: str, micro_batch: int, clock_mhz: int | None = None) -> None:
        self.calls.append(Run(block, micro_batch))
        if clock_mhz is not None:
            self.clocks.append((block, micro_batch, clock_mhz))

    def send(self, producer: str, consumer: str, micro_batch: int, *, target: int) -> None:
        self.calls.append(Send(producer, consumer, micro_batch, target))


def executed(script: Path, num_micro_batches: int | None = None) -> tuple[RecordingDevice, dict[str, Any]]:
    """Run a script as a program with a stand-in for `runtime.device`; return its calls and what main got."""
    device, given_to_main = RecordingDevice(), {}

    def main(iteration: Callable[[RecordingDevice, int], None], **data: Any) -> None:
        given_to_main.update(data)
        iteration(device, num_micro_batches or data["num_micro_batches"])

    stand_in = ModuleType("runtime.device")
    stand_in.Device, stand_in.main = RecordingDevice, main  # type: ignore[attr-defined]
    stand_in.PeriodicClocks = PeriodicClocks  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "runtime.device", stand_in)
        exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), {"__name__": "__main__"})
    return device, given_to_main


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
    for script, program in zip(scripts, programs.instructions, strict=True):
        device, data = executed(script)
        assert tuple(device.calls) == program
        runs = [(run.block, run.micro_batch) for run in program if isinstance(run, Run)]
        expected = [(block, n, clock_mhz[block][n]) for block, n in runs] if clock_mhz else []
        assert device.clocks == expected
        assert placement_from_dict(data["placement"]) == programs.placement
        assert data["channels"] == list(programs.channels)
        assert (data["model"], data["num_micro_batches"]) == ({"width": 8}, programs.num_micro_batches)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [1, 2])
@pytest.mark.parametrize("clocked", [False, True])
def test_scripts_call_what_the_programs_say(shape: str, shift: int, clocked: bool, tmp_path: Path) -> None:
    programs = lower(gpipe(SHAPES[shape](4), 5))
    assert_calls_equal_programs(programs, clocks_of(programs) if clocked else {}, tmp_path, shift)


@pytest.mark.parametrize("num_micro_batches", [1, 2, 5, 16])
@pytest.mark.parametrize("shift", [1, 2])
def test_scripts_of_1f1b_call_what_the_programs_say(
    num_micro_batches: int, shift: int, tmp_path: Path
) -> None:
    programs = lower(one_f_one_b(v_shape(4), num_micro_batches))
    assert_calls_equal_programs(programs, clocks_of(programs), tmp_path, shift)


def test_text_of_a_script(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    schedule = one_f_one_b(v_shape(2), 4)
    clock_mhz = {"F0": [1410] * 4, "F1": [1410] * 4, "B1": [1410] * 4, "B0": [1410, 1395, 1380, 1410]}
    model = {"kind": "mlp", "width": 64, "seed": 0}
    scripts = generate(
        with_hidden_forms(lower(schedule)),
        clock_mhz,
        model,
        tmp_path / "v_shape_1f1b",
        title="v_shape, 1F1B",
        picture=picture(schedule),
        versions={"schedsearch": "0.1.0", "torch": "2.13.0"},
    )
    for device, script in enumerate(scripts):
        golden(f"v_shape_1f1b_device_{device}.py.txt", script.read_text(encoding="utf-8"))


def test_text_of_a_script_with_several_loops(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    programs = with_hidden_forms(lower(gpipe(v_shape(3), 4)))
    script = generate(programs, {}, {"width": 64}, tmp_path / "gpipe")[1]
    golden("gpipe_device_1.py.txt", script.read_text(encoding="utf-8"))


def test_lowering_checking_and_generating_need_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import runtime.codegen.codegen, runtime.program.deadlock"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_equal_plans_give_equal_files_and_leave_no_others(tmp_path: Path) -> None:
    programs = lower(gpipe(m_shape(2), 2))
    first = [path.read_bytes() for path in generate(programs, {}, {}, tmp_path / "plan")]
    again = [path.read_bytes() for path in generate(programs, {}, {}, tmp_path / "plan")]
    assert first == again
    assert sorted(path.name for path in (tmp_path / "plan").iterdir()) == ["device_0.py", "device_1.py"]


def test_the_hash_tells_plans_apart() -> None:
    gpiped, rhythmic = lower(gpipe(v_shape(2), 4)), lower(one_f_one_b(v_shape(2), 4))
    clocks = clocks_of(gpiped)
    slower = {**clocks, "F0": [clock - 15 for clock in clocks["F0"]]}
    other_times = lower(gpipe(v_shape(2, backward_time=2), 4))
    hashes = [plan_hash(p, c) for p, c in [(gpiped, {}), (rhythmic, {}), (gpiped, clocks), (gpiped, slower)]]
    assert len({*hashes, plan_hash(other_times, {})}) == 5


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
        assert [ast.unparse(node) for node in imports] == ["from runtime.device import Device, main"]


def test_two_micro_batches_a_round_step_by_two(tmp_path: Path) -> None:
    programs = lower(gpipe(v_shape(1), 8))
    (script,) = generate(programs, {}, {}, tmp_path, shift=2)
    text = script.read_text(encoding="utf-8")
    loop = "    # Repetend: 2 micro-batches per round.\n    for n in range(0, num_micro_batches, 2):\n"
    assert text.count(loop) == 2
    assert '        device.run("F0", n)\n        device.run("F0", n + 1)\n' in text


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
    for script in (tmp_path / "other").iterdir():
        docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
        assert docstring is not None
        assert docstring.startswith(f"Device {script.stem[-1]} of 2 of ")


@given(st.text(min_size=1, max_size=12).filter(lambda name: name.encode(errors="ignore").decode() == name))
def test_any_name_survives(name: str) -> None:
    assert ast.literal_eval(literal(name, "name")) == name


DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=12)
        | st.tuples(inner, inner)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=8), inner, max_size=8)
    ),
    max_leaves=40,
)


@given(DATA)
def test_literals_read_back(value: object) -> None:
    assert ast.literal_eval(literal(value, "value")) == value


def test_long_literals_break_into_lines() -> None:
    text = literal({"clock": list(range(1000, 1040)), "names": ["a" * 40] * 3}, "value")
    assert max(map(len, text.splitlines())) <= 110
    assert text.splitlines()[-7:] == [
        "    ],",
        '    "names": [',
        *[f'        "{"a" * 40}",'] * 3,
        "    ],",
        "}",
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, object, b"bytes"])
def test_a_model_that_is_not_data_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(
        LiteralError, match=r"^model\.layers\[1\]: .* cannot be written into a script; use text"
    ):
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
    ],
)
def test_clocks_that_do_not_fit_are_refused(
    clock_mhz: dict[str, list[int]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ClockPlanError) as error:
        generate(lower(gpipe(v_shape(1), 2)), clock_mhz, {}, tmp_path)
    assert str(error.value).startswith(message)
    assert not list(tmp_path.iterdir())
