"""Exchanges that run beside products: how much longer both take than the products alone.

The module does not know a layer, a link or a strategy.
"""

from __future__ import annotations

from typing import NamedTuple

from placements.models.costing.options import CostOptions
from placements.models.operators import Product


class PartProducts(NamedTuple):
    """Time of the products of an attention or a feed-forward part on each of its tensor-parallel GPUs.

    Attributes:
        first_ms: Those whose inputs are gathered: matrices shared by columns.
        last_ms: Those whose outputs are summed and scattered: matrices shared by rows.
    """

    first_ms: float
    last_ms: float


def parts_of(products: tuple[tuple[Product, float], ...]) -> list[PartProducts | None]:
    """Return the products of each part, which ends in a matrix that is shared by rows.

    None stands for one whose exchanges wait: experts are no single product whose parts could be sent apart.

    Args:
        products: Products in order, and the time of each.
    """
    found: list[PartProducts | None] = []
    first_ms, has_experts = 0.0, False
    for product, time_ms in products:
        has_experts = has_experts or bool(product.experts)
        if product.split == "inputs":
            if not (found and has_experts and found[-1] is None):
                found.append(None if has_experts else PartProducts(first_ms, time_ms))
            first_ms = 0.0
        elif product.split == "outputs":
            first_ms += time_ms
    return found


def pipelined_ms(options: CostOptions, product_ms: float, exchange_ms: float, num_gpus: int) -> float:
    """Return the time that a gathering or scattering adds to its own product.

    Both are done in as many pieces as GPUs. A piece of the product runs while the next one is fetched, or the
    last one is sent. The GPU's own piece is fetched from nowhere, so that n - 1 pieces of each are side by
    side (Transformer Engine's ring exchange).
    """
    beside_ms = product_ms * (num_gpus - 1) / num_gpus
    return options.overlapped(beside_ms, exchange_ms).copy_ms


def part_ms(
    options: CostOptions, part: PartProducts, exchange_ms: float, num_gpus: int
) -> tuple[float, float]:
    """Return the time that the exchanges of a part add to its forward and to its backward.

    In the backward the gradient of its outputs is gathered beside the product that reads it, and that of its
    inputs is scattered beside the gradient of the first weights. What is gathered again is not in it.

    Args:
        options: How much both slow each other down.
        part: Its products in the forward; in the backward each is computed for inputs and for weights.
        exchange_ms: Time of a gathering and a scattering, one after the other.
        num_gpus: Tensor-parallel GPUs.
    """
    half_ms = exchange_ms / 2
    last_ms = pipelined_ms(options, part.last_ms, half_ms, num_gpus)
    return (
        pipelined_ms(options, part.first_ms, half_ms, num_gpus) + last_ms,
        last_ms + options.overlapped(part.first_ms, half_ms).copy_ms,
    )
