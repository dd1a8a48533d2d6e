"""Slices of a sequence as the units of a pipeline: each block of a placement becomes one for each slice.

With causal attention a slice needs of its sequence only the slices before it. So on a stage the forward of a
slice comes after that of the slice before, whose keys and values it reads, and after its own on the stage
before. Backwards come in the reverse order: the last slice is the first to know all of its gradients, and
adds to those of the keys and values of all before. Seq1F1B is an order of such blocks.

A sequence of length 1 that takes ``(1 - a) + a`` on a stage, with ``a`` the share of attention, takes
``C(x) = (1 - a) x + a x^2`` up to x: a slice's time grows with the length before it. The module knows no
orders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from placements.block import Block, Kind, PlacementError
from placements.pieces import backwards_of
from placements.spec import Placement
from placements.stages.stage_chain import PlacedStages, StageChain, StagesError, exact, place

if TYPE_CHECKING:
    from placements.models.transformer import TransformerLayer
    from placements.planners.hybrid.placing.gpt import PlacedGpt

EVEN, EQUAL_TIME = "even", "equal_time"
"""Ways to cut a sequence: into slices of equal length, or into slices of equal time."""

_FINEST = 1000
"""Parts of the shortest or smallest even slice to which others are rounded where nothing divides them all."""

Shares = float | Mapping[str, float]
"""Share of attention in a block's time: of all forwards and whole backwards, or of each block by name."""


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
        attention_share: Share of time that scores and their products take, which grow with the square of the
            length; the rest grows with the length. Gradients of weights have none.
        kv_share: Share of the memory from a forward to its backward that is keys and values.
        partition: `EVEN` or `EQUAL_TIME`.

    Raises:
        PlacementError: A number is out of its range, or the placement has modes or is cut already.

    >>> from placements.shapes import v_shape
    >>> cut = sliced(v_shape(2, 2, 4), 2, attention_share=0.5)
    >>> [(block.name, block.time, block.after) for block in cut.on(1)]
    [('F1s0', 3, ('F0s0',)), ('F1s1', 5, ('F0s1', 'F1s0')), ('B1s1', 10, ('F1s1',)), \
('B1s0', 6, ('F1s0', 'B1s1'))]
    """
    blocks = placement.per_micro_batch.blocks
    forwards = {name: block for block in blocks if block.kind is Kind.F for name in backwards_of(block.name)}
    unknown = [block.name for block in blocks if block.kind is not Kind.F and block.name not in forwards]
    _check(placement, num_slices, kv_share, unknown)
    ends = (Fraction(0), *slice_ends(placement, num_slices, attention_share, partition))
    by_name, numbers, kv = placement.by_name, range(num_slices), exact(kv_share)
    until = {
        name: [by_name[name].time * ((1 - share) * x + share * x**2) for x in ends]
        for name, share in _attention(placement, attention_share).items()
    }
    shortest = Fraction(min(block.time for block in placement.blocks), num_slices)
    finer = _finer(itertools.chain(*until.values()), shortest)
    held = {abs(n) for block in placement.blocks for n in (*block.units.values(), block.transient)} - {0}
    least = Fraction(min(held, default=1), num_slices)
    parts = _finer((units * x * y for units in held for x in ends for y in (1, kv)), least)

    def memory(block: Block) -> list[tuple[int, ...]]:
        """Return the memory of each slice of a block on its devices, with gradients of keys and values."""
        rows = [_rounded(units * parts * x for x in ends) for units in block.units.values()]
        forward = forwards.get(block.name, block)
        for row, units in zip(rows, forward.units.values(), strict=False):
            *earlier, _ = _rounded(kv * max(units, 0) * parts * x for x in ends)
            if block.kind in (Kind.B, Kind.I):
                row[-1] += sum(earlier)
            if block.kind in (Kind.B, Kind.W):
                row[:-1] = [units - gradients for units, gradients in zip(row, earlier, strict=False)]
        return list(zip(*rows, strict=True))

    def names(source: str) -> list[str]:
        return [source] if by_name[source].kind is Kind.O else [f"{source}s{i}" for i in numbers]

    made: list[Block] = []
    for block in placement.topological_order:
        if block.kind is Kind.O:
            after, units = tuple(itertools.chain(*map(names, block.after))), block.transient * parts
            made.append(replace(block, time=block.time * finer, after=after, transient=units))
            continue
        step = 1 if block.kind is Kind.F else -1
        times, memories = _rounded(finer * ticks for ticks in until[block.name]), memory(block)
        for i in numbers[::step]:
            chained = block.kind is not Kind.W and i - step in numbers
            of_slice = replace(
                block,
                name=f"{block.name}s{i}",
                time=max(1, times[i]),
                memory=memories[i],
                after=(*(f"{name}s{i}" for name in block.after), *[f"{block.name}s{i - step}"] * chained),
                transient=math.ceil(block.transient * parts * (ends[i + 1] - ends[i])),
                sequence_slice=i,
            )
            made.append(of_slice)
    unit = placement.memory_unit_mib
    return replace(
        placement,
        name=f"{placement.name} in {num_slices} slices",
        blocks=tuple(made),
        tick_ms=placement.tick_ms / finer,
        transfer=tuple(
            (f"{source}s{i}", f"{target}s{i}", math.ceil(ticks * finer * (ends[i + 1] - ends[i])))
            for source, target, ticks in placement.transfer
            for i in numbers
        ),
        memory=placement.memory and tuple(units * parts for units in placement.memory),
        static_memory=tuple(units * parts for units in placement.static_memory),
        memory_unit_mib=unit and unit / parts,
    )


def place_in_slices(
    chain: StageChain, shape: str, split_backward: bool = False, num_chunks: int = 2
) -> PlacedStages:
    """Return stages on their devices with each sequence cut as they say; see `placements.stages.place`.

    Raises:
        StagesError: The stages do not say how to cut them, or do not fit the shape.
    """
    if (how := chain.sequence_slices) is None:
        raise StagesError("sequence_slices: has no value; give the number of slices")
    whole = place(chain, shape, split_backward, num_chunks)
    try:
        return replace(whole, placement=sliced(whole.placement, **vars(how)))
    except PlacementError as error:
        raise StagesError(f"sequence_slices.{error}") from None


def gpt_in_slices(gpt: PlacedGpt, num_slices: int = 8, partition: str = EVEN) -> Placement:
    """Return a GPT in a V-shape with sequences cut into slices; see `sliced`.

    The part that grows with the square of the length is a layer's excess over two layers of half the length.

    Raises:
        PlacementError: An argument is out of its range, or layers are recomputed and keep no keys and values.
    """
    plan, costs, whole = gpt.plan, gpt.costs, gpt.placement
    layer, how = cast("TransformerLayer", plan.model.layers[1]), plan.strategies[1]
    if how.recompute != "none":
        raise PlacementError("recompute: true keeps no keys and values for later slices; use false")
    half = replace(layer, sequence_length=max(1, layer.sequence_length // 2))
    long, short = (costs.cost(kind, how, plan.micro_batch_size, 1, plan.group(0)) for kind in (layer, half))
    square_ms = {
        "F": max(0.0, 2 * (long.forward.time_ms - 2 * short.forward.time_ms)),
        "B": max(0.0, 2 * (long.backward.time_ms - 2 * short.backward.time_ms)),
    }
    attention = {
        f"{letter}{stage}": min(1.0, round(count * ms / whole.ms(whole.by_name[f"{letter}{stage}"].time), 6))
        for stage, count in enumerate(plan.stage_layers)
        for letter, ms in square_ms.items()
    }
    of_hidden = costs.options.precision.number_bytes * plan.micro_batch_size * layer.output_elements()
    kept = 2 * of_hidden / how.num_gpus / long.kept_bytes
    return sliced(whole, num_slices, attention_share=attention, kv_share=round(kept, 6), partition=partition)


def slice_ends(
    placement: Placement, num_slices: int, attention_share: Shares = 0.0, partition: str = EVEN
) -> tuple[Fraction, ...]:
    """Return the end of each slice as a share of the sequence.

    Slices of equal time end where ``C(x) = i / n`` of the whole: those of all stages, forward and backward,
    together (TeraPipe and Seq1F1B balance so). They are rounded to a millionth of the sequence.

    Raises:
        PlacementError: The partition is not known.

    >>> from placements.shapes import v_shape
    >>> [float(x) for x in slice_ends(v_shape(2), 2, 1.0, "equal_time")]
    [0.707107, 1.0]
    """
    parts = tuple(Fraction(i + 1, num_slices) for i in range(num_slices))
    if partition == EVEN:
        return parts
    if partition != EQUAL_TIME:
        raise PlacementError(f"partition: {partition!r} is not known; use {EVEN} or {EQUAL_TIME}")
    times = {block.name: block.time for block in placement.per_micro_batch.blocks}
    squares = sum(share * times[name] for name, share in _attention(placement, attention_share).items())
    share = float(squares / sum(times.values()))
    linear = 1 - share
    ends = (2 * part / (linear + math.sqrt(linear**2 + 4 * share * part)) for part in parts)
    return tuple(Fraction(round(end * 10**6), 10**6) for end in ends)


def _check(placement: Placement, num_slices: int, kv_share: float, unknown: list[str]) -> None:
    name, updates = placement.name, {block.name for block in placement.optimizer_blocks}
    to_updates = any(target in updates for _, target, _ in placement.transfer)
    for is_wrong, message in (
        (num_slices < 1, f"num_slices: {num_slices} is not a whole number of at least 1; give one"),
        (not 0 <= kv_share <= 1, f"kv_share: {kv_share} is not at least 0 and at most 1"),
        (placement.num_slices > 1, f"num_slices: {name} is cut already; give the whole placement"),
        (
            not placement.is_plain or placement.slowdown or to_updates,
            f"num_slices: {name} has modes, streams or transfers to optimizer blocks, with which sequences "
            "are not cut; leave these out, or give 1",
        ),
        (
            kv_share and unknown,
            f"kv_share: the forward of {', '.join(unknown)} is not known; name them as F0, B0, I0, W0, or "
            "give 0",
        ),
    ):
        if is_wrong:
            raise PlacementError(message)


def _attention(placement: Placement, attention_share: Shares) -> dict[str, Fraction]:
    """Return the share of attention of each block that repeats."""
    blocks = placement.per_micro_batch.blocks
    if isinstance(attention_share, Mapping):
        return {block.name: exact(attention_share[block.name]) for block in blocks}
    share = exact(attention_share)
    if not 0 <= share <= 1:
        raise PlacementError(f"attention_share: {attention_share} is not at least 0 and at most 1")
    shares = {block.name: share * (block.kind is not Kind.W) for block in blocks}
    for block in blocks:
        halves = [placement.by_name[name] for name in block.after] if block.kind is Kind.W else []
        for half in (part for part in halves if part.kind is Kind.I):
            shares[half.name] = min(Fraction(1), share * (half.time + block.time) / half.time)
    return shares


def _rounded(until: Iterable[Fraction]) -> list[int]:
    """Return the differences of rounded running totals, so that all parts add up to the rounded total."""
    return [end - begin for begin, end in itertools.pairwise(map(round, until))]


def _finer(numbers: Iterable[Fraction], least: Fraction) -> int:
    """Return the factor of finer units: the least that makes all numbers whole, or a power of ten."""
    finest: int = 10 ** max(0, math.ceil(math.log10(_FINEST / least)))
    return min(finest, math.lcm(*(Fraction(number).denominator for number in numbers)))
