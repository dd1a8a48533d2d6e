"""All devices in one process: any valid schedule of any placement computes the model's results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_runs import compared, comparison_of, edited, launched, trained
from strategies import any_schedules

from placements.shapes import m_shape, v_shape
from runtime.codegen.codegen import generate
from runtime.codegen.job import read_job, write_job
from runtime.launching.launch import LaunchError
from runtime.options.run import NETWORKS
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Run, Send
from runtime.program.lower import lower
from runtime.transport.in_memory import Network, backward_in_own_thread
from runtime.verify.replay import ReplayError
from schedsearch.baselines import gpipe
from schedsearch.schedule import Schedule
from schedsearch.validate import validate

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 3, "micro_batch_size": 1, "text": None}
FEW = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(any_schedules(4), st.sampled_from(NETWORKS), st.booleans(), st.sampled_from(["sgd", "adamw"]))
def test_any_schedule_of_any_placement_runs(
    schedule: Schedule, backend: str, blocking: bool, optimizer: str
) -> None:
    validate(schedule)
    model = MODEL | {"optimizer": optimizer, "micro_batch_size": 12}
    comparison = comparison_of(trained(check(lower(schedule)), model, backend=backend, blocking=blocking))
    assert comparison.bitwise_equal
    assert optimizer == "adamw" or comparison.is_equal, comparison


def test_threads_give_the_bits_of_processes() -> None:
    programs = lower(gpipe(m_shape(), 3))
    threads, processes = (trained(programs, MODEL, launcher=launcher) for launcher in ("in_process", "fork"))
    assert threads.backend == "rendezvous"
    assert threads.losses == processes.losses
    assert threads.peak_posted_bytes == processes.peak_posted_bytes
    assert comparison_of(threads) == comparison_of(processes)
    assert comparison_of(threads).bitwise_equal


def test_a_deadlock_is_known_at_once_and_names_every_device() -> None:
    """Device 0 posts its receive before its send: only where that blocks do both wait for each other."""
    programs = lower(gpipe(v_shape(2), 1))
    programs = edited(programs, 0, lambda program: program.insert(1, program.pop(2)))
    with pytest.raises(UnsafeProgramsError, match="wait for each other in a cycle"):
        check(programs)
    assert compared(programs, MODEL).bitwise_equal
    with pytest.raises(LaunchError, match="the devices wait for each other") as caught:
        trained(programs, MODEL, blocking=True)
    lines = str(caught.value)
    assert "device 0: iteration 0, call 2 of 4, receives B1 -> B0 of micro-batch 0, waits for" in lines
    assert "device 1: iteration 0, call 1 of 4, receives F0 -> F1 of micro-batch 0, waits for" in lines


def test_a_missing_send_is_a_deadlock_even_with_buffers(tmp_path: Path) -> None:
    programs = lower(gpipe(v_shape(2), 1))
    programs = edited(programs, 0, lambda program: program.remove(Send("F0", "F1", 0, 1)))
    scripts = generate(programs, {}, MODEL, tmp_path)
    job = read_job(tmp_path / "job.json")
    name = write_job(replace(job, channels=((0, 1), (1, 0))), tmp_path / "job.json")
    for script in scripts:
        script.write_text(script.read_text().replace(job.hash, name))
    with pytest.raises(LaunchError, match="waits for F0 -> F1 of micro-batch 0 from device 0"):
        launched(tmp_path, 2, 1, launcher="in_process", backend="buffered")


def test_collectives_in_another_order_are_noticed() -> None:
    programs = lower(gpipe(m_shape(2), 2))

    def swap(program: list[Instruction]) -> None:
        first, second = program.index(Run("E", 0)), program.index(Run("E", 1))
        program[first], program[second] = program[second], program[first]

    wrong = edited(programs, 1, swap)
    with pytest.raises(UnsafeProgramsError):
        check(wrong)
    with pytest.raises((LaunchError, ReplayError), match="wait for each other"):
        trained(wrong, MODEL)


def test_a_backward_runs_in_the_thread_of_its_device() -> None:
    """On a GPU torch has one for all of them, in which a block would wait for one that cannot begin."""
    before = torch._C._is_multithreading_enabled()
    with backward_in_own_thread(torch.device("cpu")):
        assert not torch._C._is_multithreading_enabled()
    assert torch._C._is_multithreading_enabled() == before


def test_a_sent_tensor_belongs_to_the_transfer_until_it_is_met() -> None:
    """As on the wire: a script that changed it too early would be found out, unless sends are buffered."""
    for buffered, expected in ((False, 7.0), (True, 1.0)):
        network, tensor, buffer = Network(2, buffered=buffered), torch.ones(1), torch.zeros(1)
        sent = network.send(tensor, (0, 1))
        assert sent.is_completed() == buffered
        tensor.fill_(7)
        assert network.receive(buffer, (0, 1)).is_completed()
        assert sent.is_completed()
        assert buffer.item() == expected
