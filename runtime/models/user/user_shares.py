"""Whether a user's module can run in data-parallel groups: tried once, with all samples and in shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runtime.models.core.options import ModelError
from runtime.models.user.reading import Sample
from runtime.transport.shards import share_of, sum_in_order


def check_shares(
    block: str,
    count: int,
    run: Callable[[Sequence[Tensor], Sample], tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    sample: Sample,
    whole: Sequence[Tensor],
    weight: Callable[[Sample], float] | None = None,
) -> None:
    """Ensure that a module gives the same for shares of the samples as for all of them.

    Args:
        block: Its name, for the error.
        count: Number of the groups.
        run: The module, and the loss after it.
        inputs: What it takes of the blocks before it, for all samples.
        sample: What it reads, for all samples.
        whole: What it returned for these: a scalar loss, or tensors of as many samples.
        weight: What a loss counts; None if all count the same.

    Raises:
        ModelError: It draws random numbers, mixes samples, or its loss is not the mean over them.
    """
    again = run(inputs, sample._replace(seed=(sample.seed or 0) ^ 1))
    if not all(torch.equal(one, other) for one, other in zip(whole, again, strict=True)):
        raise ModelError(
            f"module: {block} draws random numbers, and would draw others in {count} data-parallel groups; "
            "leave out its dropout, or set data_parallel to 1"
        )
    samples = [sample.share(i, count) for i in range(count)]
    shares = [run([share_of(value, i, count) for value in inputs], own) for i, own in enumerate(samples)]
    for parts, expected in zip(zip(*shares, strict=True), whole, strict=True):
        is_loss = expected.dim() == 0
        weights = [weight(own) if weight is not None and is_loss else 1.0 for own in samples]
        found = _mean(parts, weights) if is_loss else torch.cat(parts)
        if found.shape == expected.shape and _is_close(found, expected):
            continue
        if is_loss:
            raise ModelError(
                f"module: the loss of {block} is {float(expected):.6g}, but the mean of those of its {count} "
                f"data-parallel groups {float(found):.6g}; let it be the mean over the samples, none of "
                "which depends on others, or set data_parallel to 1"
            )
        raise ModelError(
            f"module: {block} returns another tensor when its samples come in {count} data-parallel groups; "
            "let no sample depend on others (GroupNorm or LayerNorm for BatchNorm), or set data_parallel to 1"
        )


def _mean(losses: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    return sum_in_order([loss * weight for loss, weight in zip(losses, weights, strict=True)]) / sum(weights)


def _is_close(found: Tensor, expected: Tensor) -> bool:
    """Tell whether two tensors are equal up to the order of sums: half of the type's digits."""
    if not expected.numel():
        return True
    scale, error = float(expected.abs().max()), float((found - expected).abs().max())
    return bool(error <= torch.finfo(expected.dtype).eps ** 0.5 * scale)
