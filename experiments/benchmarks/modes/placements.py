"""Placements with modes and streams: of one's own numbers, of DeepSeek-V3's trace, of layers on an H100."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from placements import Block, Kind, Placement
from placements.cluster import read_cluster
from placements.models.costing.layer_costs import layer_cost
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.models.parallel import LayerStrategy
from placements.models.zoo import read_model
from placements.shapes import v_shape

H100_LAYERS = Path(__file__).parents[4] / "shared" / "data" / "h100_layers" / "h100_layers.csv"
"""Layers of transformers measured on an H100, where there is such a file."""

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
"""Mean times of a layer of DeepSeek-V3 in ms: B is the gradient of the input, W that of the weights.

Read off the trace of training that DeepSeek published (deepseek-ai/profile-data, 4 layers, expert parallelism
of 64); dispatch and combine are all-to-alls.
"""

_FORWARD = ("attn(F)", "dispatch(F)", "mlp(F)", "combine(F)")
_BACKWARD = ("combine(B)", "mlp(B)", "dispatch(B)", "attn(B)")

DUAL_PIPE = (
    *("attn(F)", "combine(B)", "mlp(B)", "dispatch(F)", "mlp(W)", "dispatch(B)", "mlp(F)", "attn(B)"),
    *("combine(F)", "attn(W)"),
)
"""The order in which the same trace runs a forward and a backward of one layer, on both streams."""


def recomputing(num_devices: int, capacity: int) -> Placement:
    """Return a V-shape of which each stage keeps 10 units, or 1 and computes its forward again.

    A forward takes 2 ticks, a backward 4; a backward that computes the forward again takes 6, and holds all
    10 units while it runs.
    """
    placement = v_shape(num_devices, forward_time=2, backward_time=4, stage_memory=10)
    levers = {f"F{stage}": [Recompute(1, 2)] for stage in range(num_devices)}
    return with_levers(placement.with_memory(capacity), levers)


def expert_layers(stages: int, layers: int, capacity: int | None) -> Placement:
    """Return stages of layers of DeepSeek-V3, each of which holds a unit for a layer and micro-batch.

    Args:
        stages: Devices in a row.
        layers: Layers of each.
        capacity: Units of each device; None for no limit.
    """
    blocks: list[Block] = []
    last: tuple[str, ...] = ()
    places = [(stage, layer) for stage in range(stages) for layer in range(layers)]

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
    memory = None if capacity is None else (capacity,) * stages
    return Placement(f"experts {stages}x{layers}", stages, tuple(blocks), tick_ms=0.01, memory=memory)


_STATE_BYTES = 18
"""Bytes of a parameter: its weight and its gradient of 16 and 32 bits, and Adam's states."""


@dataclass(frozen=True)
class LayerFigures:
    """A layer for one sample, as measured or from the cost model.

    Attributes:
        forward_ms: Its forward.
        again_ms: The forward again, without a graph.
        backward_ms: Its whole backward.
        kept_mib: MiB that autograd keeps from the forward to the backward.
        out_ms: All of it to the host.
        in_ms: And back.
        state_mib: Its weights, gradients and optimizer states.
        input_mib: Its input, which is kept where the forward is computed again.
        weight_ms: The part of the backward that only weights wait for; 0 where that is not known.
    """

    forward_ms: float
    again_ms: float
    backward_ms: float
    kept_mib: float
    out_ms: float
    in_ms: float
    state_mib: float
    input_mib: float
    weight_ms: float = 0.0


def measured_layers() -> Iterator[tuple[str, LayerFigures]]:
    """Yield the layers of `H100_LAYERS` with their names."""
    lines = [line for line in H100_LAYERS.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    rows = list(csv.DictReader(lines))
    hidden = {"llama3_8b": 4096, "llama3_70b": 8192, "gpt3_6.7b": 4096, "gpt3_13b": 5120}
    for name in dict.fromkeys(row["layer"] for row in rows if row["layer"] != "-"):
        ms = {row["operation"]: row for row in rows if row["layer"] == name}
        model, _, tokens = name.rpartition("_s")
        yield (
            name,
            LayerFigures(
                float(ms["forward"]["ms"]),
                float(ms["forward_without_graph"]["ms"]),
                float(ms["backward"]["ms"]),
                float(ms["forward"]["kept_mib"]),
                float(ms["offload_to_host"]["ms"]),
                float(ms["load_from_host"]["ms"]),
                int(ms["forward"]["parameters"]) * _STATE_BYTES / 2**20,
                int(tokens) * hidden[model] * 2 / 2**20,
            ),
        )


def modelled_layer(model: str, tensor_parallel: int, link_gb_s: float) -> LayerFigures:
    """Return a middle layer of a published model on A100 GPUs, from the cost model.

    Args:
        model: Name of the model.
        tensor_parallel: GPUs of a node that share it.
        link_gb_s: Bandwidth of a GPU to its host, in one direction, 1e9 bytes per second.
    """
    layers = read_model(model).layers
    layer = layers[len(layers) // 2]
    cluster = read_cluster(f"a100_{max(tensor_parallel, 1)}")
    strategy = LayerStrategy(tensor_parallel=tensor_parallel)
    cost = layer_cost(layer, strategy, 1, 2, cluster.whole)
    again = layer_cost(layer, replace(strategy, recompute="full"), 1, 2, cluster.whole)
    copy_ms = cost.kept_bytes / link_gb_s / 1e6
    return LayerFigures(
        cost.forward.time_ms,
        again.backward.time_ms - cost.backward.time_ms,
        cost.backward.time_ms,
        cost.kept_bytes / 2**20,
        copy_ms,
        copy_ms,
        cost.static_bytes / 2**20,
        again.kept_bytes / 2**20,
        cost.backward.product_ms / 2,
    )


def stages_of_layers(
    layer: LayerFigures, num_devices: int, layers: int, samples: int, memory_gib: float
) -> Placement:
    """Return a V-shape of stages that may keep, compute again or send to the host, all or half of it.

    Args:
        layer: Times and memory of each layer.
        num_devices: Stages.
        layers: Layers of each stage.
        samples: Samples of a micro-batch.
        memory_gib: Memory of each device, states of its parameters included; its host has 2048 GiB for eight.
    """
    parts = layers * samples
    forward, backward = round(10 * parts * layer.forward_ms), round(10 * parts * layer.backward_ms)
    weight = round(10 * parts * layer.weight_ms)
    kept, checkpoint = round(parts * layer.kept_mib), round(parts * layer.input_mib)
    copy = max(layer.out_ms, layer.in_ms)
    placement = replace(
        v_shape(
            num_devices,
            forward_time=forward,
            backward_time=backward,
            split_backward=weight > 0,
            input_time=backward - weight,
            weight_time=weight,
            stage_memory=kept,
        ),
        tick_ms=0.1,
        memory_unit_mib=1.0,
        memory=(int(memory_gib * 1024),) * num_devices,
        static_memory=(round(layers * layer.state_mib),) * num_devices,
    )
    forwards = [f"F{stage}" for stage in range(num_devices)]
    again = Recompute(
        checkpoint, round(10 * parts * layer.again_ms), checkpoint + round(samples * layer.kept_mib)
    )
    copies = [
        Offload(kept, round(10 * parts * copy), "offload"),
        Offload(kept // 2, round(5 * parts * copy), "offload half"),
    ]
    return with_levers(
        placement,
        {name: [again] for name in forwards},
        dict.fromkeys(forwards, copies),
        256 * 1024,
    )
