"""Forward blocks of backward blocks, the tensors that flow, and the decisions on modes.

A placement only says what is after what. This module reads the chain rule out of that structure: the
backward of f needs the gradient from the backward of everything that f feeds. The mode of a forward block,
and so of its backward, is the choice of the one decision on them. It knows neither torch nor schedules.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from placements import Block, Kind, Placement
from placements.copies.replicas import copies_in

KEEP, RECOMPUTE, OFFLOAD = "keep", "recompute", "offload"
MODES = (KEEP, RECOMPUTE, OFFLOAD)
"""How a forward block runs: it keeps what its backward needs, or its inputs alone and is computed again, or
keeps on the host what its backward needs.
"""


_COPIES = ("copy_out", "copy_in")
"""Streams of copies between a device and its host; a run makes these itself, of blocks that it offloads."""


class UnrunnablePlacementError(ValueError):
    """A placement can be scheduled but not trained; the message names block and remedy in one line."""


def pair_backward(placement: Placement) -> Mapping[str, str]:
    """Return for each backward block the forward block on the same devices whose gradient it computes.

    A B or I block pairs with a forward block that it is directly after, or that feeds the partner of a
    backward block that it is after. Where several would do, one whose every consumer hands its gradient
    to the block comes first, then one that it is directly after, then one whose name ends in the same
    number, then the first in the placement. A W block has the partner of the I block that it is after.

    Returns:
        Name of each B, I and W block -> name of its forward block, in topological order, then those of R
        blocks; empty for inference. A forward block without one is not trained, nor are those before it.

    Raises:
        UnrunnablePlacementError: A backward block has no such partner or misses a gradient, or has not as
            many data-parallel groups; or an I block has no W.

    >>> from placements.shapes import k_shape
    >>> dict(pair_backward(k_shape(2)))
    {'JB': 'J', 'B0': 'F0', 'B1': 'F1'}
    """
    pairs: dict[str, str] = {}
    for block in placement.topological_order:
        if block.kind is Kind.W:
            pairs[block.name] = _partner_of_weight_half(placement, block, pairs)
        elif block.kind not in (Kind.F, Kind.R):
            pairs[block.name] = _partner(placement, block, pairs)
    pairs |= _computed_again(placement, pairs)
    by_name = placement.by_name
    trained = {forward for name, forward in pairs.items() if by_name[name].kind is Kind.W}
    for name, forward in pairs.items():
        if by_name[name].kind is Kind.I and forward not in trained:
            raise UnrunnablePlacementError(
                f"{name}: has no W block, so the weights of {forward} would not be trained; "
                "add a W block after it, or make it of kind B"
            )
        ours, theirs = (by_name[block].data_parallel for block in (name, forward))
        if ours != theirs:
            raise UnrunnablePlacementError(
                f"{name}: its data_parallel is {ours}, and {theirs} for {forward}, whose gradient it "
                "computes; give both the same"
            )
    return pairs


def computed_again(placement: Placement) -> frozenset[str]:
    """Return the forward blocks that an R block computes again."""
    if all(block.kind is not Kind.R for block in placement.blocks):
        return frozenset()
    pairs, by_name = pair_backward(placement), placement.by_name
    return frozenset(forward for name, forward in pairs.items() if by_name[name].kind is Kind.R)


def forward_inputs(placement: Placement, block: str) -> tuple[str, ...]:
    """Return the blocks whose outputs a forward block takes, in the order of its `after`."""
    return _of_slice(placement, block, placement.by_name[block].after)


def forward_consumers(placement: Placement, block: str) -> tuple[str, ...]:
    """Return the forward blocks that take a forward block's output, in the order of the placement."""
    return _of_slice(placement, block, placement.successors[block])


def _of_slice(placement: Placement, block: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forward blocks among some that work on the same slice of sequences as a block."""
    blocks = map(placement.by_name.__getitem__, names)
    index = placement.by_name[block].sequence_slice
    return tuple(block.name for block in blocks if block.kind is Kind.F and block.sequence_slice == index)


def computes_loss(placement: Placement, block: str) -> bool:
    """Tell whether a block is a forward block that feeds no other, so that its output is a loss."""
    return placement.by_name[block].kind is Kind.F and not forward_consumers(placement, block)


def forward_graphs(placement: Placement) -> tuple[tuple[str, ...], ...]:
    """Return the forward blocks that are connected with each other, graph by graph; slices are connected.

    Returns:
        The names of each graph in topological order; the graphs in the order of their first blocks.

    >>> from placements.shapes import x_shape
    >>> forward_graphs(x_shape(2))
    (('F0', 'F1'), ('G1', 'G0'))
    """
    graph_of: dict[str, int] = {}
    for i, block in enumerate(placement.topological_order):
        if block.kind is Kind.F:
            joined = {graph_of[name] for name in block.after if name in graph_of} | {i}
            graph_of[block.name] = min(joined)
            graph_of = {name: min(joined) if graph in joined else graph for name, graph in graph_of.items()}
    return tuple(
        tuple(name for name, other in graph_of.items() if other == graph)
        for graph in sorted(set(graph_of.values()))
    )


def restricted(placement: Placement, names: Collection[str]) -> Placement:
    """Return the placement of some blocks alone, which keep nothing and about which nothing is decided."""
    blocks = tuple(
        replace(block, memory=0, after=tuple(name for name in block.after if name in names))
        for block in placement.blocks
        if block.name in names
    )
    transfer = tuple(edge for edge in placement.transfer if edge[0] in names and edge[1] in names)
    return replace(placement, blocks=blocks, transfer=transfer, decisions=())


def gradient_inputs(placement: Placement, pairs: Mapping[str, str], block: str) -> tuple[str, ...]:
    """Return the backward blocks whose gradients a B or I block sums up, given `pair_backward`.

    There is one for each consumer of its partner's output, in the order of `forward_consumers`, so that sums
    of floats are the same on every device; none if the partner computes a loss.
    """
    sources = {
        pairs[name]: name for name in placement.by_name[block].after if _gives_gradient(placement, name)
    }
    return tuple(sources[name] for name in forward_consumers(placement, pairs[block]))


def tensor_inputs(placement: Placement) -> Mapping[str, tuple[str, ...]]:
    """Return for every block the blocks whose tensors it takes, in the order in which it takes them.

    A forward block takes outputs and a B or I block gradients. A W or R block takes none: its I or forward
    block left its inputs on its devices. All other `after` are for order only. See `pair_backward`.
    """
    pairs = pair_backward(placement)

    def taken(block: Block) -> tuple[str, ...]:
        if block.kind is Kind.F:
            return forward_inputs(placement, block.name)
        return () if block.kind in (Kind.W, Kind.R) else gradient_inputs(placement, pairs, block.name)

    return {block.name: taken(block) for block in placement.blocks}


def stage_decisions(placement: Placement) -> Mapping[str, int]:
    """Return for each forward block whose mode is decided the number of the decision.

    A decision on a backward block, or on a half of one, is one on the forward block that it differentiates.
    Which copy of a stage a micro-batch takes is no mode.

    Raises:
        UnrunnablePlacementError: A mode has another name than `MODES`, leaves out a block, or two decisions
            are about one forward block and its backward; a block is a copy, or a backward block is of another
            stream than its forward block. Or see `pair_backward`.

    >>> from placements.shapes import v_shape
    >>> dict(stage_decisions(v_shape(2)))
    {}
    """
    for block in placement.blocks:
        if block.stream in _COPIES:
            raise UnrunnablePlacementError(
                f"blocks ({block.name}).stream: {block.stream!r} cannot be run yet; leave the copies out, "
                f"and give the forward block they are of a mode {OFFLOAD!r}"
            )
    if copies_in(placement):
        return {}
    for i, decision in enumerate(placement.decisions):
        for choice in decision.choices:
            where = f"modes[{i}].choices.{choice.name}"
            if choice.name not in MODES:
                raise UnrunnablePlacementError(f"{where}: cannot be run; use one of {', '.join(MODES)}")
            if gone := [block.name for block in choice.blocks if not block.time]:
                raise UnrunnablePlacementError(
                    f"{where}.{gone[0]}: is left out, but a run needs it; give it a time of 1 tick at least"
                )
    again = computed_again(placement)
    pairs = pair_backward(placement) if placement.decisions or placement.has_streams or again else {}
    for name, forward in pairs.items():
        ours, theirs = (placement.by_name[block].stream for block in (name, forward))
        if ours != theirs:
            raise UnrunnablePlacementError(
                f"blocks ({name}).stream: is {ours!r}, and {theirs!r} for {forward}, whose gradient it "
                "computes; give both the same"
            )
    mode_of: dict[str, int] = {}
    for name, i in placement.decision_of.items():
        forward = pairs.get(name, name)
        if forward in again:
            raise UnrunnablePlacementError(
                f"modes[{i}]: is about {forward}, which an R block computes again; leave one of them out"
            )
        if mode_of.setdefault(forward, i) != i:
            raise UnrunnablePlacementError(
                f"modes: modes[{mode_of[forward]}] and modes[{i}] are both about {forward} and its backward; "
                "make one decision of both"
            )
    return mode_of


def _gives_gradient(placement: Placement, name: str) -> bool:
    return placement.by_name[name].kind in (Kind.B, Kind.I)


def _partner(placement: Placement, block: Block, pairs: Mapping[str, str]) -> str:
    arrived = {
        pairs[name]
        for name in block.after
        if placement.by_name[name].sequence_slice == block.sequence_slice and _gives_gradient(placement, name)
    }
    near = set(block.after).union(*(placement.by_name[name].after for name in arrived))
    candidates = [
        forward.name
        for forward in placement.blocks
        if forward.name in near
        and forward.kind is Kind.F
        and set(forward.devices) == set(block.devices)
        and forward.sequence_slice == block.sequence_slice
        and forward.name not in pairs.values()
    ]
    if not candidates:
        raise UnrunnablePlacementError(
            f"{block.name}: no forward block on {_devices(block)} that it could be the backward of; "
            "make it be after that forward block, or after the backward blocks of all that this one feeds"
        )

    def rank(candidate: str) -> tuple[bool, bool, bool]:
        complete = arrived.issuperset(forward_consumers(placement, candidate))
        return not complete, candidate not in block.after, _number(candidate) != _number(block.name)

    best = min(candidates, key=rank)
    for consumer in forward_consumers(placement, best):
        if consumer not in arrived:
            raise UnrunnablePlacementError(
                f"{block.name}: is the backward of {best} but gets no gradient from the backward of "
                f"{consumer}, which {best} feeds; add that block to its 'after'"
            )
    return best


def _partner_of_weight_half(placement: Placement, block: Block, pairs: Mapping[str, str]) -> str:
    taken = {forward for name, forward in pairs.items() if placement.by_name[name].kind is Kind.W}
    before = [placement.by_name[name] for name in block.after]
    halves = [
        half.name
        for half in before
        if half.kind is Kind.I and set(half.devices) == set(block.devices) and pairs[half.name] not in taken
    ]
    if not halves:
        raise UnrunnablePlacementError(
            f"{block.name}: is after no I block on {_devices(block)} that lacks its W; "
            "add its I block to its 'after'"
        )
    return pairs[min(halves, key=lambda name: _number(name) != _number(block.name))]


def _computed_again(placement: Placement, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return for each R block the forward block that it computes again."""
    again: dict[str, str] = {}
    before = {(forward, after) for name, forward in pairs.items() for after in placement.by_name[name].after}
    for block in placement.blocks:
        if block.kind is Kind.R:
            candidates = [
                name for name in block.after if (name, block.name) in before and name not in again.values()
            ]
            if len(candidates) != 1 or placement.by_name[candidates[0]].devices != block.devices:
                raise UnrunnablePlacementError(
                    f"{block.name}: computes no forward block of {_devices(block)} again; let it be after "
                    "one, and that one's backward after it; make one R block for each"
                )
            again[block.name] = candidates[0]
    return again


def _number(name: str) -> str:
    """Return the digits that a name ends in."""
    return name[len(re.sub(r"[0-9]+\Z", "", name)) :]


def _devices(block: Block) -> str:
    return f"device{'s' if len(block.devices) > 1 else ''} {', '.join(map(str, block.devices))}"
