"""Scripts on real processes give the losses and gradients of the unpipelined model, and no others do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from small_runs import comparison_of, edited, launched, require_equal, trained

from placements.shapes import SHAPES, v_shape
from runtime.check import check_file
from runtime.clocks.clock import ClockBackend, RecordingClock
from runtime.clocks.stream_clock import StreamClock
from runtime.codegen.codegen import generate
from runtime.codegen.script import Script
from runtime.device import Device, TransferError
from runtime.execution import clock_requests as requests
from runtime.execution import place
from runtime.execution.place import StreamPlace, StreamTimeoutError
from runtime.execution.process import Process
from runtime.execution.results import Position
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import LaunchError
from runtime.models import Blocks, Model, ModelOptions, suitable_model
from runtime.profiling.observer import DeviceObserver
from runtime.program.calls import Calls, Message, ScriptError, Transfer
from runtime.program.instructions import Instruction, Programs, Receive, Run
from runtime.program.lower import lower
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.contact import Contact
from runtime.transport.process_groups import Channel, Channels
from schedsearch.baselines import gpipe

MODEL = {"hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2, "num_layers": 8, "num_heads": 4}


def model_of(programs: Programs, **more: object) -> ModelOptions:
    return ModelOptions(name=suitable_model(programs.placement), **MODEL | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("shape", "blocking"), [("k_shape", False), ("nn_shape", True)])
def test_shapes_equal_the_unpipelined_model(shape: str, blocking: bool) -> None:
    programs = lower(gpipe(SHAPES[shape](), 3))
    result = trained(programs, model_of(programs), launcher="fork", blocking=blocking)
    require_equal(comparison_of(result))


@pytest.mark.parametrize(("shape", "dtype"), [("k_shape", "bfloat16"), ("nn_shape", "float64")])
def test_forms_of_scripts_are_those_of_the_model(shape: str, dtype: str, tmp_path: Path) -> None:
    programs = lower(gpipe(SHAPES[shape](), 2))
    options = model_of(programs, dtype=dtype)
    blocks = Blocks(programs.placement, Model(options, programs.placement, {}), 1)
    programs = programs.with_specs(blocks.spec_between)
    assert len({spec for specs in programs.specs for spec in specs.values()}) == 1 + (shape == "nn_shape")
    assert comparison_of(trained(programs, options, tmp_path, 1, "fork")).bitwise_equal
    assert f'"dtype": "{dtype}"' in (tmp_path / "job.json").read_text()


@pytest.mark.parametrize("wrong", [TensorSpec("float64", (2, 6, 9)), TensorSpec("float32", (2, 6, 8))])
def test_a_script_with_other_forms_than_its_model_is_refused(wrong: TensorSpec, tmp_path: Path) -> None:
    """Both ends agree, so that only the model can tell; here it is asked before anything is sent."""
    programs = lower(gpipe(v_shape(2), 2)).with_specs(lambda producer, consumer: wrong)
    generate(programs, {}, {"name": "gpt", **MODEL}, tmp_path)
    check_file(tmp_path)
    with pytest.raises(
        LaunchError, match=r"device .: the script expects float.. \(2, 6, .\) for .*generate the scripts"
    ):
        launched(tmp_path, 2, 1, launcher="in_process")


def test_a_block_that_runs_twice_is_refused_before_anything_runs() -> None:
    programs = edited(lower(gpipe(v_shape(2), 2)), 1, lambda program: program.append(Run("B1", 0)))
    with pytest.raises(LaunchError, match="the script runs B1 of micro-batch 0 2 times instead of 1"):
        trained(programs, model_of(programs))


def test_a_tensor_that_never_came_is_named() -> None:
    def drop(program: list[Instruction]) -> None:
        program.remove(Receive("F0", "F1", 1, 0))

    programs = edited(lower(gpipe(v_shape(2), 2)), 1, drop)
    with pytest.raises(LaunchError, match="before F0 -> F1 of micro-batch 1 was received or computed"):
        trained(programs, model_of(programs))


class OneBlock:
    """Stands for `Blocks`: a forward block whose tensor another one takes."""

    inputs: Mapping[str, Sequence[str]] = {"F0": (), "F1": ("F0",)}

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def begin(self, iteration: int) -> None: ...

    varies = False

    def spec_between(self, producer: str, consumer: str, micro_batch: int | None = None) -> TensorSpec:
        return TensorSpec("float32", (2,))

    def run(
        self, block: str, micro_batch: int, arrived: Sequence[torch.Tensor], mode: str
    ) -> dict[str, torch.Tensor]:
        self.events.append(f"run {block}")
        return {"F1": torch.zeros(1)}


class EventClock(RecordingClock):
    """Writes requests among the other events."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events

    def set(self, clock_mhz: int) -> None:
        self.events.append(f"clock {clock_mhz}")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Events on a machine whose fake GPU records each wait."""
    happened: list[str] = []

    class Stream:
        def synchronize(self) -> None:
            happened.append("wait for the stream")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: happened.append("wait for the GPU"))
    monkeypatch.setattr(place, "record_event", lambda **_: SimpleNamespace(query=lambda: True))
    monkeypatch.setattr(dist, "barrier", lambda group: happened.append(f"barrier of {group}"))
    return happened


def one_device(
    events: list[str],
    calls: Calls,
    clock: ClockBackend | None = None,
    blocks: OneBlock | None = None,
    links: Mapping[Channel, Any] = MappingProxyType({}),
    timeout_s: float = 300.0,
    observers: Sequence[DeviceObserver] = (),
) -> Device:
    """Return a device, in its first iteration."""
    script = cast(Script, SimpleNamespace(calls=calls, specs=None, left_out=()))
    made = Device(
        script,
        Process(0, 1, RunOptions(timeout_s=timeout_s)),
        Channels("all", links, {}, Contact(dist.HashStore(), 0, 2)),  # type: ignore[arg-type]
        cast(Blocks, blocks or OneBlock(events)),
        Position(None, 0),
        [requests.ClockRequests(clock or EventClock(events), calls.runs), *observers],
    )
    made.begin(0)
    return made


def test_a_tensor_that_was_computed_in_vain_is_named(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    calls = Calls()
    calls.send("F0", "F1", 0, target=1)
    made = one_device(events, calls)
    made.run("F0", 0)
    with pytest.raises(ScriptError, match="device 0: nobody took F0 -> F1 of micro-batch 0"):
        made.finish()


def test_a_tensor_of_another_form_is_not_sent(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Gloo would take four floats for eight, and nobody would know."""
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    calls = Calls()
    calls.send("F0", "F1", 0, target=1)
    made = one_device(events, calls, links={(0, 1): None})
    made.run("F0", 0)
    with pytest.raises(ScriptError, match=r"micro-batch 0 is float32 \(1,\) instead of float32 \(2,\)"):
        made.send("F0", "F1", 0, target=1)


CLOCKS = [1410, 1410, None, 900]


def test_a_new_clock_is_asked_for_at_once_on_the_cpu(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    made = one_device(events, Calls())
    for n, clock_mhz in enumerate(CLOCKS):
        made.run("F0", n, clock_mhz)
    assert events == ["clock 1410", "run F0", "clock 1410", "run F0", "run F0", "clock 900", "run F0"]


def test_a_new_clock_waits_for_nothing_on_a_gpu(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are recorded on the compute stream; the script runs on, and the stream clock does the rest."""

    class Recorded:
        def __init__(self) -> None:
            events.append("event")

        def query(self) -> bool:
            return False

    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(requests, "record_event", lambda **_: Recorded())
    runs = [Run("F0", n, clock_mhz=clock_mhz) for n, clock_mhz in enumerate(CLOCKS)]
    clock = StreamClock(EventClock(events), runs)  # type: ignore[arg-type]
    made = one_device(events, Calls(), clock)
    for _ in range(2):
        made.begin(0)
        for n, clock_mhz in enumerate(CLOCKS):
            made.run("F0", n, clock_mhz)
        clock.step()
    framed = ["event", "run F0", "event"]
    assert events == [*framed, *framed, "run F0", *framed] * 2
    assert clock.requests == [1410, 1410, 900] * 2


def test_a_gpu_that_stands_at_a_message_is_named(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under NCCL the script has long gone on, so it is the stream whose place counts."""
    work = SimpleNamespace(wait=lambda: None, is_completed=lambda: False)
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(dist, "irecv", lambda *arguments, **options: work)
    monkeypatch.setattr(torch, "empty", lambda *arguments, **options: torch.zeros(2))
    monkeypatch.setattr(place, "record_event", lambda **_: SimpleNamespace(query=lambda: False))
    blocks = OneBlock(events)
    blocks.inputs = {"F1": ["F0"], "G": []}
    made = one_device(events, Calls(), blocks=blocks, links={(1, 0): "link"}, timeout_s=0.01)
    made.receive("F0", "F1", 0, source=1)
    made.run("F1", 0)
    made.run("G", 0)
    where = (
        r"device 0: iteration 0, call 2 of 0, runs F1 of micro-batch 0, waits for F0 -> F1 of micro-batch 0"
    )
    with pytest.raises(TransferError, match=f"{where} from device 1: the GPU did not go on within 0.01 s"):
        made.finish()


RUN = Run("F0", 0)
MESSAGE = Message(Transfer("F0", "F1", 0), 0, 1)


class MarkedStream:
    """A stream whose marks are reached one by one, each time the script sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ahead: int = 2, timeout_s: float = 20.0) -> None:
        self.position = Position(None, 0)
        self.given = self.reached = 0
        self.seen: list[str] = []
        self.script = StreamPlace(self.position, self.mark, timeout_s, ahead)
        monkeypatch.setattr(place.time, "sleep", self.go_on)

    def mark(self) -> MarkedStream._Mark:
        self.given += 1
        return MarkedStream._Mark(self, self.given)

    def go_on(self, seconds: float) -> None:
        self.seen.append(self.position.text)
        self.reached += 1

    class _Mark:
        def __init__(self, stream: MarkedStream, number: int) -> None:
            self.query: Callable[[], bool] = lambda: stream.reached >= number


def test_the_script_stays_so_many_blocks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = MarkedStream(monkeypatch, ahead=2)
    counts = []
    for _ in range(6):
        stream.script.reach(RUN)
        stream.script.stop(RUN, [])
        counts.append((stream.given, stream.reached))
    assert counts == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)]
    stream.script.drain()
    assert stream.reached == stream.given == 7


def test_a_stream_that_stands_is_given_up_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = MarkedStream(monkeypatch, timeout_s=0.01)
    monkeypatch.setattr(place.time, "sleep", lambda seconds: None)
    stream.position.move("call 2, waits for F0")
    stream.script.waited(MESSAGE)
    stream.position.move("call 9 of 9")
    with pytest.raises(StreamTimeoutError, match="the GPU did not go on within 0.01 s"):
        stream.script.drain()
    assert stream.position.text == "call 2, waits for F0"
