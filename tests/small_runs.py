"""Small runs for tests: a model, changed programs, and comparisons with the reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from placements import Block, Kind, Placement
from placements.modes import Choice, Decision
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement, ReferenceComparison
from runtime.execution.results import Progress
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import launch
from runtime.models import WHOLE, Blocks, Model, ModelOptions
from runtime.program.instructions import Instruction, Programs
from runtime.program.tensor_flow import pair_backward
from runtime.program.tensor_spec import TensorSpec
from runtime.training.copies import CopySums
from runtime.transport.in_memory import Network
from runtime.verify.reference import ReferenceCase, plain
from runtime.verify.replay import replay
from schedsearch.baselines import gpipe
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import validate

SMALL_GPT = {
    "name": "gpt",
    "hidden_size": 8,
    "sequence_length": 6,
    "micro_batch_size": 2,
    "num_layers": 2,
    "num_heads": 2,
}

SYNTHETIC = {"name": "synthetic", "hidden_size": 4, "sequence_length": 4, "micro_batch_size": 1}


def blocks_of(
    placement: Placement, model_data: Mapping[str, Any] = SYNTHETIC, num_micro_batches: int = 2
) -> tuple[Blocks, Model]:
    """Return the blocks of a placement of whole blocks, by default synthetic, all in this process."""
    options = ModelOptions.from_dict(model_data)
    forward = [block.name for block in placement.blocks if block.kind is Kind.F]
    model = Model(options, placement, dict.fromkeys(forward, WHOLE))
    blocks = Blocks(placement, model, num_micro_batches)
    blocks.begin(0)
    return blocks, model


def with_modes(placement: Placement) -> Placement:
    """Return a placement with a decision on each forward block that is trained, in topological order.

    What such a block keeps takes three times its memory, and its inputs alone as much as before. The third
    choice puts the rest on the host.
    """
    pairs, by_name = pair_backward(placement), placement.by_name
    blocks, decisions = dict(by_name), []
    for forward in placement.topological_order:
        stage = [forward, *(by_name[name] for name, of in pairs.items() if of == forward.name)]
        if len(stage) == 1:
            continue
        again = [stage[0], replace(stage[1], time=stage[1].time + stage[0].time), *stage[2:]]
        host = 2 * int(stage[0].memory)  # type: ignore[call-overload]
        away = [replace(block, time=block.time + 1) for block in stage]
        away[0] = replace(away[0], host_memory=host)
        away[-1] = replace(away[-1], host_memory=-host)
        choices = Choice("keep"), Choice("recompute", tuple(again)), Choice("offload", tuple(away))
        decisions.append(Decision(choices))
        blocks |= {block.name: replace(block, memory=3 * int(block.memory)) for block in stage}  # type: ignore[call-overload]
    return replace(placement, blocks=tuple(blocks.values()), decisions=tuple(decisions))


def in_modes(schedule: Schedule, mode_of: Callable[[int, int], int]) -> Schedule:
    """Return a schedule in the same order, of a placement with modes, with some of them chosen.

    Args:
        schedule: Of a placement without modes.
        mode_of: Returns for a decision and a micro-batch the number of the choice.
    """
    placement = with_modes(schedule.placement)
    numbers = range(len(placement.decisions))
    chosen = [tuple(mode_of(i, n) for i in numbers) for n in range(schedule.num_micro_batches)]
    orders = schedule.lane_orders
    return validate(as_soon_as_possible(placement, schedule.num_micro_batches, orders, chosen))


def chain_of(
    *stages: tuple[tuple[int, ...], int], nodes: tuple[int, ...] | None = None, split_backward: bool = False
) -> Placement:
    """Return a chain of stages, each with devices and a data-parallel size, and their backward."""
    kind = Kind.I if split_backward else Kind.B
    line = [Block(f"F{i}", Kind.F, on, 1, data_parallel=groups) for i, (on, groups) in enumerate(stages)]
    line += [replace(block, name=block.name.replace("F", kind), kind=kind) for block in reversed(line)]
    linked = [replace(block, after=(line[i - 1].name,) if i else ()) for i, block in enumerate(line)]
    if split_backward:
        linked += [
            replace(block, name=block.name.replace("I", "W"), kind=Kind.W, after=(block.name,))
            for block in line[len(stages) :]
        ]
    return Placement("chain", 1 + max(d for on, _ in stages for d in on), tuple(linked), nodes=nodes)


def on_gpus(placement: Placement, num_gpus: int, groups: int = 1) -> Placement:
    """Return the placement with each device standing for several GPUs, by GPU, all blocks in groups."""
    whole = replace(placement, num_gpus=(num_gpus,) * placement.num_devices)
    blocks = (replace(block, data_parallel=groups) for block in whole.blocks)
    return replace(whole, blocks=tuple(blocks)).by_gpu


HIDDEN = TensorSpec("float64", (1, 4, 4))
"""Tensor of most messages in these tests."""


def with_hidden_forms(programs: Programs) -> Programs:
    """Return programs all of whose messages carry the same."""
    return programs.with_specs(lambda producer, consumer: HIDDEN)


def comparison_of(measurement: Measurement) -> ReferenceComparison:
    assert measurement.comparison is not None
    return measurement.comparison


def errors(comparison: ReferenceComparison) -> tuple[float, float, float]:
    """Return the largest errors of losses, gradients and parameters; 0 means equal in every bit."""
    return comparison.max_loss_error, comparison.max_gradient_error, comparison.max_parameter_error


def require_exact(comparison: ReferenceComparison) -> None:
    """Require equality in every bit with the replay and with the unpipelined model."""
    assert comparison.bitwise_equal
    assert errors(comparison) == (0, 0, 0)


def require_equal(comparison: ReferenceComparison) -> None:
    """Require the bits of the replay, and the model in one piece but for the order of sums."""
    assert comparison.bitwise_equal
    assert comparison.is_equal, comparison


def launched(
    directory: str | Path,
    num_devices: int,
    iterations: int = 1,
    timeout_s: float = 300.0,
    progress: Callable[[Progress], None] | None = None,
    verify: str | None = "all",
    **options: Any,
) -> Measurement:
    """Run scripts with some `RunOptions`; all iterations are compared with the unpipelined model."""
    run = RunOptions.of({"iterations": iterations, "timeout_s": timeout_s, "verify": verify} | options)
    return launch(directory, num_devices, run, progress)


def summed_copies(model: Model, network: Network, device: int) -> None:
    """Give the copies that a device of a network holds the sums of their gradients."""
    CopySums(model, network.copies(model.teams_of_replicas(), device), exact=True).finish()


def edited(programs: Programs, device: int, edit: Callable[[list[Instruction]], None]) -> Programs:
    """Return programs in which one device does something else."""
    instructions = [list(program) for program in programs.instructions]
    edit(instructions[device])
    return replace(programs, instructions=tuple(map(tuple, instructions)))


def change(script: Path, old: str, new: str) -> int:
    """Replace text that a script has once; return its line."""
    text = script.read_text()
    assert text.count(old) == 1, text
    script.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def check_cut(case: ReferenceCase) -> None:
    """Hold a model that is cut over the devices to the model in one piece, iteration by iteration."""
    schedule = gpipe(case.placement, case.num_micro_batches)
    orders = [schedule.order(device) for device in range(case.placement.num_devices)]
    for whole, cut in zip(plain(case), replay(case, {0: orders}), strict=True):
        torch.testing.assert_close(cut.losses, whole.losses, rtol=1e-13, atol=0)
        full = {shard.name: (whole.gradients[shard], whole.parameters[shard]) for shard in whole.gradients}
        assert {shard.name for shard in cut.gradients} == full.keys()
        for shard in cut.gradients:
            gradient, parameter = full[shard.name]
            scale = float(gradient.abs().max())
            assert scale > 0, f"{shard.name} is not trained"
            assert float((cut.gradients[shard] - shard.of(gradient)).abs().max()) <= 1e-12 * scale
            torch.testing.assert_close(cut.parameters[shard], shard.of(parameter), rtol=0, atol=1e-12)


TIED = """
import torch
from torch import nn

class First(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table
    def forward(self, tokens):
        return self.table[tokens]

class Last(First):
    def forward(self, hidden, targets):
        return nn.functional.cross_entropy(hidden @ self.table.T, targets)

def blocks():
    table = nn.Parameter(torch.randn(5, 4))
    return {"F0": First(table), "F1": nn.Linear(4, 4), "F2": Last(table)}

def data(iteration, micro_batch):
    tokens = torch.randint(5, (8,))
    return tokens, tokens.roll(1)
"""
"""A user's model whose embedding and output share their table; the last block computes its own loss."""

NETWORK = """
import torch
from torch import nn
from runtime.models import cut

AT = ["layers.1", "norm"]

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.scale = nn.Parameter(torch.randn(6) / 3)
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)))
        self.register_buffer("passing", torch.ones(6), persistent=False)
        nn.init.trunc_normal_(self.layers[1].weight, std=0.2)
        with torch.no_grad():
            self.layers[2].weight.mul_(2).add_(torch.eye(6))
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embed.weight
    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden * self.scale @ self.mask + self.passing))

def blocks():
    return {f"F{i}": block for i, block in enumerate(cut(Network(), at=AT))}

def data(iteration, micro_batch):
    tokens = torch.randint(7, (5,))
    return tokens, tokens.roll(1)

loss = nn.functional.cross_entropy
"""
"""A user's model in one piece, with buffers and a tied table, cut before the modules of AT."""


def trained(
    programs: Programs,
    /,
    model: ModelOptions | Mapping[str, Any],
    directory: Path | None = None,
    iterations: int = 2,
    launcher: str = "in_process",
    **options: Any,
) -> Measurement:
    """Write the scripts of programs, to a folder for a while if none is given, and run them as `launched`."""
    data = model.to_dict() if isinstance(model, ModelOptions) else model
    with tempfile.TemporaryDirectory() as gone:
        folder = directory or Path(gone)
        generate(programs, {}, data, folder)
        return launched(folder, programs.placement.num_devices, iterations, launcher=launcher, **options)


def compared(
    programs: Programs, options: ModelOptions | Mapping[str, Any], launcher: str = "in_process"
) -> ReferenceComparison:
    """Return how far three iterations of some programs are from the unpipelined model."""
    return comparison_of(trained(programs, options, None, 3, launcher))
