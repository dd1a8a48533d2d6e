"""Placements with modes and streams, and schedules of them, small enough to be read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from placements import Block, Kind, Placement
from placements.forms.texts import write_text
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.modes import Choice, Decision
from placements.placement_file import placement_to_yaml
from placements.shapes import v_shape
from placements.streams import SharedStream, Slowdown
from schedsearch.schedule import Schedule, ScheduledBlock, as_soon_as_possible


def options_for(placement: Placement, folder: Path, number: int) -> list[str]:
    """Write a placement; return a command's options to search it for a number of micro-batches."""
    path = write_text(folder / "placement.yaml", placement_to_yaml(placement))
    return ["placement=file", f"placement.path={path}", f"search.num_micro_batches={number}"]


def recomputing(num_devices: int = 2) -> Placement:
    """Return a V-shape whose stages keep activations, or compute them again."""
    forwards = [Block(f"F{s}", Kind.F, (s,), 2, 10, (f"F{s - 1}",) if s else ()) for s in range(num_devices)]
    backwards = [
        Block(f"B{s}", Kind.B, (s,), 4, -10, (f"B{s + 1}" if s < num_devices - 1 else f"F{s}",))
        for s in reversed(range(num_devices))
    ]
    decisions = [
        Decision(
            (
                Choice("keep"),
                Choice(
                    "recompute",
                    (replace(forward, memory=1), replace(backward, time=6, memory=-1, transient=10)),
                ),
            )
        )
        for forward, backward in zip(forwards, reversed(backwards), strict=True)
    ]
    return Placement(
        "recomputing",
        num_devices,
        (*forwards, *backwards),
        memory=(32,) * num_devices,
        decisions=tuple(decisions),
    )


def recomputed() -> Schedule:
    """Return two micro-batches of it, the second of which is computed again on device 0."""
    orders = [[("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)], [("F1", 0), ("B1", 0), ("F1", 1), ("B1", 1)]]
    return as_soon_as_possible(recomputing(), 2, orders, ((0, 0), (1, 0)))


def offloading(slowed: float = 1.0) -> Placement:
    """Return a device that may offload activations to its host, on two more streams.

    Args:
        slowed: Times as long that computing takes beside sending; 1 for no such rule.
    """
    out = Block("O0", Kind.F, (0,), 3, -4, ("F0",), stream="copy_out", host_memory=4)
    back = Block("I0", Kind.B, (0,), 3, 4, ("O0",), stream="copy_in", host_memory=-4)
    none = [replace(block, time=0, memory=0, host_memory=0) for block in (out, back)]
    return Placement(
        "offloading",
        1,
        (Block("F0", Kind.F, (0,), 4, 4), out, back, Block("B0", Kind.B, (0,), 6, -4, ("F0", "I0"))),
        memory=(12,),
        decisions=(Decision((Choice("keep", tuple(none)), Choice("offload"))),),
        host_memory=(40,),
        slowdown=(Slowdown(("compute", "copy_out"), (slowed, 1.0)),) if slowed > 1 else (),
    )


def offloaded(slowed: float = 1.0) -> Schedule:
    """Return three micro-batches of it, the first of which is sent to the host."""
    order = [("F0", 0), ("F0", 1), ("B0", 1), ("F0", 2), ("B0", 0), ("B0", 2)]
    lanes = [order, [("I0", 0)], [("O0", 0)]]
    return as_soon_as_possible(offloading(slowed), 3, lanes, ((1,), (0,), (0,)))


def communicating() -> Placement:
    """Return a layer on one device that computes and communicates side by side."""
    return Placement(
        "communicating",
        1,
        (
            Block("attention", Kind.F, (0,), 4, 1),
            Block("dispatch", Kind.F, (0,), 6, 0, ("attention",), stream="communication"),
            Block("mlp", Kind.B, (0,), 5, -1, ("dispatch",)),
        ),
        memory=(4,),
    )


def communicated() -> Schedule:
    """Return two micro-batches of it, the second of which computes while the first communicates."""
    order = [("attention", 0), ("attention", 1), ("mlp", 0), ("mlp", 1)]
    return as_soon_as_possible(communicating(), 2, [order, [("dispatch", 0), ("dispatch", 1)]])


CASES = {
    "modes": with_levers(
        v_shape(2, forward_time=1, backward_time=2, stage_memory=3).with_memory(5),
        {"F0": [Recompute(1, 1)], "F1": [Recompute(1, 1)]},
    )
}
CASES["offload"] = with_levers(
    v_shape(1, forward_time=1, backward_time=2, stage_memory=2).with_memory(4),
    offload={"F0": [Offload(2, 2)]},
    host_memory=4,
)
CASES["tight host"] = replace(CASES["offload"], host_memory=(1,))
CASES["copies in line"] = with_levers(
    v_shape(2, forward_time=1, backward_time=1, stage_memory=2).with_memory((3, 2)),
    offload={"F0": [Offload(2, 1)]},
    host_memory=10,
)
CASES["streams"] = Placement(
    "streams",
    1,
    (
        Block("A", Kind.F, (0,), 2, 2),
        Block("C", Kind.F, (0,), 3, 1, after=("A",), stream="communication"),
        Block("D", Kind.B, (0,), 2, -3, after=("C",), transient=3),
    ),
    memory=(6,),
)
CASES["shared stream"] = Placement(
    "shared stream",
    2,
    (
        Block("F0", Kind.F, (0,), 1, 1),
        Block("S0", Kind.F, (0,), 2, -1, ("F0",), stream="copy_out"),
        Block("F1", Kind.F, (1,), 2, 1, ("F0",)),
        Block("S1", Kind.F, (1,), 1, -1, ("F1",), stream="copy_out"),
    ),
    memory=(2, 2),
    shared_streams=(SharedStream("copy_out", (0, 1)),),
)
"""Placements of which all schedules can be tried."""


def at_random(seed: int) -> Placement:
    """Return two stages with times, memory, modes and copies at random."""
    draw = random.Random(seed)
    held = [draw.randint(1, 3) for _ in range(2)]
    placement = v_shape(2, forward_time=draw.randint(1, 2), backward_time=draw.randint(1, 2), stage_memory=0)
    blocks = [
        replace(block, memory=held[int(block.name[1])] * (1 if block.kind is Kind.F else -1))
        for block in placement.blocks
    ]
    recompute = {"F1": [Recompute(draw.randint(0, held[1]), draw.randint(1, 2), draw.choice([None, 1]))]}
    offload = {"F0": [Offload(draw.randint(1, held[0]), draw.randint(1, 2))]}
    capacity = [units + draw.randint(0, 2) for units in held]
    placement = replace(placement, blocks=tuple(blocks)).with_memory(capacity)
    return with_levers(placement, recompute, offload, host_memory=draw.randint(1, 6))


def swapping() -> Schedule:
    """Return two micro-batches, one of which comes back from the host as the other goes there.

    Device and host have room for one, so that both copies start together.
    """
    blocks = (
        Block("F", Kind.F, (0,), 2, 4),
        Block("O", Kind.F, (0,), 3, -4, ("F",), stream="copy_out", host_memory=4),
        Block("I", Kind.B, (0,), 3, 4, ("O",), stream="copy_in", host_memory=-4),
        Block("B", Kind.B, (0,), 2, -4, ("I",)),
    )
    starts = (
        (0, 0, "F"),
        (2, 0, "O"),
        (2, 1, "F"),
        (5, 1, "O"),
        (5, 0, "I"),
        (8, 0, "B"),
        (8, 1, "I"),
        (11, 1, "B"),
    )
    placement = Placement("swapping", 1, blocks, memory=(4,), host_memory=(4,))
    return Schedule(placement, 2, tuple(ScheduledBlock(*start) for start in starts))
