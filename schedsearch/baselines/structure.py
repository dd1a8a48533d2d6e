"""What a placement is made of, read from its blocks alone: chains of stages, and the shape they form.

A hand-made schedule is a rule over stages. This module finds the stages, whatever the blocks are called,
and refuses placements that a rule is not defined for. It knows no rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from placements import Block, Kind, Placement


class UnsuitablePlacementError(ValueError):
    """The hand-made schedule is not defined for this placement or number of micro-batches."""


class TooFewMicroBatchesError(UnsuitablePlacementError):
    """A hand-made schedule needs more micro-batches than it is asked for."""

    def __init__(self, schedule: str, minimum: int, number: int) -> None:
        super().__init__(schedule, minimum, number)
        self._schedule, self._minimum, self._number = schedule, minimum, number

    def __str__(self) -> str:
        return f"{self.in_samples(1)}, or use schedule=searched"

    def in_samples(self, num_samples: int) -> str:
        """Return the message where each micro-batch of the placement stands for some of those asked for."""
        return (
            f"schedule: {self._schedule} needs at least {self._minimum * num_samples} micro-batches, not "
            f"{self._number * num_samples}; raise search.num_micro_batches"
        )


@dataclass(frozen=True)
class Stage:
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


def pipelines(placement: Placement) -> list[list[Stage]]:
    """Return the stages of each pipeline, first stage first; empty where the placement is no such thing.

    A pipeline is a chain of forward blocks and then, on the same devices, of their backward blocks, last
    one first; these are all whole or all input-gradient halves. Each half has a weight half after it, which
    nothing waits for. A block may also be after others of the chain that its neighbour in the chain comes
    after anyway. Pipelines do not wait for each other.
    """
    found = [_pipeline(placement, blocks) for blocks in _components(placement)]
    return found if all(found) else []


def v_shape_stages(placement: Placement, schedule: str, split: bool = False) -> list[Stage]:
    """Return the stages of a V-shape: one pipeline, each stage alone on one device.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if len(found) == 1 and _is_v(found[0]) and _is_split(found[0]) == split:
        return found[0]
    what = "a V-shape (a chain of forward and mirrored backward blocks, one of each on a device)"
    raise _unsuitable(placement, schedule, what, "v_shape", split)


def replicated_chains(placement: Placement, schedule: str) -> list[list[Stage]]:
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
) -> tuple[list[Stage], list[Stage]]:
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


def wave_stages(placement: Placement, schedule: str, split: bool = False) -> list[Stage]:
    """Return the 2p stages of a wave of two chunks: stages d and 2p - 1 - d stand on one device.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if len(found) == 1 and _is_split(found[0]) == split:
        half = len(found[0]) // 2
        down, up = found[0][:half], found[0][half:]
        if _is_v(down) and [stage.devices for stage in down] == [stage.devices for stage in reversed(up)]:
            return found[0]
    what = "a wave of two chunks per device (down the devices and up again)"
    raise _unsuitable(placement, schedule, what, "wave_shape", split)


def whole_waves(placement: Placement, schedule: str) -> list[Stage]:
    """Return the stages of a wave of any even number of chunks on each device, with whole backward.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if len(found) == 1 and not _is_split(found[0]):
        stages = found[0]
        num_devices = len({stage.devices for stage in stages})
        there = [stage.devices for stage in stages[:num_devices]]
        num_waves, incomplete = divmod(len(stages), 2 * num_devices)
        turns = [stage.devices for stage in stages] == [*there, *there[::-1]] * num_waves
        if _is_v(stages[:num_devices]) and turns and num_waves and not incomplete:
            return stages
    what = "a wave of an even number of chunks per device (down the devices and up again)"
    raise _unsuitable(placement, schedule, what, "wave_shape", split=False)


def loop_stages(placement: Placement, schedule: str) -> tuple[list[Stage], int]:
    """Return the stages of a loop, and on how many devices they stand: at least two rounds in one order.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if len(found) == 1 and not _is_split(found[0]):
        stages = found[0]
        num_devices = len({stage.devices for stage in stages})
        repeats = all(stage.devices == stages[i % num_devices].devices for i, stage in enumerate(stages))
        num_chunks, incomplete = divmod(len(stages), num_devices)
        if _is_v(stages[:num_devices]) and repeats and num_chunks > 1 and not incomplete:
            return stages, num_devices
    what = "a loop (several rounds of stages over the devices, always in the same order)"
    raise _unsuitable(placement, schedule, what, "loop_shape", split=False)


def embedded_stages(placement: Placement, schedule: str) -> list[Stage]:
    """Return the stages of a V-shape with stages on all its devices in between, as in M- and NN-shapes.

    Raises:
        UnsuitablePlacementError: The placement is none; the message begins with the name of the schedule.
    """
    found = pipelines(placement)
    if len(found) == 1 and not _is_split(found[0]):
        everywhere = tuple(range(placement.num_devices))
        single = [stage for stage in found[0] if stage.devices != everywhere]
        if 0 < len(single) < len(found[0]) and _is_v(single):
            return found[0]
    what = "an M- or NN-shape (a V-shape with stages on all devices in between)"
    raise _unsuitable(placement, schedule, what, "m_shape", split=False)


def _unsuitable(
    placement: Placement, schedule: str, what: str, shape: str, split: bool
) -> UnsuitablePlacementError:
    backward = "split" if split else "whole"
    option = " placement.split_backward=true" if split else ""
    return UnsuitablePlacementError(
        f"schedule: {schedule} needs {what} with {backward} backward, which {placement.name} is not; "
        f"use schedule=searched, schedule=gpipe or placement={shape}{option}"
    )


def _components(placement: Placement) -> list[list[Block]]:
    """Return the blocks that hang together by `after`, each group in topological order."""
    order = placement.topological_order
    graph = nx.Graph()
    graph.add_nodes_from(block.name for block in order)
    graph.add_edges_from((name, block.name) for block in order for name in block.after)
    return [[block for block in order if block.name in group] for group in nx.connected_components(graph)]


def _pipeline(placement: Placement, blocks: list[Block]) -> list[Stage]:
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
        Stage(f.devices, f.name, b.name, weights.get(b.name)) for f, b in zip(forward, backward, strict=True)
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


def _is_v(stages: list[Stage]) -> bool:
    devices = {stage.devices for stage in stages}
    return bool(stages) and len(devices) == len(stages) and all(len(one) == 1 for one in devices)


def _is_split(stages: list[Stage]) -> bool:
    return any(stage.weight is not None for stage in stages)
