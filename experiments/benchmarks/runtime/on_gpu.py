"""What a pipeline costs on one device: two half backwards beside the whole one, an iteration in one process.

All devices of a placement take turns on a GPU here, so nothing is faster than on one device; what is seen is
that real kernels give the right results, and what the runtime adds to them.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.benchmarks.comparison import MedianRatio
from experiments.benchmarks.results import CaseResult
from experiments.benchmarks.runtime.one_device import cuda_is_there
from experiments.benchmarks.timing import CpuClock
from placements import Placement
from placements.shapes import v_shape
from runtime.clocks.torch_gpu import record_event
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Comparison, Measurement
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.models import WHOLE, Blocks, Model, ModelOptions
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b


@dataclass(frozen=True)
class SplitCosts:
    """Times of a stage's backward of one micro-batch, in pairs.

    Attributes:
        fused_ms: In one piece.
        halves_ms: Of its input, then of its weights.
        equal: Whether all gradients have the same bits.
    """

    fused_ms: tuple[float, ...]
    halves_ms: tuple[float, ...]
    equal: bool


class _Stage:
    """One stage on one device, the middle one of three, so that it takes and hands over tensors."""

    def __init__(self, model: Mapping[str, object], where: str, split: bool) -> None:
        self.placement: Placement = v_shape(3, split_backward=split)
        options = ModelOptions.from_dict(model)
        self.model = Model(options, self.placement, {"F1": WHOLE}, where)
        self.blocks = Blocks(self.placement, self.model, 1)
        shape = self.model.output_shape("F1")
        generator = torch.Generator().manual_seed(0)
        self.inputs, self.gradient = (
            torch.randn(shape, generator=generator).to(where, self.model.dtype) for _ in range(2)
        )
        self.backward = ["I1", "W1"] if split else ["B1"]

    def backward_ms(self, timed: Callable[[Callable[[], None]], float]) -> float:
        """Run the stage forward and then, timed, backward."""
        for weight in self.model.parameters.values():
            weight.grad = None
        self.blocks.begin(0)
        self.blocks.run("F1", 0, [self.inputs])

        def run() -> None:
            self.blocks.run(self.backward[0], 0, [self.gradient])
            for block in self.backward[1:]:
                self.blocks.run(block, 0, [])

        return timed(run)


def time_split_backward(model: Mapping[str, object], where: str, rounds: int) -> SplitCosts:
    """Time the two halves of a backward beside the whole, in turn, after three rounds not counted.

    Args:
        model: Sizes of a GPT; a third of its layers is in the stage.
        where: The device, as torch names it.
        rounds: Pairs.
    """
    timed = _on_gpu_ms if torch.device(where).type == "cuda" else _on_processor_ms
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # attention's backward is not, on a GPU
    fused, split = (_Stage(model, where, halves) for halves in (False, True))
    pairs = [(fused.backward_ms(timed), split.backward_ms(timed)) for _ in range(rounds + 3)][3:]
    torch.use_deterministic_algorithms(False)
    gradients = [stage.model.gradients() for stage in (fused, split)]
    equal = all(torch.equal(value, gradients[1][shard]) for shard, value in gradients[0].items())
    return SplitCosts(tuple(ms for ms, _ in pairs), tuple(ms for _, ms in pairs), equal)


def _on_gpu_ms(run: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    begin = record_event()
    run()
    end = record_event()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def _on_processor_ms(run: Callable[[], None]) -> float:
    began_s = time.process_time()
    run()
    return (time.process_time() - began_s) * 1000


@dataclass(frozen=True)
class InProcess:
    """An iteration of a pipeline whose devices take turns on one GPU.

    Attributes:
        iteration_ms: Median, of all but the first.
        blocks_ms: What the blocks of an iteration take by themselves, of the recorded last one.
        losses: Of each iteration, the mean over the micro-batches.
        comparison: With the unpipelined model, of the first iteration.
    """

    iteration_ms: float
    blocks_ms: float
    losses: tuple[float, ...]
    comparison: Comparison


def run_in_process(
    model: Mapping[str, object], num_stages: int, num_micro_batches: int, where: str, iterations: int
) -> InProcess:
    """Run 1F1B with all its stages on one device of this machine.

    Args:
        model: Sizes of a GPT.
        num_stages: Of the pipeline.
        num_micro_batches: Of an iteration.
        where: ``cuda`` or ``cpu``.
        iterations: At least 2.
    """
    programs = check(lower(one_f_one_b(v_shape(num_stages), num_micro_batches)))
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        generate(programs, {}, model, Path(name))
        found: Measurement = launch(
            Path(name),
            num_stages,
            RunOptions(iterations, launcher="in_process", device=where, verify="first", trace=True),
        )
    assert found.comparison is not None, "the first iteration is compared"
    last = [records[-1] for records in found.records]
    blocks_ms = sum(block.end_ms - block.begin_ms for record in last for block in record.blocks)
    return InProcess(
        statistics.median(found.time_ms[1:]),
        blocks_ms,
        tuple(sum(each) / len(each) for each in found.losses),
        found.comparison,
    )


def split_of_gpt(model: Mapping[str, object], where: str, *, rounds: int, most: float) -> CaseResult:
    """Compare the two halves of a backward with the whole.

    Args:
        model: See `time_split_backward`.
        where: Likewise.
        rounds: Likewise.
        most: How many times as long the halves may take together.
    """
    if where != "cpu" and not cuda_is_there():
        return CaseResult(0.0, skipped="there is no CUDA device")
    clock = CpuClock()
    found = time_split_backward(model, where, rounds)
    ratio = MedianRatio.of(found.halves_ms, found.fused_ms)
    missed = [] if found.equal else ["gradients of the halves and of the whole differ"]
    missed += [f"{ratio.median:.3f} is more than {most}"] if ratio.median > most else []
    note = (
        f"{_name(where)}: the halves take {ratio} times as long as the whole, medians "
        f"{statistics.median(found.halves_ms):.3f} ms and {statistics.median(found.fused_ms):.3f} ms"
    )
    return CaseResult(clock.seconds, tuple(missed), note=note)


def pipeline_of_gpt(
    model: Mapping[str, object],
    where: str,
    *,
    num_stages: int,
    num_micro_batches: int,
    iterations: int,
    within: float,
) -> CaseResult:
    """Run a pipeline on one device of this machine, and compare it with the model in one piece.

    Args:
        model: See `run_in_process`.
        where: Likewise.
        num_stages: Likewise.
        num_micro_batches: Likewise.
        iterations: Likewise.
        within: The most by which losses and gradients of the first iteration may differ, relatively.
    """
    if where != "cpu" and not cuda_is_there():
        return CaseResult(0.0, skipped="there is no CUDA device")
    clock = CpuClock()
    found = run_in_process(model, num_stages, num_micro_batches, where, iterations)
    compared = found.comparison
    error = max(compared.max_loss_error, compared.max_gradient_error)
    missed = [] if error <= within else [f"{error:.1e} from the unpipelined model is more than {within:g}"]
    missed += [] if all(map(math.isfinite, found.losses)) else ["a loss is not finite"]
    note = (
        f"{_name(where)}: an iteration takes {found.iteration_ms:.1f} ms, its blocks "
        f"{found.blocks_ms:.1f} ms; losses {', '.join(f'{loss:.4f}' for loss in found.losses)}; from the "
        f"unpipelined model losses differ by {compared.max_loss_error:.1e}, gradients by "
        f"{compared.max_gradient_error:.1e}; the replay has "
        f"{'the same' if compared.bitwise_equal else 'other'} bits"
    )
    return CaseResult(clock.seconds, tuple(missed), note=note)


def _name(where: str) -> str:
    return torch.cuda.get_device_name() if torch.device(where).type == "cuda" else "this machine's processor"
