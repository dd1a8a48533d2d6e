"""Small made-up profiles: a model on two types of GPU layer by layer, and a model in files of Galvatron."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from made_up_runs import GB_PER_S, memory, times

from placements.forms.texts import write_json

TYPES = ("A100-40", "V100-16")

GB_S_IN_A_NODE = [[0, 0, 4], 4e9]
"""A link of 4 GB/s."""


def write_profile(folder: Path, blocks: int = 2) -> Path:
    """Write a folder of layers and links: blocks of 10 + 20 ms on an A100, 30 + 60 on a V100.

    Two GPUs take half as long; four were not measured. A layer has a million weights, and an output of
    250 000 numbers. Between nodes there is 1 GB/s, and 4 GB/s between two GPUs of one.
    """
    for gpu, scale in zip(TYPES, (1, 3), strict=True):
        measured = {
            str(size): {str(t): _layers(times(size * scale / t), blocks) for t in (1, 2)}
            for size in (1, 2, 4)
        }
        write_json(folder / f"profiles/toy/{gpu}.json", measured)
    write_json(folder / "memory/toy.json", {str(t): _layers(memory(t), blocks) for t in (1, 2, 4)})
    ends = {"here": {gpu: {"1": GB_PER_S, "2": GB_PER_S} for gpu in TYPES}}
    write_json(folder / "bandwidth/inter_node.json", {"here": {gpu: {"1": ends, "2": ends} for gpu in TYPES}})
    write_json(folder / "bandwidth/intra_node.json", {gpu: {"2": GB_S_IN_A_NODE} for gpu in TYPES})
    return folder


def _layers(of_four: dict[str, Any], blocks: int) -> dict[str, Any]:
    """Return the entries of embedding, `blocks` blocks and head, from a model with two blocks."""
    inner = {str(i): of_four["1"] for i in range(1, blocks + 1)}
    return {"0": of_four["0"]} | inner | {str(blocks + 1): of_four["3"]}


def galvatron_times() -> dict[str, float]:
    """4 ms of a sample and 1 ms of a batch for a layer; 3 ms of a sample for the ends."""
    layer = {f"layertype_0_bsz{size}_seq128": 4 + 1 / size for size in (1, 2, 4)}
    return {"layernum[2]_bsz1_seq128": 15.0} | layer | {"layertype_other_bsz1_seq128": 3.0}


def galvatron_memory() -> dict[str, Any]:
    """A layer of 100 MB of 32-bit parameters, which keeps 40, 24 or 16 MB; ends of 200 MB, 410 as one."""

    def end(states: float, kept: float) -> dict[str, Any]:
        degrees = {"1": 1, "2": 2, "4": 4}
        return {
            "128": {
                "model_states": {name: states / degree for name, degree in degrees.items()},
                "activation": {name: kept / degree for name, degree in degrees.items()},
            }
        }

    kept = {"1": 40.0, "2": 24.0, "4": 16.0, "checkpoint": 4.0}
    return {
        "layertype_0_sp": {"128": {"parameter_size": 100.0, "tp_activation_per_bsz_dict": kept}},
        "other_memory_pp_on_first_sp": end(200, 8),
        "other_memory_pp_on_last_sp": end(200, 24),
        "other_memory_pp_off_sp": end(410, 30),
    }


def write_galvatron(folder: Path, **changed: Any) -> Path:
    """Write files of Galvatron for nodes of four GPUs; each file can be changed by its short name."""
    files = {
        "times": ("gpt/computation_profiling_bf16_toy-1b_all.json", galvatron_times()),
        "memory": ("gpt/memory_profiling_bf16_toy-1b_all.json", galvatron_memory()),
        "rings": (
            "hardware/allreduce_bandwidth_1nodes_4gpus_per_node.json",
            {f"allreduce_size_{size}": 100.0 for size in ("4_consec_1", "2_consec_1")}
            | {"allreduce_size_2_consec_0": 50.0},
        ),
        "chain": (
            "hardware/p2p_bandwidth_1nodes_4gpus_per_node.json",
            {"pp_size_2": 20.0, "pp_size_4": 10.0},
        ),
        "overlap": ("hardware/overlap_coefficient.json", {"overlap_coe": 1.25}),
    }
    for name, (path, data) in files.items():
        write_json(folder / path, changed.get(name, data))
    return folder
