"""The structure of a placement, read from its blocks alone: chains of stages, and the shape they form.

A hand-made schedule is a rule over stages. This module finds the stages, whatever the blocks are called,
and refuses placements that a rule is not defined for. It knows no rule, and makes a schedule of its orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from placements import Block, Kind, Placement
from placements.modes import Chosen
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


class UnsuitablePlacementError(ValueError):
    """The hand-made schedule is not defined for this placement or number of micro-batches.

    Attributes:
        reason: What the schedule needs; the message names the remedy too.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason

    def __str__(self) -> str:
        return "; ".join(self.args)


class TooFewMicroBatchesError(UnsuitablePlacementError):
    """A hand-made schedule needs more micro-batches than it is asked for."""

    def __init__(self, schedule: str, minimum: int, number: int) -> None:
        self._schedule, self._minimum, self._number = schedule, minimum, number
        super().__init__(self.in_samples(1), "")
        self.args = schedule, minimum, number  # from which pickle makes it again

    def __str__(self) -> str:
        return f"{self.in_samples(1)}, or use schedule=searched"

    def in_samples(self, num_samples: int) -> str:
        """Return the message where each micro-batch of the placement stands for some of those asked for."""
        return (
            f"schedule: {self._schedule} needs at least {self._minimum * num_samples} micro-batches, not "
            f"{self._number * num_samples}; raise search.num_micro_batches"
        )


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


def pipelines(placement: Placement) -> list[list[BaselineStage]]:
    """Return the stages of each pipeline, first stage first; empty where the placement is no such thing.

    A pipeline is a chain of forward blocks and then, on the same devices, of their backward blocks, last
    one first; these are all whole or all input-gradient halves. Each half has a weight half after it, which
    nothing waits for. A block may also be after others of the chain that its neighbour in the chain comes
    after anyway. Pipelines do not wait for each other.
    """
    found = [_pipeline(placement, blocks) for blocks in _components(placement)]
    return found if all(found) else []


@dataclass(frozen=True)
class PipelineForm:
    """A form that the stages of one pipeline can have.

    Attributes:
        shape: The shape of `placements.shapes` that has it.
        what: The form in words.
        holds: Whether the stages of a placement have it.
    """

    shape: str
    what: str
    holds: Callable[[list[BaselineStage], Placement], bool]


def _is_v(stages: list[BaselineStage], _: Placement | None = None) -> bool:
    devices = {stage.devices for stage in stages}
    return bool(stages) and len(devices) == len(stages) and all(len(one) == 1 for one in devices)


def _num_waves(stages: list[BaselineStage]) -> int:
    """Return how often stages go down the devices and up again; 0 where they do not."""
    num_devices = len({stage.devices for stage in stages})
    there = [stage.devices for stage in stages[:num_devices]]
    num_waves, incomplete = divmod(len(stages), 2 * num_devices)
    turns = [stage.devices for stage in stages] == [*there, *there[::-1]] * num_waves
    return num_waves if _is_v(stages[:num_devices]) and turns and not incomplete else 0


def _is_loop(stages: list[BaselineStage], _: Placement) -> bool:
    num_devices = len({stage.devices for stage in stages})
    repeats = all(stage.devices == stages[i % num_devices].devices for i, stage in enumerate(stages))
    num_chunks, incomplete = divmod(len(stages), num_devices)
    return _is_v(stages[:num_devices]) and repeats and num_chunks > 1 and not incomplete


def _is_embedded(stages: list[BaselineStage], placement: Placement) -> bool:
    everywhere = tuple(range(placement.num_devices))
    single = [stage for stage in stages if stage.devices != everywhere]
    return 0 < len(single) < len(stages) and _is_v(single)


V = PipelineForm(
    "v_shape", "a V-shape (a chain of forward and mirrored backward blocks, one of each on a device)", _is_v
)
LOOP = PipelineForm(
    "loop_shape", "a loop (several rounds of stages over the devices, in one order)", _is_loop
)
V_OR_LOOP = PipelineForm(
    "loop_shape",
    "a V-shape or a loop",
    lambda stages, placement: _is_v(stages) or _is_loop(stages, placement),
)
EMBEDDED = PipelineForm(
    "m_shape", "an M- or NN-shape (a V-shape with stages on all devices in between)", _is_embedded
)
_WAVE = "chunks per device (down the devices and up again)"
WAVE = PipelineForm("wave_shape", f"a wave of two {_WAVE}", lambda stages, _: _num_waves(stages) == 1)
WAVES = PipelineForm(
    "wave_shape", f"a wave of an even number of {_WAVE}", lambda stages, _: _num_waves(stages) > 0
)


def stages_in(
    placement: Placement, schedule: str, form: PipelineForm, split: bool = False
) -> list[BaselineStage]:
    """Return the stages of a placement of one pipeline, first stage first.

    Args:
        placement: What runs where.
        schedule: What is to be made of it.
        form: Form of the stages.
        split: Whether their backward is in two halves.

    Raises:
        UnsuitablePlacementError: The placement has another form; the message begins with the schedule's name.
    """
    found = pipelines(placement)
    if len(found) == 1 and _is_split(found[0]) == split and form.holds(found[0], placement):
        return found[0]
    raise _unsuitable(placement, schedule, form.what, form.shape, split)


def replicated_chains(placement: Placement, schedule: str) -> list[list[BaselineStage]]:
    """Return chains of as many stages, each on one device, where stages at different places share none.

    One chain is a V-shape; several are the inputs of a pipeline with replicated stages.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if found and all(_is_v(chain) and not _is_split(chain) for chain in found):
        places = [{chain[place].device for chain in found} for place in range(min(map(len, found)))]
        num_devices = len({device for place in places for device in place})
        if len({len(chain) for chain in found}) == 1 and sum(map(len, places)) == num_devices:
            return found
    what = "a V-shape (a chain of forward and mirrored backward blocks), its stages replicated or not,"
    raise _unsuitable(placement, schedule, what, "v_shape", split=False)


def x_shape_pipelines(
    placement: Placement, schedule: str, split: bool = False
) -> tuple[list[BaselineStage], list[BaselineStage]]:
    """Return the two pipelines of an X-shape: V-shapes in opposite order on the same devices, an even number.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if len(found) == 2 and all(_is_v(stages) and _is_split(stages) == split for stages in found):
        down, up = found
        mirrored = [stage.devices for stage in down] == [stage.devices for stage in reversed(up)]
        if mirrored and len(down) % 2 == 0:
            return down, up
    what = "an X-shape (two V-shapes in opposite directions) of an even number of devices"
    raise _unsuitable(placement, schedule, what, "x_shape", split)


def slices_in(
    placement: Placement, schedule: str, form: PipelineForm, split: bool
) -> list[list[BaselineStage]]:
    """Return the stages of each slice of a placement of one pipeline in slices, first slice first.

    Raises:
        UnsuitablePlacementError: It is none, of another form or whole; the message begins with the
            schedule's name.
    """
    found = [
        _pipeline(
            placement,
            [
                replace(block, after=tuple(name for name in block.after if slice_of[name] == i))
                for block in placement.topological_order
                if slice_of[block.name] == i
            ],
        )
        for slice_of in [{block.name: block.sequence_slice for block in placement.blocks}]
        for i in range(placement.num_slices)
    ]
    first = found[0]
    alike = all([stage.devices for stage in each] == [stage.devices for stage in first] for each in found)
    if len(found) > 1 and first and alike and _is_split(first) == split and form.holds(first, placement):
        return found
    raise UnsuitablePlacementError(
        f"schedule: {schedule} needs {form.what} in slices with {'split' if split else 'whole'} backward, "
        f"which {placement.name} is not",
        "use schedule=searched, schedule=gpipe or placement=stages placement.num_slices=8",
    )


def _unsuitable(
    placement: Placement, schedule: str, what: str, shape: str, split: bool
) -> UnsuitablePlacementError:
    backward = "split" if split else "whole"
    option = " placement.split_backward=true" if split else ""
    return UnsuitablePlacementError(
        f"schedule: {schedule} needs {what} with {backward} backward, which {placement.name} is not",
        f"use schedule=searched, schedule=gpipe or placement={shape}{option}",
    )


def _components(placement: Placement) -> list[list[Block]]:
    """Return the blocks that hang together by `after`, each group in topological order."""
    import networkx as nx

    order = placement.topological_order
    graph = nx.Graph()
    graph.add_nodes_from(block.name for block in order)
    graph.add_edges_from((name, block.name) for block in order for name in block.after)
    return [[block for block in order if block.name in group] for group in nx.connected_components(graph)]


def _pipeline(placement: Placement, blocks: list[Block]) -> list[BaselineStage]:
    chain = [block for block in blocks if block.kind is not Kind.W]
    names = [block.name for block in chain]
    half = len(chain) // 2
    forward, backward = chain[:half], chain[half:][::-1]
    for i, block in enumerate(chain):
        if not set(names[max(i - 1, 0) : i]) <= set(block.after) <= set(names[:i]):
            return []
    kinds = {block.kind for block in backward}
    mirrored = len(forward) == len(backward) and all(
        f.kind is Kind.F and f.devices == b.devices for f, b in zip(forward, backward, strict=True)
    )
    if not mirrored or kinds not in ({Kind.B}, {Kind.I}):
        return []
    weights = _weights(placement, blocks, names, backward)
    if weights is None:
        return []
    return [
        BaselineStage(f.devices, f.name, b.name, weights.get(b.name))
        for f, b in zip(forward, backward, strict=True)
    ]


def _weights(
    placement: Placement, blocks: list[Block], chain: list[str], backward: list[Block]
) -> dict[str, str] | None:
    """Return the weight half of each input half; None where they do not match one to one."""
    weights: dict[str, str] = {}
    for block in blocks:
        if block.kind is Kind.W:
            own = [half for half in backward if half.name in block.after and half.devices == block.devices]
            if placement.successors[block.name] or len(own) != 1 or own[0].name in weights:
                return None
            if not set(block.after) <= set(chain[: chain.index(own[0].name) + 1]):
                return None
            weights[own[0].name] = block.name
    expected = sum(block.kind is Kind.I for block in backward)
    return weights if len(weights) == expected else None


def _is_split(stages: list[BaselineStage]) -> bool:
    return any(stage.weight is not None for stage in stages)


def in_orders(
    placement: Placement,
    num_micro_batches: int,
    orders: Mapping[int, Iterable[Instance]],
    chosen: Sequence[Chosen] = (),
) -> Schedule:
    """Return the schedule of the orders of some devices; nothing runs on the others."""
    everywhere = [orders.get(device, ()) for device in range(placement.num_devices)]
    return as_soon_as_possible(placement, num_micro_batches, everywhere, chosen)
