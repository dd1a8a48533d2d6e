"""The cases of the runtime benchmark: communication, what calls cost, blocks on a GPU, memory, connecting.

Times are of a machine with two processors, where four processes cannot compute at once: only sleeping blocks
show there what overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.results import BenchmarkCase
from experiments.benchmarks.runtime.clock_costs import clocks_of_stream
from experiments.benchmarks.runtime.communicators import connecting
from experiments.benchmarks.runtime.measuring import (
    asleep,
    beside_torch,
    beside_virtual,
    blocks_of_gpt,
    calls,
    computed,
)
from experiments.benchmarks.runtime.memory import checkpointed, resident, sharing
from experiments.benchmarks.runtime.on_gpu import pipeline_of_gpt, split_of_gpt
from experiments.benchmarks.runtime.one_device import no_gpu
from experiments.benchmarks.timing import load_solvers
from placements.shapes import SHAPES, m_shape, v_shape
from schedsearch.baselines import one_f_one_b

_Model = dict[str, object]

MIB = 2**20

_TOLERANCE = 0.15
"""Share by which a measured ratio may differ from that in virtual time."""

_MOST_PER_CALL_US = 15.0
"""Processor time of a script's call beside that of its block."""

_MOST_BESIDE_TORCH, _MOST_BESIDE_VIRTUAL = 1.10, 1.03
"""How many times the processor time of torch's runtime, and how many times virtual time, ours may take."""

_TINY = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}


def _gpt(hidden_size: int, sequence_length: int, num_layers: int, num_heads: int, **more: object) -> _Model:
    sizes = {"hidden_size": hidden_size, "sequence_length": sequence_length}
    return {
        "name": "gpt",
        **sizes,
        "micro_batch_size": 1,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "dtype": "float32",
        **more,
    }


_SMALL_GPT = _gpt(64, 64, 8, 4, micro_batch_size=2)

_LARGE_GPT = _gpt(1024, 64, 24, 16, learning_rate=1e-4)

_REAL_GPT = _gpt(4096, 2048, 4, 32, precision="bf16", learning_rate=1e-4)
"""Layers of the sizes of GPT-3 6.7B (Brown et al. 2020, Table 2.1)."""

_REAL_BF16 = _REAL_GPT | {"dtype": "bfloat16", "precision": None}

_GPT_ON_GPU = _gpt(2048, 2048, 8, 16, micro_batch_size=2, dtype="bfloat16")


def blocking() -> Iterator[BenchmarkCase]:
    """Yield Tessel's comparison (Fig. 17) with real transfers, its two shapes first."""
    must = f"blocking over non-blocking and early within {_TOLERANCE:.0%} of that in virtual time"
    sleep = partial(asleep, tolerance=_TOLERANCE)
    for shape in ("m_shape", "nn_shape", "v_shape", "x_shape", "k_shape"):
        placement = SHAPES[shape](num_devices=4).with_memory(6)
        name = f"{shape}, 4 devices, 12 micro-batches, a forward of 30 ms, 4 MiB"
        yield BenchmarkCase(
            name, must, partial(sleep, placement, 12, tick_ms=30.0, message_bytes=4 * MIB, rounds=5)
        )
    small = partial(sleep, m_shape(2).with_memory(4), 4, tick_ms=5.0, message_bytes=MIB // 16, rounds=3)
    name = "m_shape, 2 devices, 4 micro-batches, a forward of 5 ms, 64 KiB"
    yield BenchmarkCase(name, must, small, is_quick=True)
    yield BenchmarkCase(
        "GPT of 8 layers, M-shape, 4 devices, 8 micro-batches, computed",
        "the same losses, bit for bit",
        partial(computed, m_shape(4).with_memory(6), 8, _SMALL_GPT, rounds=7),
    )


def overhead() -> Iterator[BenchmarkCase]:
    """Yield what the generated script's machinery costs."""
    for name, model in (
        ("synthetic, hidden size 8", _TINY),
        ("GPT of 8 layers, hidden size 64", _SMALL_GPT),
    ):
        yield BenchmarkCase(
            f"calls of a script, {name}, 8 stages on one device",
            f"{_MOST_PER_CALL_US:g} us per call at most; losses and gradients of the bare loop, bit for bit",
            partial(calls, model, num_stages=8, rounds=41, max_us=_MOST_PER_CALL_US),
            is_quick=model is _TINY,
        )
    schedule = one_f_one_b(v_shape(4), 8)
    for width, rows in ((16, 4), (256, 64), (512, 128)):
        yield BenchmarkCase(
            f"1F1B, 4 stages of 2 layers of {width} x {width}, 8 micro-batches of {rows}, beside torch's",
            f"{_MOST_BESIDE_TORCH:g} times the processor time at most, at the median; the same gradients",
            partial(beside_torch, schedule, width=width, rows=rows, rounds=100, most=_MOST_BESIDE_TORCH),
        )
    sleep = partial(beside_virtual, schedule, tick_ms=10.0, message_bytes=MIB // 4, rounds=20)
    yield BenchmarkCase(
        "1F1B, 4 stages, 8 micro-batches, blocks that sleep: a forward of 10 ms, 256 KiB",
        f"{_MOST_BESIDE_VIRTUAL:g} times virtual time at most, with blocks as they slept, at the median",
        partial(sleep, most=_MOST_BESIDE_VIRTUAL),
    )


def split() -> Iterator[BenchmarkCase]:
    """Yield what the two halves of a backward cost beside the whole, on one thread of the processor."""
    for hidden_size, num_tokens, most in ((768, 512, 1.05), (256, 128, 1.15)):
        model = _gpt(hidden_size, num_tokens, 6, 4)
        yield BenchmarkCase(
            f"split backward, 2 layers, hidden size {hidden_size}, {num_tokens} tokens, float32, one thread",
            f"the same bits, in {most} times as long at most",
            partial(split_of_gpt, model, "cpu", rounds=30, most=most),
            is_quick=hidden_size < 768,
        )


def gpu() -> Iterator[BenchmarkCase]:
    """Yield what the blocks of a GPT cost at the default clock."""
    must = "time, and energy where it is measured, of every block"
    yield BenchmarkCase(
        "GPT of 8 layers, hidden size 2048, bfloat16, 4 stages on one GPU",
        must,
        partial(blocks_of_gpt, _GPT_ON_GPU, num_stages=4, where="cuda:0", min_ms=40.0),
        is_quick=True,
        lacks=no_gpu,
    )
    yield BenchmarkCase(
        "GPT of 8 layers, hidden size 64, float32, 4 stages on this machine's processor",
        must,
        partial(blocks_of_gpt, _SMALL_GPT, num_stages=4, where="cpu", min_ms=100.0),
    )
    yield BenchmarkCase(
        "clocks of 200 blocks of 50 small kernels",
        "the time of a request, and what is added to a kernel's launch",
        partial(clocks_of_stream, "cuda:0", num_blocks=200, launches=50),
        lacks=no_gpu,
    )
    yield BenchmarkCase(
        "blocks of GPT-3 6.7B: 4 layers, hidden size 4096, 2048 tokens, bfloat16, 4 stages on one GPU",
        must,
        partial(blocks_of_gpt, _REAL_BF16, num_stages=4, where="cuda:0", min_ms=500.0),
        lacks=no_gpu,
    )
    for hidden_size, most in ((2048, 1.10), (4096, 1.05)):
        sizes = {"hidden_size": hidden_size, "num_heads": hidden_size // 128, "num_layers": 6}
        yield BenchmarkCase(
            f"split backward of 2 layers, hidden size {hidden_size}, 2048 tokens, bfloat16",
            f"the same bits, in {most} times as long at most",
            partial(split_of_gpt, _REAL_BF16 | sizes, "cuda:0", rounds=30, most=most),
            lacks=no_gpu,
        )
    pipeline = partial(pipeline_of_gpt, num_stages=4, num_micro_batches=8)
    yield BenchmarkCase(
        "1F1B of 4 layers of GPT-3 6.7B on 4 stages, 8 micro-batches, bf16 beside float32, in one process",
        "the unpipelined model's losses and gradients within bf16's last digit; finite losses",
        partial(pipeline, _REAL_GPT, "cuda", iterations=4, within=2.0**-7),
        lacks=no_gpu,
    )
    yield BenchmarkCase(
        "1F1B of 8 small layers on 4 stages, 8 micro-batches, float32, in one process, on the processor",
        "the unpipelined model's losses and gradients; finite losses",
        partial(pipeline, _SMALL_GPT, "cpu", iterations=3, within=0.0),
        is_quick=True,
    )


def memory() -> Iterator[BenchmarkCase]:
    """Yield what the processes of a run hold, beside what they must."""
    for optimizer in ("sgd", "adamw"):
        yield BenchmarkCase(
            f"GPT of 303 million parameters, float32, {optimizer}, 4 stages, 4 micro-batches of 64 tokens",
            "weights, gradients, optimizer and activations within 15% in every process",
            partial(resident, v_shape(4), 4, _LARGE_GPT | {"optimizer": optimizer}, tolerance=0.15),
        )
    for zero, runs, what in (
        (0, 1, "plain data parallel"),
        (1, 1, "ZeRO-1"),
        (3, 1, "ZeRO-3, gathered for each run"),
        (3, 0, "ZeRO-3, gathered once an iteration"),
    ):
        model = _LARGE_GPT | {"num_layers": 6, "micro_batch_size": 4, "optimizer": "adamw", "zero": zero}
        yield BenchmarkCase(
            f"GPT of 76 million parameters, float32, adamw, 4 groups of one GPU, 4 micro-batches, {what}",
            "at most 35% above the plan's states, activations, and what is gathered or summed",
            partial(sharing, 4, model, tolerance=0.35, gathered_runs=runs),
        )
    yield BenchmarkCase(
        "asynchronous checkpoint of a GPT of 4 layers, hidden size 1024, float32, adamw, 2 stages",
        "1.2 times the shard in extra host memory at most",
        partial(checkpointed, v_shape(2), _LARGE_GPT | {"num_layers": 4, "optimizer": "adamw"}, most=1.2),
        is_quick=True,
    )


def communicators() -> Iterator[BenchmarkCase]:
    """Yield how long processes take to reach each other, of a placement with a team and many channels."""
    for num_devices, max_s in ((16, 10.0), (64, 5.0)):
        name = f"m_shape, {num_devices} forked processes, gloo"
        measure = partial(connecting, m_shape(num_devices), max_s=max_s)
        yield BenchmarkCase(
            name, f"all communicators within {max_s:g} s", measure, is_quick=num_devices == 16
        )


BENCHMARK = Benchmark(
    "runtime",
    "Measure the runtime.",
    {
        "blocking": blocking,
        "overhead": overhead,
        "split": split,
        "gpu": gpu,
        "memory": memory,
        "communicators": communicators,
    },
    load_solvers,
)
