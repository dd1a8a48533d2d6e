"""The structure of a placement, read from its blocks alone: chains of stages, and the shape they form.

A hand-made schedule is a rule over stages. This module finds the stages, whatever the blocks are called,
refuses placements that a rule is not defined for, and makes schedules of the rule's orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any

from placements import Block, Kind, Placement
from placements.copies.replicas import as_stages, copies_in
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible, with_optimizer


class UnsuitablePlacementError(ValueError):
    """The hand-made schedule is not defined for this placement or number of micro-batches.

    Attributes:
        reason: Needs of the schedule in words; the message also names the remedy.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason

    def __str__(self) -> str:
        return "; ".join(self.args)


class TooFewMicroBatchesError(UnsuitablePlacementError):
    """A hand-made schedule needs more micro-batches; `args`: its name, the minimum, the number asked for."""

    def __init__(self, schedule: str, minimum: int, number: int) -> None:
        reason = f"schedule: {schedule} needs at least {minimum} micro-batches, not {number}"
        super().__init__(f"{reason}; raise search.num_micro_batches", "")
        self.args = schedule, minimum, number  # from which pickle makes it again

    def __str__(self) -> str:
        return f"{self.reason}, or use schedule=searched"


@dataclass(frozen=True)
class BaselineStage:
    """One stage of a pipeline.

    Attributes:
        devices: Where all its blocks run.
        forward: Name of its forward block.
        backward: Name of its whole backward block, or of the input-gradient half.
        weight: Name of the weight-gradient half; None where the backward is whole.
    """

    devices: tuple[int, ...]
    forward: str
    backward: str
    weight: str | None = None

    @property
    def device(self) -> int:
        """The only device of a stage that has one."""
        (device,) = self.devices
        return device


Chains = list[list[BaselineStage]]
"""The stages of each pipeline, or of each slice of one, first stage first."""


def pipelines(placement: Placement) -> Chains:
    """Return the stages of each pipeline of a placement; empty if any connected part of it is no pipeline.

    A pipeline is a chain of forward blocks and then, on the same devices, of their backward blocks, last
    one first; these are all whole or all input-gradient halves. Each half has a weight half after it, which
    nothing waits for. A block may also be after others of the chain that its neighbour in the chain comes
    after anyway. Pipelines do not wait for each other.
    """
    import networkx as nx

    order = placement.topological_order
    graph = nx.Graph((name, block.name) for block in order for name in block.after)
    graph.add_nodes_from(block.name for block in order)
    groups = [[block for block in order if block.name in group] for group in nx.connected_components(graph)]
    groups.sort(key=lambda group: order.index(group[0]))
    chains = [_pipeline(placement, blocks) for blocks in groups]
    return chains if all(chains) else []


def _pipeline(placement: Placement, blocks: Sequence[Block]) -> list[BaselineStage]:
    """Return the stages of connected blocks, given in topological order; empty if they are no pipeline."""
    chain = [block for block in blocks if block.kind is not Kind.W]
    names = [block.name for block in chain]
    forward, backward = chain[: len(chain) // 2], chain[len(chain) // 2 :][::-1]
    kinds = {block.kind for block in backward}
    in_a_row = all({*names[i - 1 : i]} <= {*b.after} <= {*names[:i]} for i, b in enumerate(chain))
    mirrored = [block.devices for block in forward] == [block.devices for block in backward]
    if not in_a_row or not mirrored or {block.kind for block in forward} != {Kind.F}:
        return []
    weights: dict[str, str] = {}
    for block in blocks:
        if block.kind is Kind.W:
            partners = [b.name for b in backward if b.name in block.after and b.devices == block.devices]
            if placement.successors[block.name] or len(partners) != 1 or partners[0] in weights:
                return []
            if not {*block.after} <= {*names[: names.index(partners[0]) + 1]}:
                return []
            weights[partners[0]] = block.name
    if (kinds, len(weights)) not in (({Kind.B}, 0), ({Kind.I}, len(backward))):
        return []
    pairs = zip(forward, backward, strict=True)
    return [BaselineStage(f.devices, f.name, b.name, weights.get(b.name)) for f, b in pairs]


def _slices(placement: Placement) -> Chains:
    """Return the stages of each sequence slice; empty without slices, or if their devices differ."""
    slice_of = {block.name: block.sequence_slice for block in placement.blocks}
    chains = []
    for i in range(placement.num_slices):
        blocks = [block for block in placement.topological_order if slice_of[block.name] == i]
        alone = [replace(b, after=tuple(name for name in b.after if slice_of[name] == i)) for b in blocks]
        chains.append(_pipeline(placement, alone))
    alike = len({tuple(stage.devices for stage in chain) for chain in chains}) == 1
    return chains if len(chains) > 1 and alike and chains[0] else []


@dataclass(frozen=True)
class PipelineForm:
    """A form that the stages of a placement can have.

    Attributes:
        shape: The shape of `placements.shapes` that has it.
        what: The form in words.
        holds: Whether the chains of a placement have it.
        read: The function that finds the chains of a placement.
    """

    shape: str
    what: str
    holds: Callable[[Chains, Placement], bool]
    read: Callable[[Placement], Chains] = pipelines

    def chains(self, placement: Placement, schedule: str, split: bool = False) -> Chains:
        """Return the chains of a placement whose backward is in two halves, or whole.

        Raises:
            UnsuitablePlacementError: The placement has another form; the message begins with the schedule's
                name.
        """
        chains = self.read(placement)
        halves = {stage.weight is not None for chain in chains for stage in chain}
        if chains and halves <= {split} and self.holds(chains, placement):
            return chains
        backward, option = ("split", " placement.split_backward=true") if split else ("whole", "")
        raise UnsuitablePlacementError(
            f"schedule: {schedule} needs {self.what} with {backward} backward, which {placement.name} is not",
            f"use schedule=searched, schedule=gpipe or placement={self.shape}{option}",
        )


def _rounds(stages: Sequence[BaselineStage], turning: bool = False) -> int:
    """Return the rounds that stages make over single devices, all forwards or, if `turning`, to and fro.

    0 if the stages do not go in such rounds.
    """
    devices = [stage.devices for stage in stages]
    there = list(dict.fromkeys(devices))
    both, rounds = (there, there[::-1] if turning else there), len(devices) // len(there)
    expected = [device_set for i in range(rounds) for device_set in both[i % 2]]
    return rounds if devices == expected and all(len(device_set) == 1 for device_set in there) else 0


def _is_x(chains: Chains, _: Placement) -> bool:
    devices = [[stage.devices for stage in chain] for chain in chains]
    is_even = len(chains) == 2 and len(chains[0]) % 2 == 0
    return is_even and _rounds(chains[0]) == 1 and devices[0] == devices[1][::-1]


def _is_embedded(chains: Chains, placement: Placement) -> bool:
    everywhere = tuple(range(placement.num_devices))
    single = [stage for stage in chains[0] if stage.devices != everywhere]
    return len(chains) == 1 and 0 < len(single) < len(chains[0]) and _rounds(single) == 1


def _one(holds: Callable[[list[BaselineStage]], bool]) -> Callable[[Chains, Placement], bool]:
    return lambda chains, _: len(chains) == 1 and holds(chains[0])


_V = "a V-shape (a chain of forward and mirrored backward blocks"
_WAVE = "chunks per device (down the devices and up again)"
_LOOP = "a loop (several rounds of stages over the devices, in one order)"
_EMBEDDED = "an M- or NN-shape (a V-shape with stages on all devices in between)"
_X = "an X-shape (two V-shapes in opposite directions) of an even number of devices"

ANY = PipelineForm("v_shape", "any placement", lambda *_: True, lambda _: [[]])
V = PipelineForm(
    "v_shape",
    f"{_V}, one of each on a device)",
    lambda chains, _: _rounds(chains[0]) == 1 and len({tuple(s.devices for s in c) for c in chains}) == 1,
)
LOOP = PipelineForm("loop_shape", _LOOP, _one(lambda stages: _rounds(stages) > 1))
WAVE = PipelineForm("wave_shape", f"a wave of two {_WAVE}", _one(lambda stages: _rounds(stages, True) == 2))
WAVES = PipelineForm(
    "wave_shape",
    f"a wave of an even number of {_WAVE}",
    _one(lambda stages: _rounds(stages, True) in range(2, len(stages) + 1, 2)),
)
EMBEDDED = PipelineForm("m_shape", _EMBEDDED, _is_embedded)
X = PipelineForm("x_shape", _X, _is_x)
REPLICATED = PipelineForm(
    "v_shape",
    f"{_V}), its stages replicated or not,",
    lambda chains, placement: len(chains) == 1 and (bool(copies_in(placement)) or _rounds(chains[0]) == 1),
    lambda placement: pipelines(as_stages(placement)),
)
V_SLICES = PipelineForm(
    "stages placement.num_slices=8",
    f"{V.what} in slices",
    lambda chains, _: _rounds(chains[0]) == 1,
    _slices,
)


@dataclass(frozen=True)
class Given:
    """The input of a rule that makes orders.

    Attributes:
        schedule: Name of the schedule in messages.
        placement: Without optimizer blocks.
        chains: Its stages, in the form that the rule needs.
    """

    schedule: str
    placement: Placement
    chains: Chains

    @property
    def stages(self) -> list[BaselineStage]:
        """The stages of the first chain."""
        return self.chains[0]

    @property
    def by_device(self) -> dict[int, list[BaselineStage]]:
        """The stages of the first chain by device, in the order of the chain."""
        stages_on: dict[int, list[BaselineStage]] = {}
        for stage in self.stages:
            stages_on.setdefault(stage.device, []).append(stage)
        return stages_on

    def check_number(self, minimum: int, num_micro_batches: int) -> None:
        """Raise an error if the number of micro-batches is below a rule's minimum."""
        if num_micro_batches < minimum:
            raise TooFewMicroBatchesError(self.schedule, minimum, num_micro_batches)


Orders = Mapping[int, Iterable[Instance]]
"""The order of blocks on each device; empty for a device without blocks."""

NEEDS_OF: dict[str, tuple[PipelineForm, bool]] = {}
"""The form that each hand-made schedule needs, and whether its backward is split; by its name."""


def by_hand(
    schedule: str, form: PipelineForm, split: bool = False
) -> Callable[[Callable[..., Orders | Schedule]], Callable[..., Schedule]]:
    """Make a function of a placement and a number of micro-batches of a hand-made schedule's rule.

    The rule gives the order of each device, in which every block then starts as soon as it can, optimizer
    blocks at the end. Placements without stages of the form, or with their backward in two halves where it is
    not to be `split`, are refused with an `UnsuitablePlacementError` that names the schedule.
    """

    def made_of(rule: Callable[..., Orders | Schedule]) -> Callable[..., Schedule]:
        def made(placement: Placement, num_micro_batches: int, *options: Any) -> Schedule:
            plain = placement.per_micro_batch
            given = Given(schedule, plain, form.chains(plain, schedule, split))
            result = rule(given, num_micro_batches, *options)
            if not isinstance(result, Schedule):
                result = in_orders(plain, num_micro_batches, result)
            return with_optimizer(placement, result)

        update_wrapper(made, rule)
        del made.__wrapped__  # type: ignore[attr-defined]  # it is a function of a placement
        NEEDS_OF[rule.__name__] = form, split
        return made

    return made_of


def in_orders(placement: Placement, num_micro_batches: int, orders: Orders) -> Schedule:
    """Return the schedule of the orders of some devices; nothing runs on the others."""
    everywhere = [orders.get(device, ()) for device in range(placement.num_devices)]
    return as_soon_as_possible(placement, num_micro_batches, everywhere)


def in_turns(
    visits: Sequence[tuple[BaselineStage, int]],
    back: Sequence[tuple[BaselineStage, int]],
    warmup: int,
    delay: int = 0,
) -> list[Instance]:
    """Return a device's order: forwards first, then one forward and one backward in turn.

    The (stage, micro-batch) pairs are in the order of their forward blocks, and of their backward blocks or
    input halves. There are `warmup` forwards before the first turn, and `delay` blocks by which a weight half
    is behind the input half before it; the rest comes at the end.
    """
    forward = [(stage.forward, n) for stage, n in visits]
    weight = [(stage.weight, n) for stage, n in back if stage.weight is not None]
    order = forward[:warmup]
    for i, (stage, n) in enumerate(back):
        order += [*forward[warmup + i : warmup + i + 1], (stage.backward, n)]
        if i >= delay:
            order += weight[i - delay : i - delay + 1]
    return order + weight[max(len(weight) - delay, 0) :]


def in_slots(placement: Placement, slot_of: Mapping[Instance, Any]) -> Orders:
    """Return the orders in which every device runs its blocks by their slots."""
    orders: dict[int, list[Instance]] = {device: [] for device in range(placement.num_devices)}
    for instance in sorted(slot_of, key=slot_of.__getitem__):
        for device in placement.by_name[instance[0]].devices:
            orders[device].append(instance)
    return orders
