"""Slices of a sequence as the units of a pipeline: each block of a placement becomes one for each slice.

With causal attention a slice needs of its sequence only the slices before it. So on a stage the forward of a
slice comes after that of the slice before, whose keys and values it reads, and after its own on the stage
before. Backwards come in the reverse order: the last slice is the first to know all of its gradients, and
adds to those of the keys and values of all before. Seq1F1B is an order of such blocks.

A sequence of length 1 that takes ``(1 - a) + a`` on a stage, with ``a`` the share of attention, takes
``C(x) = (1 - a) x + a x^2`` up to x: what a slice takes grows with what is before it. The module knows no
orders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from placements.block import Block, Kind, PlacementError
from placements.pieces import backwards_of
from placements.spec import Placement
from placements.stages.stage_chain import PlacedStages, StageChain, StagesError, exact, place

EVEN, EQUAL_TIME = "even", "equal_time"
PARTITIONS = (EVEN, EQUAL_TIME)
"""How a sequence is cut: into slices of equal length, or into slices that take equally long."""

_FINEST = 1000
"""Parts of the shortest or smallest even slice to which others are rounded where nothing divides them all."""

Shares = float | Mapping[str, float]
"""One share for all blocks, or by the names of blocks; 0 where one is left out."""


def sliced(
    placement: Placement,
    num_slices: int,
    *,
    attention_share: Shares = 0.0,
    kv_share: float = 0.0,
    partition: str = EVEN,
) -> Placement:
    """Return a placement with each micro-batch's sequence cut into slices.

    Slice i of the block ``F0`` is ``F0s0``, ``F0s1`` and so on. Activations are held from a slice's forward
    until its backward, and the keys and values among them so long too. From the first backward of a stage on,
    which is that of the last slice, it holds gradients of the keys and values of all slices before.

    Args:
        placement: Stages of whole sequences, each a forward and its backward or the two halves of that.
        num_slices: Slices of a sequence.
        attention_share: Share of a block's time that scores and their products take, which grow with the
            square of the length; the rest grows with the length. One number for the forward and the whole
            backward of all stages, of which the gradients of weights have none; or by the names of blocks.
        kv_share: Share of the memory from a forward to its backward that is keys and values.
        partition: One of `PARTITIONS`.

    Raises:
        PlacementError: A number is out of its range, or the placement has modes or is cut already.

    >>> from placements.shapes import v_shape
    >>> cut = sliced(v_shape(2, 2, 4), 2, attention_share=0.5)
    >>> [(block.name, block.time, block.after) for block in cut.on(1)]
    [('F1s0', 3, ('F0s0',)), ('F1s1', 5, ('F0s1', 'F1s0')), ('B1s1', 10, ('F1s1',)), \
('B1s0', 6, ('F1s0', 'B1s1'))]
    """
    _check(placement, num_slices, kv_share)
    ends = (Fraction(0), *slice_ends(placement, num_slices, attention_share, partition))
    by_name, numbers = placement.by_name, range(num_slices)
    until = {
        name: [by_name[name].time * ((1 - share) * x + share * x**2) for x in ends]
        for name, share in _attention(placement, attention_share).items()
    }
    shortest = Fraction(min(block.time for block in placement.blocks), num_slices)
    finer = _finer((ticks for row in until.values() for ticks in row), shortest)
    held = [abs(units) for block in placement.blocks for units in (*_memory(block), block.transient)]
    least = Fraction(min((units for units in held if units), default=1), num_slices)
    parts = _finer((units * x * y for units in held for x in ends for y in (1, exact(kv_share))), least)
    kept = _keys_and_values(placement, kv_share)

    def part(units: int | Fraction, i: int) -> int:
        """Return a slice's part of some units, such that those of all slices add up."""
        begin, end = (round(units * parts * x) for x in ends[i : i + 2])
        return end - begin

    def memory(block: Block, i: int) -> tuple[int, ...]:
        """Return what a slice of a block holds, with gradients of keys and values."""
        own = [part(units, i) for units in _memory(block)]
        for j, units in enumerate(kept.get(block.name, ())):
            if block.kind in (Kind.B, Kind.I) and i == num_slices - 1:
                own[j] += sum(part(units, k) for k in range(i))
            if block.kind in (Kind.B, Kind.W) and i < num_slices - 1:
                own[j] -= part(units, i)
        return tuple(own)

    def cut(block: Block, i: int) -> Block:
        begin, end = (round(finer * ticks) for ticks in until[block.name][i : i + 2])
        before = i - 1 if block.kind is Kind.F else i + 1
        chained = block.kind is not Kind.W and before in numbers
        return replace(
            block,
            name=f"{block.name}s{i}",
            time=max(1, end - begin),
            memory=memory(block, i),
            after=(*(f"{name}s{i}" for name in block.after), *[f"{block.name}s{before}"] * chained),
            transient=math.ceil(block.transient * parts * (ends[i + 1] - ends[i])),
            host_memory=part(block.host_memory, i),
            sequence_slice=i,
        )

    blocks: list[Block] = []
    for block in placement.topological_order:
        if block.kind is not Kind.O:
            blocks += [cut(block, i) for i in (numbers if block.kind is Kind.F else reversed(numbers))]
            continue
        after = (
            [name] if by_name[name].kind is Kind.O else [f"{name}s{i}" for i in numbers]
            for name in block.after
        )
        names, units = tuple(itertools.chain.from_iterable(after)), block.transient * parts
        blocks.append(replace(block, time=block.time * finer, after=names, transient=units))
    unit = placement.memory_unit_mib
    return replace(
        placement,
        name=f"{placement.name} in {num_slices} slices",
        blocks=tuple(blocks),
        tick_ms=placement.tick_ms / finer,
        transfer=tuple(
            (f"{source}s{i}", f"{target}s{i}", math.ceil(ticks * finer * (ends[i + 1] - ends[i])))
            for source, target, ticks in placement.transfer
            for i in numbers
        ),
        memory=None if placement.memory is None else tuple(each * parts for each in placement.memory),
        static_memory=tuple(each * parts for each in placement.static_memory),
        memory_unit_mib=None if unit is None else unit / parts,
    )


def place_in_slices(
    chain: StageChain, shape: str, split_backward: bool = False, num_chunks: int = 2
) -> PlacedStages:
    """Return stages on their devices with each sequence cut as they say; see `placements.stages.place`.

    Raises:
        StagesError: They do not say it, or do not fit the shape.
    """
    given = chain.sequence_slices
    if given is None:
        raise StagesError("sequence_slices: has no value; give the number of slices")
    whole = place(chain, shape, split_backward, num_chunks)
    shares = {"attention_share": given.attention_share, "kv_share": given.kv_share}
    try:
        cut = sliced(whole.placement, given.num_slices, partition=given.partition, **shares)
    except PlacementError as error:
        raise StagesError(f"sequence_slices.{error}") from None
    return replace(whole, placement=cut)


def slice_ends(
    placement: Placement,
    num_slices: int,
    attention_share: Shares = 0.0,
    partition: str = EVEN,
) -> tuple[Fraction, ...]:
    """Return where each slice ends, as a part of the sequence.

    Slices of equal time end where ``C(x) = i / n`` of the whole: those of all stages, forward and backward,
    together (TeraPipe and Seq1F1B balance so). They are rounded to a millionth of the sequence.

    Raises:
        PlacementError: The partition is not known.

    >>> from placements.shapes import v_shape
    >>> [float(x) for x in slice_ends(v_shape(2), 2, 1.0, "equal_time")]
    [0.707107, 1.0]
    """
    if partition == EVEN:
        return tuple(Fraction(i + 1, num_slices) for i in range(num_slices))
    if partition == EQUAL_TIME:
        shares, by_name = _attention(placement, attention_share), placement.by_name
        total = sum(by_name[name].time for name in shares)
        share = float(sum(each * by_name[name].time for name, each in shares.items()) / total)
        parts = (i / num_slices for i in range(1, num_slices + 1))
        return tuple(Fraction(round(_inverse(share, each) * 10**6), 10**6) for each in parts)
    raise PlacementError(f"partition: {partition!r} is not known; use {' or '.join(PARTITIONS)}")


def _inverse(share: float, part: float) -> float:
    """Return x with ``(1 - share) x + share x^2 = part``."""
    if share == 0:
        return part
    linear = 1 - share
    return (math.sqrt(linear**2 + 4 * share * part) - linear) / (2 * share)


def _check(placement: Placement, num_slices: int, kv_share: float) -> None:
    if isinstance(num_slices, bool) or not isinstance(num_slices, int) or num_slices < 1:
        raise PlacementError(f"num_slices: {num_slices!r} is not a whole number of at least 1; give one")
    if not 0 <= kv_share <= 1:
        raise PlacementError(f"kv_share: {kv_share!r} is not at least 0 and at most 1")
    if placement.num_slices > 1:
        raise PlacementError(f"num_slices: {placement.name} is cut already; give the whole placement")
    updates = {each.name for each in placement.optimizer_blocks}
    if (
        not placement.is_plain
        or placement.slowdown
        or any(target in updates for _, target, _ in placement.transfer)
    ):
        raise PlacementError(
            f"num_slices: {placement.name} has modes, streams or transfers to optimizer blocks, with which "
            "sequences are not cut; leave these out, or give 1"
        )


def _attention(placement: Placement, attention_share: Shares) -> dict[str, Fraction]:
    """Return the share of attention of each block that repeats."""
    blocks, found = placement.per_micro_batch.blocks, dict[str, Fraction]()
    for block in blocks:
        given = (
            attention_share.get(block.name, 0) if isinstance(attention_share, Mapping) else attention_share
        )
        found[block.name] = exact(given)
    if not isinstance(attention_share, Mapping):
        for block in (each for each in blocks if each.kind is Kind.W):
            found[block.name] = Fraction(0)
            for half in (placement.by_name[name] for name in block.after):
                if half.kind is Kind.I:
                    both = found[half.name] * (half.time + block.time)
                    found[half.name] = min(Fraction(1), both / half.time)
    for name, share in found.items():
        if not 0 <= share <= 1:
            raise PlacementError(f"attention_share: {float(share)} of {name} is not at least 0 and at most 1")
    return found


def _keys_and_values(placement: Placement, kv_share: float) -> dict[str, tuple[Fraction, ...]]:
    """Return what of a stage's memory is keys and values, on each device, for each block of its backward.

    Raises:
        PlacementError: Nobody says which block is whose backward.
    """
    blocks = placement.per_micro_batch.blocks if kv_share else ()
    found = {
        name: tuple(exact(kv_share) * max(units, 0) for units in _memory(block))
        for block in blocks
        if block.kind is Kind.F
        for name in backwards_of(block.name)
    }
    for block in blocks:
        if block.kind is not Kind.F and block.name not in found:
            raise PlacementError(
                f"kv_share: the forward of {block.name} is not known; name them as F0, B0, I0, W0, or give 0"
            )
    return found


def _memory(block: Block) -> tuple[int, ...]:
    return tuple(block.memory_on(device) for device in block.devices)


def _finer(numbers: Iterable[Fraction], least: Fraction) -> int:
    """Return how many new units an old one is: as few as make all numbers whole, or a power of ten."""
    finest = 10 ** max(0, math.ceil(math.log10(_FINEST / least)))
    found = math.lcm(*(Fraction(each).denominator for each in numbers))
    return found if found <= finest else finest
