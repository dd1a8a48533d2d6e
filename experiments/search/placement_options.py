"""The `placement` groups of files, plans and models; those of shapes are `SHAPES`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Option, own_options
from placements.meaning import REQUIRED, option
from placements.shapes import SHAPES, options_of


@dataclass(frozen=True, kw_only=True)
class FilePlacementOptions:
    """The `placement` group of a file, or of the output of `experiments.profile`."""

    kind: str = option("file", "set by placement=")
    path: str | None = option(
        REQUIRED, "a placement.yaml, as schedsearch search writes one beside each schedule"
    )
    data_parallel: int | dict[Any, Any] | None = option(
        None,
        "groups of a block's GPUs that share the samples: one number, or as in {F0: 2}; null: the file's",
    )


@dataclass(frozen=True, kw_only=True)
class ProfiledPlacementOptions(FilePlacementOptions):
    """The `placement` group of the output of `experiments.profile`."""

    kind: str = option("profiled", "set by placement=")
    path: str | None = option(
        REQUIRED, "the output directory of experiments.profile: its times, and its energies if measured"
    )


@dataclass(frozen=True, kw_only=True)
class PlannedPlacementOptions(FilePlacementOptions):
    """The `placement` group of the output of `experiments.plan`."""

    kind: str = option("planned", "set by placement=")
    path: str | None = option(REQUIRED, "the output directory of experiments.plan")
    data_parallel: int | dict[Any, Any] | None = option(
        None,
        "groups of a block's GPUs that share the samples: one number, or as in {F0: 2}; null: the plan's",
    )


@dataclass(frozen=True, kw_only=True)
class StagesPlacementOptions:
    """The `placement` group of a file of stages; see `placements.stages.stage_chain.place`."""

    kind: str = option("stages", "set by placement=")
    path: str | None = option(REQUIRED, "a stages.yaml, as schedsearch compare reads it")
    shape: str = option(
        "wave_shape",
        "v_shape: one stage on each device | wave_shape, loop_shape: several | x_shape: two, in opposite "
        "directions",
    )
    num_chunks: int = option(2, "stages on each device of a wave or a loop")


@dataclass(frozen=True)
class GptPlacementOptions:
    """The `placement` group of a GPT; see `placements.models.gpt.gpt_placement`."""

    kind: str = option("gpt", "set by placement=")
    arrangement: str = option("m_shape", "m_shape: embedding and tied output layer on all devices | v_shape")
    num_devices: int = option(4, "devices of the pipeline")
    num_layers: int = option(32, "transformer layers")
    hidden_size: int = option(4096, "hidden size of the model")
    num_heads: int = option(32, "attention heads")
    vocab_size: int = option(1000000, "entries of the vocabulary")
    sequence_length: int = option(2048, "tokens of a sample")
    micro_batch_size: int = option(2, "samples of a micro-batch")
    recompute: bool = option(False, "recompute each layer's activations in the backward")
    flash_attention: bool = option(
        True, "true: attention keeps no scores; false: they are kept for the backward"
    )
    model_flops_utilisation: float = option(0.5, "share of the GPU's peak that transformer layers reach")
    output_layer_utilisation: float = option(0.65, "share of the peak that the output layer reaches")
    memory_efficiency: float = option(0.85, "share of the memory bandwidth that is reached")
    link_efficiency: float = option(0.77, "share of the link bandwidth that is reached")
    reserve_gib: float = option(
        4.0, "memory of each GPU, in GiB, that neither parameters nor activations use"
    )
    tick_ms: float | None = option(
        None, "duration of a tick, in ms; null: so short that the shortest block has a hundred ticks or more"
    )
    num_gpus: int | list[Any] = option(
        1, "GPUs that each device stands for, one number: they share its layers; a run has a process for each"
    )
    data_parallel: int | dict[Any, Any] | None = option(
        None, "for v_shape: number of groups of a device's GPUs that share the samples; null: 1"
    )


@dataclass(frozen=True, kw_only=True)
class PlanPlacementOptions:
    """The `placement` group of a planner's plan; see `placements.planners` and `placements.models.rates`."""

    kind: str = option("galvatron", "who made the plan; set by placement=")
    path: str = option(REQUIRED, "a galvatron_config_*.json, as Galvatron's search writes it")
    balance: str | None = option(None, "largest | imbalance: divides the stages again; null: as in the file")
    world_size: int | None = option(None, "GPUs of all stages together; null: the file's")
    num_layers: int | None = option(
        None,
        "transformer layers; null: as many as the file has; the file does not have the model's other sizes",
    )
    hidden_size: int = option(4096, "hidden size of the model")
    num_heads: int = option(32, "attention heads")
    vocab_size: int = option(50304, "entries of the vocabulary")
    sequence_length: int = option(2048, "tokens of a sample")
    flash_attention: bool = option(
        True, "true: attention keeps no scores; false: they are kept for the backward"
    )
    model_flops_utilisation: float = option(0.5, "share of the GPU's peak that transformer layers reach")
    output_layer_utilisation: float = option(0.65, "share of the peak that the output layer reaches")
    memory_efficiency: float = option(0.85, "share of the memory bandwidth that is reached")
    link_efficiency: float = option(0.77, "share of the link bandwidth that is reached")
    overlap_slowdown: float = option(1.3, "factor on computing and transfers while both run")
    reserve_gib: float = option(
        4.0, "memory of each GPU, in GiB, that neither parameters nor activations use"
    )
    tick_ms: float | None = option(
        None, "duration of a tick, in ms; null: so short that the shortest block has a hundred ticks or more"
    )


SHAPE_MEANINGS = {
    "kind": "the function of placements.shapes; set by placement=",
    "num_devices": "devices of the pipeline; null: as many as the profile has stages, else 4",
    "num_chunks": "stages per device",
    "forward_time": "ticks",
    "backward_time": "ticks",
    "embedding_forward_time": "ticks",
    "embedding_backward_time": "ticks",
    "join_forward_time": "ticks",
    "join_backward_time": "ticks",
    "split_backward": "true: the backward is two blocks: I, the gradient of the input, and W, the "
    "gradient of the weights",
    "input_time": "ticks of I; without effect where the backward is whole",
    "weight_time": "ticks of W; without effect where the backward is whole",
    "embedding_memory": "memory held from the embeddings on, by the device of the next stage; part of its "
    "stage_memory",
    "stage_memory": "memory held from a stage's forward until its backward",
    "input_release": "part of stage_memory that I releases; W releases the rest",
    "inference": "true: forward blocks only",
    "tick_ms": "duration of a tick, in ms",
    "num_gpus": "GPUs that each device stands for, one number or a list; a run has a process for each",
    "data_parallel": "groups of a block's GPUs that share the samples: one number, or as in {F0: 2}; null: 1",
}
"""Meanings of the options of shapes; which a shape has, and their defaults, say its function's arguments."""

OF_CHUNKS = {
    "num_devices": "devices of the pipeline; null: the profile's stages divided by num_chunks, else 4",
    "forward_time": "ticks, of one chunk",
}
"""Likewise, where a shape has several stages per device."""


def _shape(name: str) -> tuple[Option, ...]:
    """Return the options of a shape: the arguments of its function in ticks, and what all shapes have."""
    own = options_of(SHAPES[name])
    meanings = SHAPE_MEANINGS | (OF_CHUNKS if "num_chunks" in own else {})
    of_all = {"tick_ms": 10.0, "num_gpus": 1, "data_parallel": None}
    defaults = {"kind": name} | own | {"num_devices": None} | of_all
    return tuple(Option(each, default, meanings[each]) for each, default in defaults.items())


PLACEMENTS: Mapping[str, tuple[Option, ...]] = {
    "file": own_options(FilePlacementOptions),
    "galvatron": own_options(PlanPlacementOptions),
    "gpt": own_options(GptPlacementOptions),
    "planned": own_options(PlannedPlacementOptions),
    "profiled": own_options(ProfiledPlacementOptions),
    "stages": own_options(StagesPlacementOptions),
    **{name: _shape(name) for name in SHAPES},
}
"""The kinds of the group `placement`."""
