"""Streams of a device: experts with dispatch and combine beside the computing, equal to the whole model."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from moe_layers import COMMUNICATION, SMALL_MOE, moe_schedule, moe_stages
from one_line_errors import raises_line
from small_runs import compared, comparison_of, edited, errors, require_exact, trained

from placements import Placement
from placements.placement_file import read_placement
from runtime.codegen.codegen import generate
from runtime.codegen.script import programs_of, read_scripts
from runtime.execution.side_streams import ThreadStreams
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Run, parse_instruction
from runtime.program.lower import lower, schedule_of
from runtime.program.tensor_flow import UnrunnablePlacementError
from schedsearch.searches.search import search


def test_what_is_found_with_streams_is_run_on_them(tmp_path: Path) -> None:
    """The layer of the example, in DeepSeek-V3's times: found, written, run beside, of the same bits."""
    answer = search(read_placement("examples/communication.yaml"), 5, work_limit=5)
    trace = tmp_path / "trace.json"
    programs = check(lower(answer.schedule))
    measured = trained(programs, SMALL_MOE, tmp_path / "scripts", launcher="fork", trace_file=trace)
    require_exact(comparison_of(measured))
    text = (tmp_path / "scripts" / "device_0.py").read_text()
    assert 'device.forward("dispatch_F", 0, stream="communication")' in text
    assert trace.is_file()


@pytest.mark.parametrize(
    ("placement", "num_layers"),
    [(moe_stages([(0, 1)]), 1), (moe_stages([(0,), (1,)], with_head=True), 2)],
    ids=["experts_apart", "two_stages"],
)
def test_processes_exchange_tokens_beside_their_computing(placement: Placement, num_layers: int) -> None:
    """Cut attention adds in another order, so float64 has to do; without it nothing differs."""
    programs = check(lower(moe_schedule(placement, 4)))
    comparison = compared(programs, SMALL_MOE | {"num_layers": num_layers}, "fork")
    assert comparison.bitwise_equal and max(errors(comparison)) < 1e-13
    if num_layers == 2:
        require_exact(comparison)


def test_programs_and_scripts_name_streams(tmp_path: Path) -> None:
    schedule = moe_schedule(moe_stages([(0,)]), 3)
    programs = check(lower(schedule))
    assert "run dispatch_F0 #0 on communication" in str(programs)
    assert schedule_of(programs) == schedule
    for instruction in programs.instructions[0]:
        assert parse_instruction(str(instruction)) == instruction
    assert parse_instruction("run F #1 recompute on copy_x") == Run("F", 1, "recompute", "copy_x")
    generate(programs, {}, SMALL_MOE, tmp_path)
    assert programs_of(read_scripts(tmp_path)) == programs
    at = programs.instructions[0].index(Run("dispatch_F0", 0, stream=COMMUNICATION))
    wrong = edited(programs, 0, lambda program: program.__setitem__(at, Run("dispatch_F0", 0)))
    with pytest.raises(UnsafeProgramsError, match="stream 'compute', but it is a block of 'communication'"):
        check(wrong)


def test_collectives_of_a_stream_in_two_orders_are_unsafe() -> None:
    """A dispatch backward and the next dispatch, on one communicator."""
    programs = lower(moe_schedule(moe_stages([(0, 1)]), 4))

    def swap(program: list[Instruction]) -> None:
        on = [i for i, run in enumerate(program) if isinstance(run, Run) and run.stream == COMMUNICATION]
        first = next(i for i in on if program[i] == Run("dispatch_F0", 3, stream=COMMUNICATION))
        second = on[on.index(first) - 1]
        program.insert(second, program.pop(first))

    with pytest.raises(UnsafeProgramsError, match="before it runs|run both together"):
        check(edited(programs, 1, swap))


def test_clocks_and_backwards_elsewhere_are_refused(tmp_path: Path) -> None:
    placement = moe_stages([(0,)])
    generate(lower(moe_schedule(placement, 2)), {}, SMALL_MOE, tmp_path)
    path = tmp_path / "device_0.py"
    text = path.read_text()
    path.write_text(text.replace(', stream="communication"', ', clock_mhz=900, stream="communication"', 1))
    with pytest.raises(ScriptError, match="clock_mhz=900 on the stream 'communication'"):
        read_scripts(tmp_path)
    blocks = tuple(replace(b, stream="compute") if b.name == "combine_B0" else b for b in placement.blocks)
    with raises_line(UnrunnablePlacementError, match="is 'compute', and 'communication'"):
        lower(moe_schedule(replace(placement, blocks=blocks), 2))


def test_a_stream_runs_beside_in_order_and_hands_on_what_fails() -> None:
    streams, begun = ThreadStreams(), threading.Event()
    seen: list[int] = []

    def job(number: int) -> dict[str, torch.Tensor]:
        begun.wait()
        seen.append(number)
        return {"next": torch.tensor(number)}

    later = [streams.run(COMMUNICATION, lambda n=n: job(n)) for n in range(3)]  # type: ignore[misc]
    assert not seen, "the script went on"
    begun.set()
    assert [int(wait()["next"]) for wait in later] == seen == [0, 1, 2]
    streams.finish()

    def fail() -> dict[str, torch.Tensor]:
        raise RuntimeError("lost")

    streams.run(COMMUNICATION, fail)
    with pytest.raises(RuntimeError, match="lost"):
        streams.finish()
