"""Placements by name: Tessel's shapes, stages that recompute or offload, layers of experts on two streams.

Of DeepSeek-V3 the mean times of a layer are read off the trace of training that DeepSeek published
(deepseek-ai/profile-data, 4 layers, expert parallelism of 64); dispatch and combine are all-to-alls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from placements import Block, Kind, Placement
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.shapes import SHAPES, v_shape
from placements.streams import Slowdown

PHASES_MS: Mapping[str, float] = {
    "attn(F)": 4.36,
    "dispatch(F)": 6.69,
    "mlp(F)": 4.60,
    "combine(F)": 8.68,
    "combine(B)": 5.77,
    "mlp(B)": 5.31,
    "dispatch(B)": 7.49,
    "attn(B)": 9.34,
    "mlp(W)": 3.54,
    "attn(W)": 2.39,
}
"""Milliseconds: B is the gradient of the input, W that of the weights."""

_FORWARD = ("attn(F)", "dispatch(F)", "mlp(F)", "combine(F)")
_BACKWARD = ("combine(B)", "mlp(B)", "dispatch(B)", "attn(B)")


def made_placement(shape: str, memory: int | None = None, **arguments: Any) -> Placement:
    """Return a placement by the name of its shape here, with as many units of memory on each device."""
    placement = {**SHAPES, **MAKERS}[shape](**arguments)
    return placement if memory is None else placement.with_memory(memory)


def recomputing(num_devices: int, base: str = "v_shape", again: int = 2, **times: Any) -> Placement:
    """Return a shape of which each stage keeps 10 units, or 1 and computes its forward again in its ticks.

    A backward that does so holds all 10 units while it runs.
    """
    times = {"forward_time": again} | (times or {"backward_time": 4})
    placement = SHAPES[base](num_devices, **times, stage_memory=10)
    forwards = [block.name for block in placement.blocks if block.kind is Kind.F]
    return with_levers(placement, {name: [Recompute(1, again)] for name in forwards})


def offloading(num_devices: int, copy_ticks: int) -> Placement:
    """Return stages that keep 10 units, or send all or half to the host, and take 6 ticks in both directions.

    A copy of all takes as many ticks as given, each way.
    """
    stages = v_shape(num_devices, forward_time=2, backward_time=4, stage_memory=10)
    copies = [Offload(10, copy_ticks), Offload(5, -(-copy_ticks // 2), "half")]
    forwards = [f"F{stage}" for stage in range(num_devices)]
    return with_levers(stages, offload=dict.fromkeys(forwards, copies), host_memory=10**6)


def expert_layers(num_devices: int, layers: int, slower: float = 1.0) -> Placement:
    """Return stages of layers of DeepSeek-V3, each of which holds a unit for a layer and micro-batch.

    Blocks of both streams take ``slower`` times as long while they run side by side.
    """
    blocks: list[Block] = []
    last: tuple[str, ...] = ()
    places = [(stage, layer) for stage in range(num_devices) for layer in range(layers)]

    def add(phase: str, kind: Kind, stage: int, layer: int, after: tuple[str, ...]) -> str:
        stream = "communication" if phase.startswith(("dispatch", "combine")) else "compute"
        units = {"attn(F)": 1, "attn(W)": -1}.get(phase, 0)
        name = f"{phase} {stage}.{layer}"
        ticks = round(100 * PHASES_MS[phase])
        blocks.append(Block(name, kind, (stage,), ticks, units, after, stream=stream))
        return name

    for stage, layer in places:
        for phase in _FORWARD:
            last = (add(phase, Kind.F, stage, layer, last),)
    for stage, layer in reversed(places):
        for phase in _BACKWARD:
            last = (add(phase, Kind.I, stage, layer, last),)
            weights = phase.replace("(B)", "(W)")
            if weights in PHASES_MS:
                add(weights, Kind.W, stage, layer, last)
    placement = Placement(f"experts {num_devices}x{layers}", num_devices, tuple(blocks), tick_ms=0.01)
    slowdown = Slowdown(("compute", "communication"), (slower, slower))
    return placement if slower == 1 else replace(placement, slowdown=(slowdown,))


MAKERS: Mapping[str, Callable[..., Placement]] = {
    maker.__name__: maker for maker in (recomputing, offloading, expert_layers)
}
"""Makers of placements beside `SHAPES`, by name."""
