"""How far a run of scripts is from its two references, the unpipelined model and its own replay.

How much is compared, if nobody says, depends on the model's size: it is a check, and not the way to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.execution.measurement import ReferenceComparison
from runtime.execution.results import read_result
from runtime.models import ModelOptions, ParameterShard, body_of
from runtime.verify.reference import ReferenceCase, plain
from runtime.verify.replay import replay
from schedsearch.schedule import Instance

_Tensors = Mapping[ParameterShard, Tensor]

VERIFIED_MIB = 64
"""Size of the parameters of a model up to which the first iteration of a run is compared, in MiB."""


class Extent(NamedTuple):
    """Iterations to compare, one of `runtime.options.run.VERIFY`, and the reason in words."""

    verify: str
    reason: str


def extent_of(asked: str | None, model: ModelOptions, placement: Placement, resumes: bool) -> Extent:
    """Return which iterations of a run are compared.

    The unpipelined model trains in one process from the beginning. So a run that goes on from a checkpoint
    has no first iteration to compare.

    Args:
        asked: One of `runtime.options.run.VERIFY`; None for the first iteration of a model of at most
            `VERIFIED_MIB`, else none.
        model: Options of the model of the run.
        placement: Placement of the run.
        resumes: Whether the run goes on from a checkpoint.

    Raises:
        ModelError: The model does not fit the placement.
    """
    if asked in ("none", "all"):
        return Extent(str(asked), "as asked for")
    if resumes:
        return Extent("none", "the run continues from a checkpoint, after its first iteration")
    if asked is not None:
        return Extent(asked, "as asked for")
    size = parameter_mib(model, placement)
    if size > VERIFIED_MIB:
        return Extent("none", f"its parameters take {size:.0f} MiB, more than {VERIFIED_MIB} MiB")
    return Extent("first", f"its parameters take {size:.3g} MiB, at most {VERIFIED_MIB} MiB")


def parameter_mib(model: ModelOptions, placement: Placement) -> float:
    """Return the size of a model's parameters in MiB, each counted once."""
    body = body_of(model, placement)
    forward = (block.name for block in placement.blocks if block.kind is Kind.F)
    sizes = {parameter.name: parameter.numel for name in forward for parameter in body.parameters(name)}
    dtype: torch.dtype = getattr(torch, model.dtype)
    return sum(sizes.values()) * dtype.itemsize / 2**20


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
    return case.sum_over_sinks({(block, n): loss for block, n, loss in rows})


def compare(
    results: Path, summaries: Sequence[Mapping[str, Any]], case: ReferenceCase
) -> ReferenceComparison:
    """Compare the results of a run with both references.

    The references train from the beginning, also where the run went on from a checkpoint, and for as many
    iterations as the case has: of a run of more only these are compared.

    Args:
        results: The folder of the run.
        summaries: The devices' summaries of it.
        case: What was run.

    Raises:
        ReplayError: The orders wait for each other.
    """
    devices, orders = range(case.placement.num_devices), _orders(summaries)
    first = summaries[0]["first_iteration"]
    losses = [losses_of_run(case, summaries, index) for index in range(case.iterations - first)]
    held = [read_result(results, device, "parameters") for device in devices]
    expected_losses = []
    gradient_error = parameter_error = 0.0
    equal = True
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # As on the devices: results depend on the number of threads.
    try:
        steps = zip(plain(case, orders), replay(case, orders), strict=True)
        for iteration, (whole, again) in enumerate(steps):
            if iteration < first:
                continue
            expected_losses.append(whole.losses)
            equal = equal and again.losses == losses[iteration - first]
            for device in devices:
                tensors = read_result(results, device, f"gradients_{iteration}")
                gradient_error = max(gradient_error, _largest_error(tensors, whole.gradients, held[device]))
                equal = equal and _same_bits(tensors, again.gradients, held[device])
        for tensors in held:
            parameter_error = max(parameter_error, _largest_error(tensors, whole.parameters, tensors))
            equal = equal and _same_bits(tensors, again.parameters, tensors)
    finally:
        torch.set_num_threads(threads)
    loss_error = max(
        _relative(abs(ours - theirs), abs(theirs))
        for row, expected in zip(losses, expected_losses, strict=True)
        for ours, theirs in zip(row, expected, strict=True)
    )
    return ReferenceComparison(
        tuple(expected_losses), loss_error, gradient_error, parameter_error, equal, case.tolerance
    )


def _orders(summaries: Sequence[Mapping[str, Any]]) -> dict[int, list[list[Instance]]]:
    """Return the order of each device, from the iterations on in which it was another."""
    by_device = [dict(summary["orders"]) for summary in summaries]
    orders: dict[int, list[list[Instance]]] = {}
    now: list[list[Instance]] = [[] for _ in summaries]
    for iteration in sorted(set().union(*by_device)):
        now = [of.get(iteration, before) for of, before in zip(by_device, now, strict=True)]
        orders[iteration] = now
    return orders


def _largest_error(tensors: _Tensors, whole: _Tensors, held: _Tensors) -> float:
    """Return the largest error of any tensor, relative to the largest value of its reference.

    Where one of the two has no tensor, of those that a device holds, the error is infinite.
    """
    full = {shard.name: tensor for shard, tensor in whole.items()}
    if any((shard in tensors) != (shard.name in full) for shard in held):
        return float("inf")
    errors = [0.0]
    for shard, tensor in tensors.items():
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


def _same_bits(tensors: _Tensors, expected: _Tensors, held: _Tensors) -> bool:
    return tensors.keys() == expected.keys() & held.keys() and all(
        torch.equal(tensor, expected[shard].detach().cpu()) for shard, tensor in tensors.items()
    )
