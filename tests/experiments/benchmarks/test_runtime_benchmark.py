from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from fake_event import FakeEvent
from quick_rows import quick_rows
from torch import Tensor

from experiments.benchmarks.comparison import MedianRatio, Ratio
from experiments.benchmarks.results import Case, CaseResult
from experiments.benchmarks.runtime import measuring
from experiments.benchmarks.runtime.cases import BENCHMARK
from experiments.benchmarks.runtime.clock_costs import time_clock_requests
from experiments.benchmarks.runtime.measuring import (
    asleep,
    beside_torch,
    beside_virtual,
    blocks_of_gpt,
    calls,
    computed,
)
from experiments.benchmarks.runtime.memory import checkpointed, resident
from experiments.benchmarks.runtime.one_device import cuda_is_there, script_of, time_calls
from experiments.benchmarks.runtime.processes import BenchmarkError, on_devices
from experiments.benchmarks.runtime.sleeping import SleepingBlocks
from placements.shapes import v_shape
from runtime.models import Blocks
from runtime.transport.in_memory import MemoryTransport, Network
from schedsearch.baselines import one_f_one_b

TINY = {"name": "synthetic", "hidden_size": 4, "sequence_length": 3, "micro_batch_size": 1}
SMALL_GPT = TINY | {"name": "gpt", "hidden_size": 8, "num_layers": 2, "num_heads": 2}


def test_the_quick_cases_reach_what_they_must(tmp_path: Path) -> None:
    rows = quick_rows(BENCHMARK, tmp_path / "results.json")
    assert {row["group"] for row in rows} == set(BENCHMARK.groups)
    for row in rows:
        # How long things take depends on the machine, and on what else it does; what was found does not.
        assert all("is not within" in text or "more than" in text for text in row["missed"]), row
    skipped = [row for row in rows if row["skipped"]]
    assert [row["skipped"] for row in skipped] == ["there is no CUDA device"] * 2 * (not cuda_is_there())
    assert all(row["note"] for row in rows if row not in skipped)


def test_a_wrong_expectation_is_reported_as_not_met(tmp_path: Path) -> None:
    schedule, chain = one_f_one_b(v_shape(2), 2), v_shape(2).with_memory(2)
    sleep = partial(asleep, chain, 2, tick_ms=1.0, message_bytes=64, rounds=1)
    torch_too = partial(beside_torch, schedule, width=4, rows=2, rounds=1)
    virtual_too = partial(beside_virtual, schedule, tick_ms=1.0, message_bytes=64, rounds=1)
    on_cpu = partial(blocks_of_gpt, SMALL_GPT, num_stages=2, where="cpu", min_ms=0.0)
    in_memory = partial(resident, v_shape(2), 2, SMALL_GPT, launcher="fork")
    cases = [
        Case("wrong", "asleep", "exact", partial(sleep, tolerance=-1.0)),
        Case("wrong", "calls", "none", partial(calls, TINY, num_stages=2, rounds=3, most_us=-1e9)),
        Case("wrong", "torch", "in no time", partial(torch_too, most=0.0)),
        Case("wrong", "virtual", "in no time", partial(virtual_too, most=0.0)),
        Case("wrong", "memory", "none", partial(in_memory, tolerance=-1.0)),
        Case("wrong", "checkpoint", "none", partial(checkpointed, v_shape(2), SMALL_GPT, most=-1e9)),
        Case("right", "memory", "any", partial(in_memory, tolerance=1e9)),
        Case("right", "virtual", "any", partial(virtual_too, most=1e9)),
        Case("right", "asleep", "any", partial(sleep, tolerance=1e9)),
        Case("right", "computed", "same", partial(computed, chain, 2, TINY, rounds=1)),
        Case("right", "calls", "any", partial(calls, TINY, num_stages=2, rounds=3, most_us=1e9)),
        Case("right", "torch", "any", partial(torch_too, most=1e9)),
        Case("right", "processor", "any", on_cpu),
    ]
    rows = BENCHMARK.run(cases, tmp_path / "results.json")
    assert [row.result.is_met for row in rows] == [case.group == "right" for case in cases]


def test_a_bare_loop_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks' tensors are disturbed in every other iteration, so in those of one of the two."""
    script, original = script_of(TINY, 2, 2), Blocks.run
    assert time_calls(script, 1).equal
    count = [0]

    def disturbed(self: Blocks, block: str, micro_batch: int, arrived: list[Tensor]) -> dict[str, Tensor]:
        made = dict(original(self, block, micro_batch, arrived))
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


def test_the_gpu_is_skipped_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "cuda_is_there", lambda: False)
    found = blocks_of_gpt(SMALL_GPT, num_stages=2, where="cuda:0", min_ms=1.0)
    assert found == CaseResult(0.0, skipped="there is no CUDA device")
    assert not found.is_met


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_is_there(), reason="there is no CUDA device")
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


def test_a_ratio_is_of_neighbours() -> None:
    """The second pair was measured while the machine was half as fast; that changes no ratio."""
    ratio = Ratio.of([3.0, 6.0, 3.3], [2.0, 4.0, 2.0])
    assert (ratio.median, ratio.least, ratio.most) == (1.5, 1.5, 1.65)
    assert str(ratio) == "1.50 (1.50 to 1.65)"


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    """For 100 pairs tables of order statistics give the 40th to the 61st, for 9 the 2nd to the 8th."""
    ratio = MedianRatio.of([float(value) for value in range(100, 0, -1)], [1.0] * 100)
    assert (ratio.median, ratio.low, ratio.high) == (50.5, 40.0, 61.0)
    ratio = MedianRatio.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0] * 9)
    assert (ratio.low, ratio.high) == (2.0, 8.0)
    assert MedianRatio.of([2.0, 3.0], [1.0, 1.0]) == MedianRatio(2.5, 2.0, 3.0)
    assert str(ratio) == "5.000 (2.000 to 8.000)"


def test_what_requests_of_clocks_cost_is_told_apart() -> None:
    costs = time_clock_requests("cpu", num_blocks=3, launches=2, record=lambda: FakeEvent(0.0))
    assert costs.request_us > 0
    assert costs.launch_us > 0
