"""The models that come with the project, by name: how each is cut into the blocks of a placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from placements import Block, Kind, Placement
from runtime.models.core.layer_counts import most_shards
from runtime.models.core.layers import Layer
from runtime.models.core.options import GIVEN_MODEL, USER_MODEL, ModelError, ModelOptions
from runtime.models.zoo import flava, gpt, mt5, synthetic


def hidden_shape(placement: Placement, options: ModelOptions, block: str) -> tuple[int, ...]:
    """Return ``(micro_batch_size, sequence_length, hidden_size)``."""
    return (options.micro_batch_size, options.sequence_length, options.hidden_size)


def weighted_sum(inputs: Sequence[Tensor]) -> Tensor:
    """Return the first plus half the second plus a third of the third: a sum would not notice a mix-up."""
    hidden = inputs[0]
    for position, other in enumerate(inputs[1:], start=2):
        hidden = hidden + other / position
    return hidden


class Architecture(NamedTuple):
    """How a model is cut into the blocks of a placement.

    Attributes:
        layers: Returns the layers of each forward block, or raises a `ModelError`.
        check: Raises a `ModelError` unless the placement is such that the model can be cut into its blocks.
        join: Makes one tensor of a block's inputs.
        output_shape: Of a forward block that computes no loss.
        replicates: Whether separate graphs of forward blocks read micro-batches of their own.
    """

    layers: Callable[[Placement, ModelOptions], Mapping[str, Sequence[Layer]]]
    check: Callable[[Placement], object]
    join: Callable[[Sequence[Tensor]], Tensor] = weighted_sum
    output_shape: Callable[[Placement, ModelOptions, str], tuple[int, ...]] = hidden_shape
    replicates: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt": Architecture(gpt.layers, gpt.chains_of_stages, replicates=True),
    "mt5": Architecture(mt5.layers, mt5.encoder_and_decoder, output_shape=mt5.output_shape),
    "flava": Architecture(flava.layers, flava.parts, flava.join, flava.output_shape),
    "synthetic": Architecture(synthetic.layers, lambda placement: None),
}
"""The models that come with the project; the last one runs any placement."""

MODEL_NAMES = (*ARCHITECTURES, USER_MODEL, GIVEN_MODEL)
"""All values of `ModelOptions.name`."""


def layers(placement: Placement, options: ModelOptions) -> Mapping[str, Sequence[Layer]]:
    """Return the layers of each forward block.

    Raises:
        ModelError: There is no such model, or it does not fit the placement or its own options.
    """
    if options.name not in ARCHITECTURES:
        raise ModelError(f"{options.name!r} is not a model; use {' or '.join(MODEL_NAMES)}", "name")
    for block in placement.blocks:
        if block.kind is Kind.F:
            _check_cuts(block, options)
    check_recompute(options, placement)
    return ARCHITECTURES[options.name].layers(placement, options)


def fits(placement: Placement, name: str) -> bool:
    """Tell whether a model can run a placement, given enough layers and heads."""
    try:
        ARCHITECTURES[name].check(placement)
    except (KeyError, ModelError):
        return False
    return True


def suitable_model(placement: Placement, num_heads: int | None = None) -> str:
    """Return the first model that fits: of ``gpt``, ``mt5``, ``flava`` and, for any graph, ``synthetic``.

    Args:
        placement: What is to run.
        num_heads: Attention heads there are, or None for enough; ``flava`` cuts them over the devices of a
            group.

    >>> from placements.shapes import k_shape, m_shape, nn_shape
    >>> suitable_model(m_shape()), suitable_model(nn_shape()), suitable_model(k_shape())
    ('gpt', 'mt5', 'flava')
    """
    found = next(name for name in ARCHITECTURES if fits(placement, name))
    if found == "flava" and num_heads is not None:
        most = most_shards(block for part in flava.parts(placement) for block in part)
        return found if num_heads >= most else "synthetic"
    return found


def _check_cuts(block: Block, options: ModelOptions) -> None:
    if (count := len(block.groups[0])) > options.vocab_size:
        raise ModelError(f"{options.vocab_size} rows cannot be cut over {count} devices", "vocab_size")
    if options.micro_batch_size % block.data_parallel:
        raise ModelError(
            f"{options.micro_batch_size} samples have no equal shares for the "
            f"{block.data_parallel} data-parallel groups of {block.name}; use a multiple of "
            f"{block.data_parallel}",
            "micro_batch_size",
        )


def check_recompute(options: ModelOptions, placement: Placement) -> None:
    """Ensure that the blocks to be recomputed are forward blocks.

    Raises:
        ModelError: One is not.
    """
    forward = {block.name for block in placement.blocks if block.kind is Kind.F}
    for name in () if options.recompute == "all" else options.recompute:
        if name not in forward:
            raise ModelError(
                f"{placement.name} has no forward block {name!r}; use 'all' or of "
                f"{', '.join(sorted(forward))}",
                "recompute",
            )
