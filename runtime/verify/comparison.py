"""How far a run of scripts is from its two references: the unpipelined model, and its own replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runtime.execution.measurement import ReferenceComparison
from runtime.execution.results import read_summary, read_tensors
from runtime.models import ParameterShard
from runtime.models.blocks import Instance
from runtime.verify.reference import ReferenceCase, plain, sum_over_sinks
from runtime.verify.replay import replay

_Tensors = Mapping[ParameterShard, Tensor]


def losses_of_run(
    case: ReferenceCase, summaries: Sequence[Mapping[str, Any]], iteration: int
) -> tuple[float, ...]:
    """Return the losses of the micro-batches in one iteration of a run.

    Args:
        case: What was run.
        summaries: What each device left behind; a block on several devices has the same loss on each.
        iteration: Number of the iteration, from 0, the first that this run did.
    """
    rows = [row for summary in summaries for row in summary["losses"][iteration]]
    return sum_over_sinks(case, {(block, n): loss for block, n, loss in rows})


def compare(results: Path, case: ReferenceCase) -> ReferenceComparison:
    """Compare what the devices of a run left behind with both references.

    The references train from the beginning, also where the run went on from a checkpoint, and for as many
    iterations as the case has: of a run of more only these are compared.

    Args:
        results: The folder of the run.
        case: What was run.

    Raises:
        ReplayError: The orders wait for each other.
    """
    devices = range(case.placement.num_devices)
    summaries = [read_summary(results, device) for device in devices]
    changed = _orders(summaries)
    orders = changed[min(changed)]
    first = summaries[0]["first_iteration"]
    losses = tuple(losses_of_run(case, summaries, index) for index in range(case.iterations - first))
    held = [read_tensors(results, device, "parameters") for device in devices]
    reference_losses = []
    gradient_error = parameter_error = 0.0
    equal = True
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # As on the devices: results depend on the number of threads.
    try:
        for iteration, (whole, again) in enumerate(
            zip(plain(case, orders, changed), replay(case, orders, changed), strict=True)
        ):
            if iteration < first:
                continue
            reference_losses.append(whole.losses)
            equal = equal and again.losses == losses[iteration - first]
            for device in devices:
                found = read_tensors(results, device, f"gradients_{iteration}")
                gradient_error = max(gradient_error, _largest_error(found, whole.gradients, held[device]))
                equal = equal and _same_bits(found, again.gradients, held[device])
        for found in held:
            parameter_error = max(parameter_error, _largest_error(found, whole.parameters, found))
            equal = equal and _same_bits(found, again.parameters, found)
    finally:
        torch.set_num_threads(threads)
    loss_error = max(
        _relative(abs(ours - theirs), abs(theirs))
        for row, reference_row in zip(losses, reference_losses, strict=True)
        for ours, theirs in zip(row, reference_row, strict=True)
    )
    return ReferenceComparison(
        tuple(reference_losses), loss_error, gradient_error, parameter_error, equal, case.tolerance
    )


def _orders(summaries: Sequence[Mapping[str, Any]]) -> dict[int, list[list[Instance]]]:
    """Return what each device ran in order, from the iterations on in which it was something else."""
    by_device = [dict(summary["orders"]) for summary in summaries]
    found: dict[int, list[list[Instance]]] = {}
    now: list[list[Instance]] = [[] for _ in summaries]
    for iteration in sorted(set().union(*by_device)):
        now = [
            [(block, n) for block, n in of[iteration]] if iteration in of else before
            for of, before in zip(by_device, now, strict=True)
        ]
        found[iteration] = now
    return found


def _largest_error(found: _Tensors, whole: _Tensors, held: _Tensors) -> float:
    """Return the largest error of any tensor, relative to the largest value of its reference.

    Where one of the two has no tensor, of those that a device holds, the error is infinite.
    """
    full = {shard.name: tensor for shard, tensor in whole.items()}
    if any((shard in found) != (shard.name in full) for shard in held):
        return float("inf")
    errors = [0.0]
    for shard, tensor in found.items():
        expected = shard.of(full[shard.name]).detach().cpu()
        if not torch.equal(tensor, expected):
            difference = float((tensor.to(torch.complex128) - expected).abs().max())
            errors.append(_relative(difference, float(full[shard.name].detach().abs().max())))
    return max(errors)


def _relative(difference: float, scale: float) -> float:
    """Return a difference over a scale; a difference that is not a number counts as infinite."""
    if difference == 0:
        return 0.0
    return difference / scale if difference == difference and scale > 0 else float("inf")


def _same_bits(found: _Tensors, expected: _Tensors, held: _Tensors) -> bool:
    return found.keys() == expected.keys() & held.keys() and all(
        torch.equal(tensor, expected[shard].detach().cpu()) for shard, tensor in found.items()
    )
