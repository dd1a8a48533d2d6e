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
from pathlib import Path

import torch

from experiments.benchmarks.comparison import MedianRatio
from experiments.benchmarks.results import CaseResult, true_of
from placements import Placement
from placements.shapes import v_shape
from runtime.clocks.torch_gpu import record_event
from runtime.codegen.codegen import generate
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.models import WHOLE, Blocks, Model, ModelOptions
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b


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


def split_of_gpt(model: Mapping[str, object], where: str, *, rounds: int, most: float) -> CaseResult:
    """Time the two halves of a backward beside the whole, in turn, after three rounds not counted.

    A third of the GPT's layers is in the stage. Both halves may take ``most`` times as long as the whole.
    """
    timed = _on_gpu_ms if torch.device(where).type == "cuda" else _on_processor_ms
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # attention's backward is not, on a GPU
    fused, split = (_Stage(model, where, halves) for halves in (False, True))
    pairs = [(fused.backward_ms(timed), split.backward_ms(timed)) for _ in range(rounds + 3)][3:]
    torch.use_deterministic_algorithms(False)
    fused_ms, halves_ms = zip(*pairs, strict=True)
    gradients = [stage.model.gradients() for stage in (fused, split)]
    equal = all(torch.equal(value, gradients[1][shard]) for shard, value in gradients[0].items())
    ratio = MedianRatio.of(halves_ms, fused_ms)
    wrong = {
        "gradients of the halves and of the whole differ": not equal,
        f"{ratio.median:.3f} is more than {most}": ratio.median > most,
    }
    note = (
        f"{_name(where)}: the halves take {ratio} times as long as the whole, medians "
        f"{statistics.median(halves_ms):.3f} ms and {statistics.median(fused_ms):.3f} ms"
    )
    return CaseResult(missed=true_of(wrong), note=note)


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


def pipeline_of_gpt(
    model: Mapping[str, object],
    where: str,
    *,
    num_stages: int,
    num_micro_batches: int,
    iterations: int,
    within: float,
) -> CaseResult:
    """Run 1F1B with all its stages on one device of this machine, beside the model in one piece.

    The first iteration is compared and not timed, the last is recorded block by block. Losses and gradients
    of the first may differ by ``within``, relatively.
    """
    programs = check(lower(one_f_one_b(v_shape(num_stages), num_micro_batches)))
    with tempfile.TemporaryDirectory(prefix="schedsearch_") as name:
        generate(programs, {}, model, Path(name))
        found = launch(
            Path(name),
            num_stages,
            RunOptions(iterations, launcher="in_process", device=where, verify="first", trace=True),
        )
    compared = found.comparison
    assert compared is not None, "the first iteration is compared"
    blocks = [block for records in found.records for block in records[-1].blocks]
    blocks_ms = sum(block.end_ms - block.begin_ms for block in blocks)
    losses = [sum(each) / len(each) for each in found.losses]
    error = max(compared.max_loss_error, compared.max_gradient_error)
    wrong = {
        f"{error:.1e} from the unpipelined model is more than {within:g}": not error <= within,
        "a loss is not finite": not all(map(math.isfinite, losses)),
    }
    note = (
        f"{_name(where)}: an iteration takes {statistics.median(found.time_ms[1:]):.1f} ms, its blocks "
        f"{blocks_ms:.1f} ms; losses {', '.join(f'{loss:.4f}' for loss in losses)}; from the "
        f"unpipelined model losses differ by {compared.max_loss_error:.1e}, gradients by "
        f"{compared.max_gradient_error:.1e}; the replay has "
        f"{'the same' if compared.bitwise_equal else 'other'} bits"
    )
    return CaseResult(missed=true_of(wrong), note=note)


def _name(where: str) -> str:
    return torch.cuda.get_device_name() if torch.device(where).type == "cuda" else "this machine's processor"
