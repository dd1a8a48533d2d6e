"""NCCL on one GPU: a placement of one device under torchrun, groups of one process, messages to oneself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gpu.loopback import LoopbackNetwork
from small_runs import SMALL_GPT, comparison_of, launched

from placements.shapes import k_shape, v_shape
from runtime.codegen.codegen import generate
from runtime.profiling.profiler import Sweep
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.transport.in_memory import NETWORK_OF
from schedsearch.baselines import gpipe, one_f_one_b

pytestmark = pytest.mark.gpu

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The script of a placement of one device, with clocks."""
    clocks = {"F0": [1410, 900], "B0": [1200, 705]}
    generate(lower(gpipe(v_shape(1), 2)), clocks, SMALL_GPT, tmp_path / "scripts")
    return tmp_path / "scripts"


def test_one_device_trains_and_goes_on_from_a_checkpoint(
    scripts: Path, device: str, refused: Path, tmp_path: Path
) -> None:
    torch.use_deterministic_algorithms(False)  # as in the process that torchrun starts
    kept = tmp_path / "kept"
    first = launched(scripts, 1, 2, 300, device=device, checkpoint_every=2, checkpoints=kept)
    assert first.backend == BACKENDS[device]
    assert comparison_of(first).bitwise_equal
    assert comparison_of(first).is_equal
    assert first.clock_requests == {0: (1410, 900, 1200, 705) * 2}
    resumed = launched(scripts, 1, 3, 300, device=device, resume=kept)
    assert (resumed.first_iteration, resumed.iterations) == (2, 1)
    assert comparison_of(resumed).bitwise_equal
    if device == "cuda":
        assert "no right to control the clock" in first.clock_backend
        assert set(refused.read_text().splitlines()) == {"nvmlDeviceResetGpuLockedClocks"}


def test_blocks_are_profiled_at_the_clock_that_the_gpu_has(
    device: str, refused: Path, tmp_path: Path
) -> None:
    large = {"hidden_size": 512, "sequence_length": 128, "micro_batch_size": 8, "dtype": "float32"}
    model = SMALL_GPT | (large if device == "cuda" else {})
    generate(lower(gpipe(v_shape(1), 2)), {}, model, tmp_path)
    measurement = launched(tmp_path, 1, 9, 300, device=device, sweep=Sweep(iterations=2))
    (profile,) = measurement.profiles
    assert {cost.kind for cost in profile.costs} == {"F0", "B0"}
    assert all(cost.time_ms > 0 for cost in profile.costs)
    if profile.description.startswith("times and energies"):
        assert all(cost.energy_mj is not None and cost.energy_mj > 0 for cost in profile.costs)
        assert all(cost.clock_mhz is not None and cost.clock_mhz > 0 for cost in profile.costs)
    if device == "cuda":
        assert set(refused.read_text().splitlines()) <= {"nvmlDeviceResetGpuLockedClocks"}


GROUPS = """
import sys
import torch
import torch.distributed as dist
from placements.shapes import v_shape
from runtime.transport.process_groups import GroupShards, connect

backend, meeting = sys.argv[1:]
if backend == "nccl":
    torch.cuda.set_device(0)
dist.init_process_group(backend, init_method=meeting, rank=0, world_size=1)
channels = connect(v_shape(1), [], 0, 60.0)
assert channels.device.type == ("cuda" if backend == "nccl" else "cpu")
channels.barrier()
channels.meet([0])
assert channels.collect({"a": 1}) == [{"a": 1}]
(copies,) = channels.connect_copies([(0,)]).values()
value = torch.arange(6.0, device=channels.device).view(2, 3)
shards = GroupShards(0, 1, group=dist.new_group([0]), meeting=channels.contact.meeting)
for (gathered,) in (shards.gather(value.T), copies.begin_gather(value.T.contiguous())()):
    assert torch.equal(gathered, value.T) and gathered.device == value.device
channels.barrier()
dist.destroy_process_group()
print("done")
"""


def test_groups_of_one_process_gather_and_meet(device: str, tmp_path: Path) -> None:
    """Tensors through the backend, everything else through gloo on the CPU."""
    command = [sys.executable, "-c", GROUPS, BACKENDS[device], f"file://{tmp_path / 'meeting'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


@pytest.fixture
def loopback(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let runs in one process send their messages through NCCL."""
    monkeypatch.setitem(NETWORK_OF, "rendezvous", LoopbackNetwork)
    monkeypatch.setattr(LoopbackNetwork, "num_messages", 0)
    meeting = f"file://{tmp_path / 'loopback'}"
    dist.init_process_group(BACKENDS[device], init_method=meeting, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("shape", ["v", "k"])
@pytest.mark.parametrize(
    ("ahead", "blocking"), [(0, False), (0, True), (3, False)], ids=["free", "blocking", "early"]
)
def test_the_stream_waits_for_messages_and_buffers_live_so_long(
    shape: str, ahead: int, blocking: bool, loopback: None, device: str, tmp_path: Path
) -> None:
    """As between GPUs the script waits for nothing; a buffer that is given back early shows in the bits."""
    schedule = one_f_one_b(v_shape(3), 5) if shape == "v" else gpipe(k_shape(2), 4)
    programs = prefetch_receives(lower(schedule), ahead, None, lambda producer, consumer: 1)
    model = {"name": "synthetic", "hidden_size": 64, "sequence_length": 32, "micro_batch_size": 4}
    generate(programs, {}, model, tmp_path / "scripts")
    count = programs.placement.num_devices
    options = {"launcher": "in_process", "device": device, "blocking": blocking}
    measurement = launched(tmp_path / "scripts", count, 2, 120, **options)  # type: ignore[arg-type]
    assert LoopbackNetwork.num_messages > 0
    assert comparison_of(measurement).bitwise_equal
    assert comparison_of(measurement).is_equal
