"""The clocks of a plan in loops that know nothing of them: plain torch, Megatron-LM's calls, Lightning's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_driver import FakeDriver, FakeGpu
from fake_event import FakeEvent
from four_clocks import plan_of
from one_line_errors import raises_line
from torch import Tensor, nn

import schedsearch
from placements.forms.texts import write_json
from placements.shapes import loop_shape, v_shape, wave_shape
from runtime.clocks.clock import NvmlClock, RecordingClock
from runtime.clocks.stream_clock import StreamClock
from runtime.hooks import plan_clocks
from runtime.hooks.plan_clocks import PlanClocks
from runtime.program.calls import ScriptError
from runtime.program.instructions import Run
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b, zb_v
from schedsearch.energy import FrequencyPlan
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict

SCHEDULE = one_f_one_b(v_shape(2), 3)


def clocks_of(schedule: Schedule, device: int) -> list[int]:
    plan = plan_of(schedule)
    return [plan.clock_mhz[block][n] for block, n in schedule.order(device)]


def module(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)).double()


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(2, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]


def run_in_order(order: list[str], stage: nn.Module, calls: str = "torch") -> None:
    """Run a stage as a pipeline does: each output is kept until its gradient comes."""
    waiting: list[Tensor] = []
    data = iter(inputs())
    for block in order:
        if block.startswith("F"):
            output = stage(next(data))
            if calls == "megatron":
                assert output._base is None, "Megatron-LM takes no views"
                gradient = torch.ones_like(output)
                output.data = torch.empty((1,), dtype=output.dtype)
                output.waiting_gradient = gradient
            waiting.append(output)
        elif calls == "megatron":
            output = waiting.pop(0)
            torch.autograd.Variable._execution_engine.run_backward(
                (output,), (output.waiting_gradient,), False, False, (), True, True
            )
        else:
            waiting.pop(0).sum().backward()


def order(schedule: Schedule, device: int) -> list[str]:
    return [block for block, _ in schedule.order(device)]


def gradients(stage: nn.Module) -> list[Tensor]:
    return [weight.grad for weight in stage.parameters() if weight.grad is not None]


@pytest.mark.parametrize(("device", "calls"), [(0, "torch"), (1, "megatron")])
def test_a_module_gets_the_clocks_of_its_stage_and_the_gradients_that_it_had(device: int, calls: str) -> None:
    alone, watched, clock = module(), module(), RecordingClock()
    run_in_order(order(SCHEDULE, device), alone, calls)
    with schedsearch.clocks(
        plan_of(SCHEDULE), watched, schedule=SCHEDULE, device=device, clock=clock
    ) as clocks:
        for _ in range(2):
            watched.zero_grad()
            run_in_order(order(SCHEDULE, device), watched, calls)
        assert clocks.description == "clocks are recorded only: no GPU is controlled"
        with torch.no_grad():
            watched(inputs()[0])
    assert clock.requests == clocks_of(SCHEDULE, device) * 2
    assert all(torch.equal(*pair) for pair in zip(gradients(alone), gradients(watched), strict=True))
    run_in_order(order(SCHEDULE, device), watched, calls)
    assert len(clock.requests) == 12, "nothing is watched afterwards"


def test_several_chunks_of_a_device_are_built_in_order() -> None:
    """As Megatron-LM's get_model calls its model_provider, with interleaving."""
    schedule = interleaved_one_f_one_b(loop_shape(1, 2), 3)
    clock = RecordingClock()

    def model_provider(pre_process: bool, post_process: bool, vp_stage: int | None = None) -> nn.Module:
        return module()

    with PlanClocks(plan_of(schedule), schedule=schedule, device=lambda: 0, clock=clock) as clocks:
        provider = clocks.watching(model_provider)
        chunks = [provider(stage == 0, stage == 1, vp_stage=stage) for stage in range(2)]
        waiting: dict[str, list[Tensor]] = {"0": [], "1": []}
        data = {"0": iter(inputs()), "1": iter(inputs())}
        for kind, stage in order(schedule, 0):
            if kind == "F":
                waiting[stage].append(chunks[int(stage)](next(data[stage])))
            else:
                waiting[stage].pop(0).sum().backward()
        with raises_line(ScriptError, has="modules: device 0 of the plan has stages for 2, and here is one"):
            provider(False, True, vp_stage=2)
    assert clock.requests == clocks_of(schedule, 0)


def test_a_loop_says_by_itself_what_comes_next(driver: FakeDriver) -> None:
    """Through the controller and NVML; a block's name or a type of Perseus's stands for it."""
    driver.setup(1, range(100, 600))
    clock = NvmlClock("0")
    gpu = FakeGpu(driver, 0, clock)
    wanted = clocks_of(SCHEDULE, 1)
    with PlanClocks(plan_of(SCHEDULE), schedule=SCHEDULE, device=1, clock=clock) as clocks:
        for call, mhz in zip(["F1", "backward", "forward", "B1", "F1", "backward"], wanted, strict=True):
            clocks.set_speed(call)
            gpu.wait_for_lock(mhz)
            assert gpu._nvml.clock_mhz() == mhz
        assert clocks.requests == wanted
    assert driver.lines()[-1] == "0 reset"


def test_another_order_is_told_of() -> None:
    with PlanClocks(plan_of(SCHEDULE), schedule=SCHEDULE, device=0, clock=RecordingClock()) as clocks:
        clocks.set_speed("F0")
        with pytest.raises(
            ScriptError,
            match=r"device 0: set_speed\('backward'\) comes where the schedule has F0 of micro-batch 1, 2 of",
        ):
            clocks.set_speed("backward")
        with pytest.raises(ScriptError, match=r"set_speed\('F1'\) comes where"):
            clocks.set_speed("F1")
        clocks.begin_iteration()
        clocks.set_speed("F0")
        first = plan_of(SCHEDULE).clock_mhz["F0"][0]
        assert clocks.requests == [first, first], "an iteration that ended early begins anew"


@pytest.mark.parametrize(
    ("clock_mhz", "device", "message"),
    [
        ({"F0": [1, 2, 3]}, 0, r"clock_mhz: B0 has \[\] for 3 micro-batches; give a plan of this schedule"),
        ({"F0": [1, 2, 3], "B0": [1, 2, "3"]}, 0, r"clock_mhz: B0 has \[1, 2, '3'\]"),
        ({}, 2, "device: 2 is not in .*; its devices are 0 to 1"),
    ],
)
def test_a_plan_of_another_schedule_is_refused(
    clock_mhz: Mapping[str, Sequence[int]], device: int, message: str
) -> None:
    plan = replace(plan_of(SCHEDULE), clock_mhz=clock_mhz)
    refused = pytest.raises(ScriptError, match=message)
    with refused, PlanClocks(plan, schedule=SCHEDULE, device=device) as clocks:
        clocks.set_speed("F0")


def test_on_a_gpu_clocks_follow_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that runs ahead of its GPU asks for nothing that is not due, nor does it wait."""
    passed, now_s, events = RecordingClock(), [0.0], list[FakeEvent]()

    def record(sleeps: bool) -> FakeEvent:
        events.append(FakeEvent())
        return events[-1]

    monkeypatch.setattr(plan_clocks, "record_event", record)
    wanted = clocks_of(SCHEDULE, 1) * 2
    runs = [Run(*instance, clock_mhz=mhz) for instance, mhz in zip(SCHEDULE.order(1), wanted, strict=False)]
    stream = StreamClock(passed, runs, now_s=lambda: now_s[0])
    with PlanClocks(plan_of(SCHEDULE), schedule=SCHEDULE, device=1, clock=stream) as clocks:
        for block in order(SCHEDULE, 1) * 2:
            clocks.set_speed(block)
        assert passed.requests == []
        for number, event in enumerate(events):
            now_s[0] = event.at_s = float(number + 1)
            stream.step()
        assert clocks.requests == wanted and set(passed.requests) == set(wanted)


def test_a_cuda_graph_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replays call no hooks, so the GPU would keep the clock of the capture's last computation."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with (
        pytest.raises(ScriptError, match="a CUDA graph is captured, whose replays tell of no computation"),
        PlanClocks(plan_of(SCHEDULE), schedule=SCHEDULE, device=0, clock=RecordingClock()) as clocks,
    ):
        clocks.set_speed("forward")


def test_files_of_the_commands_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "schedule.json", schedule_to_dict(SCHEDULE))
    write_json(tmp_path / "plan.json", {"clock_mhz": plan_of(SCHEDULE).clock_mhz})
    write_json(tmp_path / "switched.json", {"plan": {"clock_mhz": plan_of(SCHEDULE).clock_mhz}})
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    for path in (tmp_path, tmp_path / "switched.json"):
        clock, watched = RecordingClock(), module()
        with schedsearch.clocks(path, watched, clock=clock):
            run_in_order(order(SCHEDULE, 1), watched)
        assert clock.requests == clocks_of(SCHEDULE, 1)
    monkeypatch.setenv("WORLD_SIZE", "16")
    with pytest.raises(ScriptError, match="the plan has 2 devices, and there are 16 processes; give device="):
        schedsearch.clocks(tmp_path, module()).__enter__()
    with pytest.raises(ValueError, match=r"none.schedule\.json"):
        schedsearch.clocks(tmp_path / "none" / "plan.json")
    for data, message in (
        ({}, "is not a mapping"),
        ({"clock_mhz": {"F2": [1, 2, 3]}}, "has clocks of F2, which v_shape has not; give a"),
    ):
        write_json(tmp_path / "wrong.json", data)
        with pytest.raises(ScriptError, match=f"wrong.json: clock_mhz: {message}"):
            schedsearch.clocks(tmp_path / "wrong.json")
    with pytest.raises(ScriptError, match="schedule: is missing"):
        schedsearch.clocks(plan_of(SCHEDULE))


def test_clocks_are_set_in_a_with_statement_only() -> None:
    clocks = PlanClocks(plan_of(SCHEDULE), schedule=SCHEDULE, device=0, clock=RecordingClock())
    with pytest.raises(ScriptError, match="inside of a with statement only"):
        clocks.watch(module())
    assert clocks.description == "nothing is watched"


def test_a_split_backward_is_not_watched_in_a_module() -> None:
    schedule = zb_v(wave_shape(2, 2, split_backward=True), 3)
    with (
        pytest.raises(ScriptError, match="the plan splits the backward of F0, and a module does not tell"),
        PlanClocks(plan_of(schedule), module(), schedule=schedule, device=0, clock=RecordingClock()),
    ):
        pass


def test_a_clock_that_is_lost_does_not_end_the_training(
    driver: FakeDriver, caplog: pytest.LogCaptureFixture
) -> None:
    clock, watched = NvmlClock("0"), module()
    with PlanClocks(plan_of(SCHEDULE), watched, schedule=SCHEDULE, device=0, clock=clock):
        os.kill(clock.controller_pid, 15)
        os.waitid(os.P_PID, clock.controller_pid, os.WEXITED | os.WNOWAIT)
        for _ in range(3):
            run_in_order(order(SCHEDULE, 0), watched)
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "training goes on and its clocks are not set any more: the clock controller"
    )
    assert driver.lines()[-1] == "0 reset"


class Callback:
    """As much of Lightning's as a test without Lightning needs."""

    def on_train_end(self, trainer: object, pl_module: object) -> None: ...


def fit(callback: Any, num_batches: int = 6, accumulate: int = 3, fails: bool = False) -> None:
    """Call a callback's methods in the order of Lightning's documentation."""
    trainer = SimpleNamespace(accumulate_grad_batches=accumulate)
    callback.on_fit_start(trainer, None)
    try:
        callback.on_train_epoch_start(trainer, None)
        for number in range(num_batches):
            callback.on_train_batch_start(trainer, None, None, number)
            callback.on_before_backward(trainer, None, None)
            if fails:
                raise KeyboardInterrupt
        callback.on_train_end(trainer, None)
    except KeyboardInterrupt as error:
        callback.on_exception(trainer, None, error)
    callback.teardown(trainer, None, "fit")


def of_one_device() -> tuple[Schedule, FrequencyPlan]:
    schedule = one_f_one_b(v_shape(1), 3)
    return schedule, plan_of(schedule)


@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_does_what_lightnings_hooks_are_for(driver: FakeDriver, fails: bool) -> None:
    schedule, plan = of_one_device()
    clock = NvmlClock("0")
    clocks = PlanClocks(plan, schedule=schedule, clock=clock)
    fit(clocks.callback(Callback), fails=fails)
    assert clock.requests == clocks_of(schedule, 0)[: 1 + fails] if fails else clocks_of(schedule, 0) * 2
    assert driver.lines()[-1] == "0 reset"


def test_a_callback_wants_the_micro_batches_of_the_plan() -> None:
    schedule, plan = of_one_device()
    clocks = PlanClocks(plan, schedule=schedule, clock=RecordingClock())
    with raises_line(ScriptError, match="accumulate_grad_batches: is 1, and the plan is for 3 micro-batches"):
        fit(clocks.callback(Callback), accumulate=1)


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be one process, whatever started the tests."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    yield
