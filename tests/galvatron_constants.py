"""Made-up constants of Galvatron's search of 2022, in the form of its files."""

from __future__ import annotations

import random
from typing import Any

from experiments.reproduce.galvatron.search_2022.constants import Constants, ConstantsError
from experiments.reproduce.galvatron.search_2022.constants_file import constants_from_dict
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy, all_strategies
from placements.plain_data import Field


def strategy_data(strategy: GalvatronStrategy) -> list[Any]:
    info: dict[str, int] = {}
    if strategy.tensor_consecutive is not None:
        info["tp"] = int(strategy.tensor_consecutive)
    if strategy.data_parallel > 1:
        info["fsdp"] = int(strategy.sharded)
    return [*strategy.degrees, info]


def constants_of(name: str, data: Any) -> Constants:
    return constants_from_dict(name, Field(data, name, ConstantsError))


def entry(name: str, num_types: int = 1, seed: int = 0) -> Any:
    """Return the data of an entry; of one type in the plain form, of several as lists."""
    family, num_gpus = name.split("_")[0], 16 if name.endswith("_16gpus") else 8
    random_of = random.Random(seed).uniform
    degrees = [2**power for power in range(num_gpus.bit_length())]
    groups: dict[str, Any] = {}
    for stages in degrees:
        inside = num_gpus // stages
        parts = [degree for degree in degrees if 1 < degree < inside]
        keys = ["1", str(inside), *(f"{part}_{flag}" for part in parts for flag in (0, 1))]
        groups[str(stages)] = {key: 0 if key == "1" else random_of(0.15, 0.4) for key in keys}
    if num_gpus == 8:
        other: dict[str, Any] = {"other_model_states": 300, "other_activation_per_bsz": 60}
    else:
        first, last = ({"model_states": states, "activation": 40} for states in (200, 260))
        other = {
            "other_memory_pp_off": {"model_states": 350, "activation": 50},
            "other_memory_pp_on": {"first_stage": first, "last_stage": last},
            "peak_reduction_with_chunks": 20,
            "model_type": family,
        }
    memories, times = [], []
    for number in range(num_types):
        size, activation = random_of(20, 90), random_of(45, 90)
        shares = {str(degree): activation / degree**0.8 for degree in degrees}
        memories.append({"parameter_size": size, "tp_activation_per_bsz_dict": shares, **other})
        time: dict[str, Any] = {"parameter_size": size, "microbatch": True, "sequence_length": 128}
        time |= {"hidden_size": 512, "forward_computation_time": random_of(0.5, 3), "bct_fct_coe": 2}
        time |= {"extra_overhead": 40, "comm_coe_dict": groups}
        time |= {"dp_overlap_coe": 1.3, "bct_overlap_coe": 1.3}
        if family == "t5":
            time["layer_type"] = ("enc", "dec")[number]
        if num_gpus == 16:
            time["layer_num"] = 1
            time["p2p_comm_coe_dict"] = {str(stages): random_of(0.1, 0.5) for stages in degrees[1:]}
        times.append(time)
    return {
        "strategies": [strategy_data(each) for each in all_strategies(num_gpus)],
        "mem": memories if num_types > 1 else memories[0],
        "time": times if num_types > 1 else times[0],
    }
