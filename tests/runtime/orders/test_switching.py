"""A program for each iteration, offered by a folder or a function: all run the same, or the run's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from joined import join
from small_runs import SMALL_GPT, comparison_of, edited, launched
from torch import nn
from torch.nn.functional import cross_entropy

import runtime
from placements import Placement
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.codegen.script import read_script
from runtime.execution.results import Progress
from runtime.launching.launch import LaunchError
from runtime.models import Blocks, Model, ModelOptions
from runtime.orders.offered import OfferError, ProgramFolder, fitting, offer
from runtime.program.deadlock import check
from runtime.program.instructions import Programs
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b

PLACEMENT = v_shape(2)
MODEL = ModelOptions.from_dict(SMALL_GPT | {"optimizer": "adamw", "clip_grad_norm": 0.1})


def with_specs(programs: Programs, model: ModelOptions = MODEL) -> Programs:
    blocks = Blocks(programs.placement, Model(model, programs.placement, {}), 4)
    return check(programs.with_specs(blocks.spec_between))


def of(make: Any, placement: Placement = PLACEMENT, number: int = 4) -> Programs:
    return with_specs(lower(make(placement, number)))


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    generate(of(one_f_one_b), {}, MODEL.to_dict(), tmp_path / "scripts")
    return tmp_path / "scripts"


def test_iterations_run_programs_of_a_folder_and_train_to_the_same_bits(
    scripts: Path, tmp_path: Path
) -> None:
    folder, progress = tmp_path / "programs", list[Progress]()
    offer(of(gpipe), folder, iteration=1)
    unsafe = edited(of(gpipe), 0, lambda program: program.reverse())
    offer(unsafe, folder, iteration=3)
    offer(of(gpipe), folder, first=4)
    result = launched(scripts, 2, 6, progress=progress.append, launcher="fork", programs=folder)
    assert comparison_of(result).bitwise_equal
    assert comparison_of(result).max_gradient_error == 0
    notes = [event.note for event in progress]
    assert notes[0] == "iteration 1: another program runs"
    assert notes[1] == "", "the run's own order again"
    assert notes[2].startswith("iteration 3: the program is not safe: ")
    assert notes[2].endswith("; the run's own order runs")
    assert notes[3] == "iteration 4: another program runs"
    assert notes[4:] == ["", ""]


def test_programs_of_another_placement_or_model_are_refused(scripts: Path) -> None:
    script = read_script(scripts / "device_0.py")
    assert fitting(of(gpipe), script) == of(gpipe)
    for programs, error in (
        (of(gpipe, v_shape(2, 2, 4)), "is for another placement than the run's, v_shape"),
        (of(gpipe, number=3), "is for 3 micro-batches, not for the run's 4"),
        (with_specs(of(gpipe), replace(MODEL, hidden_size=12)), r"F0 hands F1 float64 \(2, 6, 12\), here"),
    ):
        with pytest.raises(OfferError, match=error):
            fitting(programs, script)


def test_a_program_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    small = PLACEMENT.with_memory(2)
    generate(of(one_f_one_b, small), {}, MODEL.to_dict(), tmp_path)
    greedy = with_specs(lower(replace(gpipe(PLACEMENT, 4), placement=small)))
    with pytest.raises(OfferError, match="holds 4 of the memory of device 0, which has 2"):
        fitting(greedy, read_script(tmp_path / "device_0.py"))


def test_a_file_that_is_none_is_told_in_a_line(scripts: Path, tmp_path: Path) -> None:
    folder, progress = tmp_path / "programs", list[Progress]()
    folder.mkdir()
    (folder / "from_1.json").write_text("{")
    result = launched(scripts, 2, 2, progress=progress.append, launcher="in_process", programs=folder)
    assert comparison_of(result).max_gradient_error == 0
    assert "from_1.json" in progress[0].note and "\n" not in progress[0].note
    assert ProgramFolder(folder)(0) is None


def test_scripts_with_clocks_take_no_programs(tmp_path: Path) -> None:
    clocks = {block.name: [1000] * 4 for block in PLACEMENT.blocks}
    generate(of(one_f_one_b), clocks, MODEL.to_dict(), tmp_path)
    with pytest.raises(LaunchError, match=r"programs: have no clocks, and the run has; make scripts"):
        launched(tmp_path, 2, 2, launcher="in_process", programs=tmp_path / "programs")


def test_a_loop_of_ones_own_takes_programs_from_a_function(tmp_path: Path) -> None:
    """Device 0 alone is asked; a step without an answer runs the job's own order."""
    generate(check(lower(one_f_one_b(PLACEMENT, 4))), {}, {"name": "given"}, tmp_path / "job")
    other = check(lower(gpipe(PLACEMENT, 4)))
    answers: Iterator[Programs | None] = itertools.cycle([None, other])

    def network() -> nn.Sequential:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()

    samples = torch.arange(48, dtype=torch.float64).view(8, 6) / 48, torch.arange(8) % 3

    def train(rank: int) -> tuple[list[str], list[float], list[list[tuple[str, int]]]]:
        def source(iteration: int) -> Programs | None:
            assert rank == 0
            return next(answers)

        modules = runtime.models.cut(network(), ["2"])
        with runtime.Pipeline(modules, tmp_path / "job", loss=cross_entropy, programs=source) as pipeline:
            notes, losses, orders = [], [], []
            for _ in range(4):
                notes.append(pipeline.note)
                losses.append(pipeline.step(samples))
                orders.append(pipeline._context.device.order)
            return notes, losses, orders

    results = join(2, train, tmp_path)
    assert [notes for notes, _, _ in results] == [["", "iteration 1: another program runs", "", ""]] * 2
    for rank, (_, losses, orders) in enumerate(results):
        default, changed = one_f_one_b(PLACEMENT, 4).order(rank), gpipe(PLACEMENT, 4).order(rank)
        assert [list(order) for order in orders] == [list(default), list(changed)] * 2
        assert len(set(losses)) == 1, "nothing moves the parameters"
