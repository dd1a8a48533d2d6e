"""Modes of forward blocks: in programs, their files and scripts; modes that cannot run are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from one_line_errors import raises_line
from small_runs import SYNTHETIC, change, edited, in_modes, launched, with_modes

from placements import Block, Kind, Placement
from placements.forms.texts import write_json
from placements.modes import Choice, Decision
from placements.shapes import v_shape, wave_shape
from runtime.check import check_file
from runtime.codegen.codegen import generate
from runtime.codegen.script import programs_of, read_scripts
from runtime.loops.evaluation import forward_programs
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Programs, Run
from runtime.program.lower import lower
from runtime.program.program_file import programs_to_dict, read_programs
from runtime.program.tensor_flow import UnrunnablePlacementError, stage_decisions
from schedsearch.baselines import gpipe, one_f_one_b


def by_stage_and_micro_batch(decision: int, micro_batch: int) -> int:
    """Recompute the second stage always, and others every second time, in turns."""
    return int(decision == 1 or (decision + micro_batch) % 2 == 0)


def mixed(num_stages: int = 2, num_micro_batches: int = 6) -> Programs:
    schedule = in_modes(one_f_one_b(v_shape(num_stages), num_micro_batches), by_stage_and_micro_batch)
    return lower(schedule)


def test_runs_carry_the_mode_of_their_micro_batch() -> None:
    schedule = in_modes(one_f_one_b(v_shape(2), 4), by_stage_and_micro_batch)
    programs = check(lower(schedule))
    lines = str(programs).splitlines()
    assert sum("run F1" in line and line.endswith("recompute") for line in lines) == 4
    runs = ["run F0 #0 recompute", "run F0 #1", "run F0 #2 recompute", "run F0 #3"]
    assert [line.strip() for line in lines if "run F0" in line] == runs
    assert not [line for line in lines if "run B" in line and line.endswith("recompute")]
    assert programs.chosen == schedule.chosen
    for start, n, name in schedule.blocks:
        assert programs.block(name, n) == schedule.block(name, n), start


def test_files_and_scripts_give_the_programs_back(tmp_path: Path) -> None:
    programs = mixed(3)
    write_json(tmp_path / "programs.json", programs_to_dict(programs))
    assert read_programs(tmp_path / "programs.json") == programs
    generate(programs, {}, SYNTHETIC, tmp_path / "scripts")
    assert programs_of(read_scripts(tmp_path / "scripts")) == programs


def test_modes_that_repeat_stand_in_the_loop(tmp_path: Path) -> None:
    generate(mixed(), {}, SYNTHETIC, tmp_path)
    text = (tmp_path / "device_0.py").read_text()
    loop = text[text.index("for n in") : text.index("# Cooldown.")]
    assert 'device.forward("F0", n + 1)\n' in loop
    assert 'device.forward("F0", n + 2, mode="recompute")\n' in loop
    more = programs_of([script.at(10) for script in read_scripts(tmp_path)])
    assert check(more) == lower(in_modes(one_f_one_b(v_shape(2), 10), by_stage_and_micro_batch))


def changed(mode: str, block: str = "F0") -> Programs:
    def change(program: list[Instruction]) -> None:
        at = program.index(next(run for run in program if isinstance(run, Run) and run.block == block))
        run = program[at]
        assert isinstance(run, Run)
        program[at] = replace(run, mode=mode)

    return edited(mixed(), 0, change)


def test_modes_that_do_not_fit_are_unsafe() -> None:
    with pytest.raises(UnsafeProgramsError, match=r"runs F0 of micro-batch 0 in mode 'sleep', but its modes"):
        check(changed("sleep"))
    with pytest.raises(UnsafeProgramsError, match=r"runs B0 .* but a backward block has its forward's mode"):
        check(changed("recompute", "B0"))
    assert check(changed("keep"))


def test_devices_of_a_block_run_it_in_one_mode() -> None:
    blocks = Block("F0", Kind.F, (0, 1), 1, 1), Block("B0", Kind.B, (0, 1), 2, -1, after=("F0",))
    programs = lower(in_modes(gpipe(Placement("wide", 2, blocks), 2), lambda _, n: n))
    assert check(programs).chosen == ((0,), (1,))
    apart = edited(programs, 1, lambda program: program.__setitem__(0, Run("F0", 0, "recompute")))
    with pytest.raises(UnsafeProgramsError, match=r"mode 'recompute', but device 0 .* mode 'keep', and one"):
        check(apart)


def test_scripts_name_known_modes_alone(tmp_path: Path) -> None:
    generate(mixed(), {}, SYNTHETIC, tmp_path)
    right = 'device.forward("F0", 0, mode="recompute")'
    change(tmp_path / "device_0.py", right, right.replace("recompute", "sleep"))
    with pytest.raises(ScriptError, match=r"F0 of micro-batch 0 has mode='sleep'; write one of keep, recom"):
        read_scripts(tmp_path)


def test_modes_written_by_hand_must_fit_the_memory(tmp_path: Path) -> None:
    """Four recomputed micro-batches hold 4; a kept one takes three times as much as a recomputed one."""
    schedule = in_modes(gpipe(v_shape(1), 4), lambda *_: 1)
    schedule = replace(schedule, placement=schedule.placement.with_memory(4))
    generate(lower(schedule), {}, SYNTHETIC, tmp_path)
    assert check_file(tmp_path).startswith("programs: 1 devices")
    change(tmp_path / "device_0.py", 'n, mode="recompute"', 'n, mode="keep" if n else "recompute"')
    with pytest.raises(UnsafeProgramsError, match=r"memory: device 0 holds 10 and has 4; run .* holds less$"):
        check_file(tmp_path)


def test_more_micro_batches_must_fit_in_their_modes(tmp_path: Path) -> None:
    """Four hold 4 units if computed again, and 12 if kept; the loop of either goes on in its mode."""
    for mode, capacity in ((1, 5), (0, 15)):
        schedule = in_modes(gpipe(v_shape(1), 4), lambda *_, mode=mode: mode)
        schedule = replace(schedule, placement=schedule.placement.with_memory(capacity))
        folder = tmp_path / str(mode)
        generate(lower(schedule), {}, SYNTHETIC, folder)
        assert launched(folder, 1, 1, launcher="in_process", num_micro_batches=5).comparison is not None
        with raises_line(ScriptError, match=f"num_micro_batches: 6 hold .* 0, which has {capacity}; use few"):
            launched(folder, 1, 1, launcher="in_process", num_micro_batches=6)


def with_choice(choice: Callable[[Placement], Choice]) -> Placement:
    moded = with_modes(v_shape(2))
    first, *others = moded.decisions
    return replace(moded, decisions=(Decision((first.choices[0], choice(moded))), *others))


def halves_apart() -> Placement:
    placement = wave_shape(1, split_backward=True)
    blocks = tuple(replace(block, memory=0) for block in placement.blocks)
    longer = [replace(block, time=block.time + 1) for block in blocks if block.name in ("I0", "W0")]
    assert len(longer) == 2
    decisions = tuple(Decision((Choice("keep"), Choice("recompute", (half,)))) for half in longer)
    return replace(placement, blocks=blocks, decisions=decisions)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (
            with_choice(lambda p: Choice("drop", (p.by_name["F0"], p.by_name["B0"]))),
            "modes[0].choices.drop: cannot be run; use one of keep, recompute, offload",
        ),
        (
            with_choice(
                lambda p: Choice(
                    "recompute",
                    (replace(p.by_name["F0"], memory=0), replace(p.by_name["B0"], time=0, memory=0)),
                )
            ),
            "modes[0].choices.recompute.B0: is left out, but a run needs it; give it a time of 1 tick",
        ),
        (halves_apart(), "make one decision of both"),
        (
            replace(
                v_shape(1),
                blocks=(*v_shape(1).blocks, Block("C", Kind.F, (0,), 1, after=("F0",), stream="copy_out")),
            ),
            "blocks (C).stream: 'copy_out' cannot be run yet; leave the copies out",
        ),
    ],
    ids=["name", "left_out", "halves", "stream"],
)
def test_what_cannot_be_run_is_named(placement: Placement, message: str) -> None:
    with pytest.raises(UnrunnablePlacementError, match=re.escape(message)) as error:
        stage_decisions(placement)
    assert len(str(error.value).splitlines()) == 1


def test_an_evaluation_has_no_modes_and_no_transfers_of_gradients() -> None:
    placement = replace(v_shape(2), transfer=(("B1", "B0", 2),))
    plain = forward_programs(v_shape(2), 3)
    assert forward_programs(with_modes(placement), 3).instructions == plain.instructions
