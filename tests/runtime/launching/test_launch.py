"""Starting, following and ending the processes of a run."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from joined import meeting_in
from perfetto_rules import problems, read_events, thread_of
from small_runs import SMALL_GPT, change, comparison_of, launched

from experiments.config.declaring import own_options
from experiments.run.options import RuntimeOptions
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.execution.results import Progress
from runtime.execution.run_options import RUN_FILE, RunOptions
from runtime.launching.launch import LaunchError, main
from runtime.launching.processes import Torchrun
from runtime.models import ModelOptions
from runtime.options.model import UserModelOptions
from runtime.options.run import UserRunOptions
from runtime.program.calls import ScriptError
from runtime.program.lower import lower
from schedsearch.baselines import gpipe

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Return the folder of the scripts of a V-shape on two devices, with clocks."""
    placement = v_shape(2)
    clocks = {block.name: [1410, 900] for block in placement.blocks}
    generate(lower(gpipe(placement, 2)), clocks, SMALL_GPT, tmp_path / "scripts")
    return tmp_path / "scripts"


def insert(script: Path, line: str) -> None:
    """Let a script's iteration begin with a line."""
    end_of_docstring = '\n    """\n'
    change(script, end_of_docstring, f"{end_of_docstring}    {line}\n")


def running(directory: Path) -> list[str]:
    """Return the ids of the processes that run the scripts of a folder now."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in path.read_bytes():
                pids.append(path.parent.name)
        except OSError:
            continue
    return pids


def test_measurement_is_plain_data(scripts: Path) -> None:
    progress: list[Progress] = []
    measurement = launched(scripts, 2, 3, launcher="fork", progress=progress.append)
    data = json.loads(json.dumps(measurement.to_dict()))
    assert data["schema_version"] == 1
    assert data["backend"] == "gloo"
    assert data["iterations"] == len(data["time_ms"]) == 3
    assert data["losses"] == data["reference_losses"]
    assert [len(row) for row in data["losses"]] == [2, 2, 2]
    assert data["max_gradient_error"] <= 1e-12
    assert data["bitwise_equal"] is True
    assert data["clock_requests"] == {device: [1410, 900] * 6 for device in ("0", "1")}
    assert data["clock_backend"] == "clocks are recorded only: the script runs on the CPU"
    assert data["device_names"] == ["cpu", "cpu"]
    assert [event.iteration for event in progress] == [0, 1, 2]
    assert re.fullmatch(r"iteration 2: loss \d\.\d{6}, \d+\.\d ms", str(progress[2]))


def test_torchrun_gives_the_same_as_forked_processes(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its devices give freed memory back, as long as the user does not say how memory is allocated."""
    started: list[dict[str, str]] = []
    start: Any = subprocess.Popen

    def noted(*arguments: Any, env: dict[str, str], **more: Any) -> Any:
        started.append(env)
        return start(*arguments, env=env, **more)

    forked = launched(scripts, 2, 2, launcher="fork")
    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    measurement = launched(scripts, 2, 2)
    assert comparison_of(measurement).bitwise_equal
    assert measurement.losses == forked.losses
    assert measurement.clock_requests == forked.clock_requests
    assert [environ["MALLOC_MMAP_THRESHOLD_"] for environ in started] == ["4194304"]
    assert [environ["THP_MEM_ALLOC_ENABLE"] for environ in started] == ["0"]


def test_the_error_of_the_failing_device_comes_first(scripts: Path) -> None:
    insert(scripts / "device_1.py", 'raise RuntimeError("boom")')
    with pytest.raises(LaunchError, match="device 1 failed: RuntimeError: boom") as caught:
        launched(scripts, 2, 1, launcher="fork")
    assert "device_1.py" in str(caught.value)
    assert "device 0: " in str(caught.value)


def test_a_killed_device_is_named_and_not_those_that_miss_it(scripts: Path) -> None:
    insert(
        scripts / "device_1.py",
        "hasattr(device, 'count') or __import__('os').kill(__import__('os').getpid(), 9)",
    )
    with pytest.raises(LaunchError, match="^device 1 was ended by SIGKILL\n"):
        launched(scripts, 2, 1, launcher="fork")


def test_a_run_that_hangs_tells_who_waits_for_what(scripts: Path) -> None:
    text = (scripts / "device_0.py").read_text()
    assert 'device.send("F0", "F1"' in text
    (scripts / "device_0.py").write_text(re.sub(r'device\.send\("F0", "F1".*\)', "pass", text))
    with pytest.raises(LaunchError, match="no progress for 20 s") as caught:
        launched(scripts, 2, 1, 20, launcher="fork")
    message = str(caught.value)
    assert re.search(
        r"device 1: iteration 0, call \d+ of \d+, runs F1 of micro-batch 0, waits for F0 -> F1", message
    )
    assert "from device 0" in message


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, for as long as a busy machine may need."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_torchrun_reports_the_failing_device_and_leaves_no_process_behind(scripts: Path) -> None:
    insert(scripts / "device_0.py", "__import__('time').sleep(1000)")
    insert(scripts / "device_1.py", "1 / 0")
    with pytest.raises(LaunchError, match="device 1 failed: ZeroDivisionError: division by zero"):
        launched(scripts, 2, 1)
    assert running(scripts) == []


def start_torchrun(script: Path, results: Path, ends: int) -> None:
    """Start torchrun, and stop it as soon as a pipe ends, unless this process is killed before."""
    torchrun = Torchrun(script.parent, 1, RunOptions(results=results))
    os.read(ends, 1)
    torchrun.stop()


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_torchrun_and_its_devices_end_with_whoever_started_them(tmp_path: Path, way: str) -> None:
    (script,) = generate(lower(gpipe(v_shape(1), 1)), {}, SMALL_GPT, tmp_path / "scripts")
    insert(script, "__import__('time').sleep(1000)")
    ends, end = os.pipe()
    starter = FORK.Process(target=start_torchrun, args=(script, tmp_path, ends))
    starter.start()
    wait_until(lambda: len(running(script.parent)) == 2, "torchrun starts no device")
    if way == "stopped":
        os.write(end, b".")
    else:
        starter.kill()
    starter.join()
    if way == "killed":
        wait_until(lambda: not running(script.parent), "a device outlives its launch")
    assert running(script.parent) == []


def by_hand(device: int, common: dict[str, str], arguments: list[str], folder: Path) -> None:
    """Be one of two processes that torchrun starts."""
    os.environ |= common | {"RANK": str(device)}
    with (folder / f"output_{device}.txt").open("w") as sys.stdout:
        sys.exit(main(arguments))


def test_scripts_run_by_hand(scripts: Path, tmp_path: Path) -> None:
    trace = tmp_path / "drawn" / "trace.json"
    arguments = [str(scripts), "--iterations", "2", "--trace-file", str(trace)]
    common = meeting_in(tmp_path, 2)
    devices = [FORK.Process(target=by_hand, args=(device, common, arguments, tmp_path)) for device in (0, 1)]
    for device in devices:
        device.start()
    for device in devices:
        device.join()
    output = [(tmp_path / f"output_{device}.txt").read_text() for device in (0, 1)]
    assert [device.exitcode for device in devices] == [0, 0]
    assert [text.count("iteration ") for text in output] == [2, 0]
    events = read_events(trace)
    assert problems(events) == []
    assert [len(thread_of(events, device, "measured")) for device in (0, 1)] == [8, 8]


def test_wrong_options_of_a_run_by_hand_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the process joins any other, and as a launch refuses them."""
    monkeypatch.setattr(os, "environ", os.environ | {"RANK": "0", "WORLD_SIZE": "1"})
    assert main([str(tmp_path), "--trace-file", str(tmp_path)]) == 1
    message = f"trace_file: {tmp_path} is a folder; give a file in it"
    assert capsys.readouterr().err == f"runtime.launch: {message}\n"


def test_a_run_has_the_options_of_its_launch_alone(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options left in the shell's environment by a manual run are not used."""
    monkeypatch.setenv(RUN_FILE, "nowhere")
    assert launched(scripts, 2, 1, launcher="fork").num_micro_batches == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_devices": 3}, "has no device_2.py; generate the scripts of all devices first"),
        ({"iterations": 0}, "iterations: 0 is not at least 1"),
        ({"timeout_s": float("nan")}, "timeout_s: nan is not above 0 s"),
        ({"keep_checkpoints": -1}, "keep_checkpoints: -1 is not at least 0"),
        ({"checkpoint_every": 2}, "checkpoint_every: 2 needs a folder for checkpoints; give one"),
        ({"checkpoints": __file__, "checkpoint_every": 1}, "test_launch.py is not a folder; give one"),
        ({"launcher": "mpi"}, "launcher: 'mpi' is not known; use torchrun or fork"),
        ({"launcher": "fork", "backend": "nccl"}, "backend: 'nccl' cannot be used with launcher 'fork'"),
        ({"device": "tpu"}, "device: 'tpu' is not known; use cpu or cuda"),
        ({"verify": "some"}, "verify: 'some' is not known; use none or first or all"),
        ({"device": "cpu", "backend": "nccl"}, "device: 'cpu' does not fit backend 'nccl'; use cuda"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_named(scripts: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        launched(scripts, **({"num_devices": 2} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_gpus", "arguments", "message"),
    [
        (0, {"device": "cuda", "launcher": "in_process"}, "device: 'cuda' cannot .* no GPU here; use cpu"),
        (0, {"backend": "nccl"}, "device: 'cuda' cannot be used, PyTorch finds no GPU here; use cpu"),
        (1, {"device": "cuda"}, "takes a GPU for each of the 2 devices, PyTorch finds 1 here; use launcher"),
        (
            2,
            {"device": "cuda", "backend": "gloo"},
            "device: 'cuda' does not fit backend 'gloo'; use cpu",
        ),
        (1, {"launcher": "fork"}, "launcher: 'fork' cannot be used beside a GPU, .* CUDA_VISIBLE_DEVICES="),
    ],
)
def test_a_run_is_refused_where_there_are_too_few_gpus(
    scripts: Path, num_gpus: int, arguments: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    with pytest.raises(ScriptError, match=message):
        launched(scripts, 2, **arguments)  # type: ignore[arg-type]


OTHER_DEFAULTS = {"iterations", "timeout_s", "launcher"}
"""Of the command's group: it runs three iterations, with more time, and may start none of them."""


def test_the_command_has_the_same_defaults() -> None:
    group: dict[str, Any] = {option.name: option.default for option in own_options(RuntimeOptions)}
    defaults = {option.name: option.default for option in fields(RunOptions)}
    both = (group.keys() & defaults.keys()) - OTHER_DEFAULTS
    assert group["launcher"] == defaults["launcher"]
    assert {"keep_checkpoints", "checkpoint_every", "checkpoint_async"} <= both
    assert {name: group[name] for name in both} == {name: defaults[name] for name in both}
    assert (group["iterations"], group["timeout_s"]) == (3, 600)


def test_the_command_repeats_no_option_of_a_run_or_of_a_model() -> None:
    """A folder to go on with is another thing to each: a command's output, or a folder of checkpoints."""
    names = set(vars(RuntimeOptions)["__annotations__"])
    declared = {option.name for option in (*fields(RunOptions), *fields(ModelOptions))}
    assert names & declared == OTHER_DEFAULTS | {"resume"}
    shared = {option.name for option in (*fields(UserRunOptions), *fields(UserModelOptions))}
    assert {option.name for option in fields(RuntimeOptions)} >= shared
