from __future__ import annotations

import re
from functools import partial

import pytest
import torch
import torch.distributed as dist
from fake_event import FakeEvent
from torch import Tensor

from experiments.benchmarks.runtime import measuring
from experiments.benchmarks.runtime.clock_costs import clocks_of_stream
from experiments.benchmarks.runtime.measuring import (
    asleep,
    beside_torch,
    beside_virtual,
    blocks_of_gpt,
    calls,
    computed,
)
from experiments.benchmarks.runtime.memory import checkpointed, resident
from experiments.benchmarks.runtime.one_device import no_gpu, script_of, time_calls
from experiments.benchmarks.runtime.processes import BenchmarkError, on_devices
from experiments.benchmarks.runtime.sleeping import SleepingBlocks
from placements.shapes import v_shape
from runtime.models import Blocks
from runtime.program.tensor_flow import KEEP
from runtime.transport.in_memory import MemoryTransport, Network
from schedsearch.baselines import one_f_one_b

TINY = {"name": "synthetic", "hidden_size": 4, "sequence_length": 3, "micro_batch_size": 1}
SMALL_GPT = TINY | {"name": "gpt", "hidden_size": 8, "num_layers": 2, "num_heads": 2}


def test_a_wrong_expectation_is_reported_as_not_met() -> None:
    schedule, chain = one_f_one_b(v_shape(2), 2), v_shape(2).with_memory(2)
    for measure, limit, wrong in (
        (partial(asleep, chain, 2, tick_ms=1.0, message_bytes=64, rounds=1), "tolerance", -1.0),
        (partial(calls, TINY, num_stages=2, rounds=3), "max_us", -1e9),
        (partial(beside_torch, schedule, width=4, rows=2, rounds=1), "most", 0.0),
        (partial(beside_virtual, schedule, tick_ms=1.0, message_bytes=64, rounds=1), "most", 0.0),
        (partial(resident, v_shape(2), 2, SMALL_GPT, launcher="fork"), "tolerance", -1.0),
    ):
        assert not measure(**{limit: wrong}).is_met, measure
        assert measure(**{limit: 1e9}).is_met, measure
    assert checkpointed(v_shape(2), SMALL_GPT, most=-1e9).missed
    assert computed(chain, 2, TINY, rounds=1).is_met
    assert blocks_of_gpt(SMALL_GPT, num_stages=2, where="cpu", min_ms=0.0).is_met


def test_a_bare_loop_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks' tensors are disturbed in every other iteration, so in those of one of the two."""
    script, original = script_of(TINY, 2, 2), Blocks.run
    assert time_calls(script, 1).equal
    count = [0]

    def disturbed(
        self: Blocks, block: str, micro_batch: int, arrived: list[Tensor], mode: str = KEEP, **more: bool
    ) -> dict[str, Tensor]:
        made = dict(original(self, block, micro_batch, arrived, mode, **more))
        count[0] += 1
        is_bare = (count[0] - 1) // len(script.calls.runs) % 2
        return {name: tensor * (1.5 if is_bare else 1.0) for name, tensor in made.items()}

    monkeypatch.setattr(Blocks, "run", disturbed)
    assert not time_calls(script, 1).equal


def test_losses_that_differ_between_ways_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = measuring.launch, [0]

    def launch_differently(*arguments, **options):  # type: ignore[no-untyped-def]
        count[0] += 1
        found = real(*arguments, **options)
        object.__setattr__(found, "losses", ((float(count[0]),),))
        return found

    monkeypatch.setattr(measuring, "launch", launch_differently)
    found = computed(v_shape(2).with_memory(2), 2, TINY, rounds=1)
    assert found.missed == ("3 different losses",)


@pytest.mark.gpu
@pytest.mark.skipif(bool(no_gpu()), reason="there is no CUDA device")
def test_blocks_are_profiled_on_the_gpu() -> None:
    found = blocks_of_gpt(SMALL_GPT, num_stages=2, where="cuda:0", min_ms=50.0)
    assert found.is_met, found
    assert found.note.startswith(torch.cuda.get_device_name(0))


def test_a_block_is_not_given_what_nobody_sent() -> None:
    placement = v_shape(2)
    transport = MemoryTransport.of(Network(2), placement, ((0, 1), (1, 0)), 0)
    blocks = SleepingBlocks(placement, transport, 0.1, 64)
    (sent,) = blocks.run("F0", 0, []).values()
    assert sent.shape == blocks.spec_between("F0", "F1").shape == (16,)
    assert blocks.run("B0", 0, [sent]) == {}
    with pytest.raises(RuntimeError, match="B0 was given something that nobody sent"):
        blocks.run("B0", 1, [torch.zeros(16)])


def test_every_device_returns_and_a_failure_ends_all() -> None:
    def ranks(device: int) -> list[int]:
        found: list[int] = [0, 0, 0]
        dist.all_gather_object(found, device)
        return found

    def failing(device: int) -> None:
        if device == 1:
            raise SystemExit(3)
        dist.barrier()

    assert on_devices(3, ranks) == [[0, 1, 2]] * 3
    with pytest.raises(BenchmarkError, match="failed or took too long"):
        on_devices(2, failing, timeout_s=20.0)


def test_what_requests_of_clocks_cost_is_told_apart() -> None:
    note = clocks_of_stream("cpu", num_blocks=3, launches=2, record=lambda: FakeEvent(0.0)).note
    request_us, launch_us, _ = map(float, re.findall(r"[-+]?\d+\.\d+", note))
    assert request_us > 0 and launch_us > 0
