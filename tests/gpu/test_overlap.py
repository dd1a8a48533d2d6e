"""Messages beside kernels: overlap in a GPU's trace of a pipeline with NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gpu.loopback import LoopbackNetwork
from small_runs import launched

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.transport.in_memory import NETWORK_OF
from schedsearch.baselines import one_f_one_b

pytestmark = pytest.mark.gpu

MODEL = {
    "name": "gpt",
    "hidden_size": 2048,
    "sequence_length": 2048,
    "micro_batch_size": 1,
    "num_layers": 4,
    "num_heads": 16,
    "dtype": "bfloat16",
}


@pytest.fixture
def loopback(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let runs in one process send their messages through NCCL, each some milliseconds late."""
    if device == "cpu":
        pytest.skip("the processor has no kernels to trace")
    torch.use_deterministic_algorithms(False)  # attention has none in bfloat16
    monkeypatch.setitem(NETWORK_OF, "rendezvous", LoopbackNetwork)
    dist.init_process_group("nccl", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def overlap(spans: list[tuple[float, float]], others: list[tuple[float, float]]) -> float:
    """Return for how long any of the first is under way while any of the others is."""
    marks = [
        (at, which, step)
        for which, group in enumerate((spans, others))
        for span in group
        for at, step in zip(span, (1, -1), strict=True)
    ]
    under_way, total, before = [0, 0], 0.0, 0.0
    for at, which, step in sorted(marks):
        total += (at - before) if all(under_way) else 0.0
        under_way[which] += step
        before = at
    return total


def share_beside_blocks(folder: Path, ahead: int, blocking: bool) -> float:
    """Return of the time that messages are under way that in which a block computes too."""
    late = lower(one_f_one_b(v_shape(2), 8))
    generate(prefetch_receives(late, ahead, None, lambda producer, consumer: 1), {}, MODEL, folder)
    options = {"launcher": "in_process", "device": "cuda", "verify": "none", "blocking": blocking}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        launched(folder, 2, 3, 120, **options)  # type: ignore[arg-type]
    kernels = [event for event in profiler.events() if event.device_type.name == "CUDA"]
    messages, blocks = (
        [
            (event.time_range.start, event.time_range.end)
            for event in kernels
            if any(word in event.name.lower() for word in words)
        ]
        for words in (("nccl", "spin", "sleep"), ("gemm", "nvjet", "flash", "fmha", "cutlass"))
    )
    assert messages and blocks
    return overlap(messages, blocks) / overlap(messages, messages)


def test_messages_move_while_blocks_compute(
    loopback: None, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """All devices share one GPU and one compute stream, so much of a message's time nobody can compute."""
    early = share_beside_blocks(tmp_path / "early", 1, False)
    blocking = share_beside_blocks(tmp_path / "blocking", 0, True)
    record_property("share_of_message_time_beside_blocks", {"early": early, "blocking": blocking})
    assert early > 0.1
    assert blocking < early / 2, "else the trace shows nothing of how messages were posted"
