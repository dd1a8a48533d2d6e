"""Constants as files: what is read, and what is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from galvatron_constants import entry
from places import SHARED_DATA

from experiments.reproduce.galvatron.search_2022.constants import ConstantsError, OtherMemory
from experiments.reproduce.galvatron.search_2022.constants_file import read_constants
from experiments.reproduce.galvatron.search_2022.strategies import (
    GalvatronStrategy,
    all_strategies,
    of_method,
)

BERT, T5, VIT = "bert_64_8gpus", "t5_64_8gpus", "vit_64_16gpus"
SHIPPED = SHARED_DATA / "galvatron" / "rtx_titan_2022" / "profile_constants.json"


@pytest.fixture
def data() -> dict[str, Any]:
    return {BERT: entry(BERT), T5: entry(T5, 2), VIT: entry(VIT)}


def test_the_rows_of_the_tables_choose_among_fewer_strategies() -> None:
    numbers = [
        [len(of_method(all_strategies(num_gpus), method)) for method in ("galvatron", "dp+tp", "dp+pp")]
        for num_gpus in (8, 16)
    ]
    assert numbers == [[22, 6, 4], [37, 8, 5]]


def test_both_forms_are_read(data: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(data))
    found = read_constants(path)
    assert list(found) == [BERT, T5, VIT]
    assert [len(each.layer_types) for each in found.values()] == [1, 2, 1]
    assert [layer.is_decoder for layer in found[T5].layer_types] == [False, True]
    assert found[BERT].strategies == all_strategies(8)
    assert found[BERT].other == OtherMemory(300, 60)
    assert (found[VIT].other, found[VIT].peak_reduction_mib) == (OtherMemory(350, 50), 20)
    assert found[VIT].layer_types[0].divided_by_layers
    assert list(read_constants(path, [T5, "swin_64_8gpus"])) == [T5]


@pytest.mark.skipif(not SHIPPED.exists(), reason="the shared data are not here")
def test_the_constants_that_its_authors_ship_have_all_strategies() -> None:
    for constants in read_constants(SHIPPED).values():
        assert constants.strategies == all_strategies(constants.num_gpus)
        assert GalvatronStrategy(1, 1, constants.num_gpus, sharded=True) in constants.strategies


def put(*keys: str | int, value: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def drop(*keys: str | int) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


WRONG = {
    f"{BERT}.mem: lacks the field 'parameter_size'; add it": drop(BERT, "mem", "parameter_size"),
    f"{BERT}: lacks the field 'strategies'; add it": drop(BERT, "strategies"),
    f"{BERT}: has an unknown field 'layers'": put(BERT, "layers", value=32),
    f"{BERT}.time: has an unknown field 'p2p_comm_coe_dict'": put(
        BERT, "time", "p2p_comm_coe_dict", value={}
    ),
    f"{BERT}.mem: 3 is not a mapping": put(BERT, "mem", value=3),
    f"{BERT}.mem: [] is not a list with entries": put(BERT, "mem", value=[]),
    f"{BERT}: None is not a mapping": put(BERT, value=None),
    f"{BERT}.mem.parameter_size: 0 is not a number above 0": put(BERT, "mem", "parameter_size", value=0),
    f"{BERT}.mem.parameter_size: 'x' is not a number above 0": put(BERT, "mem", "parameter_size", value="x"),
    f"{BERT}.mem.parameter_size: True is not a number above 0": put(
        BERT, "mem", "parameter_size", value=True
    ),
    f"{BERT}.time.forward_computation_time: nan is not": put(
        BERT, "time", "forward_computation_time", value=float("nan")
    ),
    f"{BERT}.time.forward_computation_time: inf is not": put(
        BERT, "time", "forward_computation_time", value=float("inf")
    ),
    f"{BERT}.time.extra_overhead: -1 is not a number of 0 or more": put(
        BERT, "time", "extra_overhead", value=-1
    ),
    f"{BERT}.time.dp_overlap_coe: 0.9 is not a number of 1 or more": put(
        BERT, "time", "dp_overlap_coe", value=0.9
    ),
    f"{BERT}.time.hidden_size: 1.5 is not a whole number above 0": put(
        BERT, "time", "hidden_size", value=1.5
    ),
    f"{BERT}.time.microbatch: False is not true": put(BERT, "time", "microbatch", value=False),
    f"{BERT}.time.layer_type: 'both' is not known; use one of enc, dec": put(
        BERT, "time", "layer_type", value="both"
    ),
    f"{BERT}.mem.tp_activation_per_bsz_dict: lacks the field '8'": drop(
        BERT, "mem", "tp_activation_per_bsz_dict", "8"
    ),
    f"{BERT}.time.comm_coe_dict: lacks the field '4'": drop(BERT, "time", "comm_coe_dict", "4"),
    f"{BERT}.time.comm_coe_dict.1: lacks the field '4_0'": drop(BERT, "time", "comm_coe_dict", "1", "4_0"),
    f"{BERT}.strategies: [] is not a list with entries": put(BERT, "strategies", value=[]),
    f"{BERT}.strategies: has a strategy twice": put(BERT, "strategies", value=[[1, 8, 1, {}]] * 2),
    f"{BERT}.strategies[2]: [1, 3, 2, {{}}] is not a strategy": put(
        BERT, "strategies", 2, value=[1, 3, 2, {}]
    ),
    f"{BERT}.strategies[0]: [1, 1, 8] is not a strategy": put(BERT, "strategies", 0, value=[1, 1, 8]),
    f"{BERT}.strategies[0]: [1, 2, 4, {{'tp': 2}}] is not": put(
        BERT, "strategies", 0, value=[1, 2, 4, {"tp": 2}]
    ),
    f"{BERT}.strategies[0]: [[], 2, 4, {{}}] is not": put(BERT, "strategies", 0, value=[[], 2, 4, {}]),
    f"{BERT}.strategies[0]: [1, 2, 4, {{'tp': []}}] is not": put(
        BERT, "strategies", 0, value=[1, 2, 4, {"tp": []}]
    ),
    f"{T5}.time: has 1 types of layers, but mem 2; give both for each": drop(T5, "time", 1),
    f"{T5}.mem[1].parameter_size: -3 is not a number above 0": put(T5, "mem", 1, "parameter_size", value=-3),
    f"{T5}.mem[1].other_model_states: 4 is not the value of {T5}.mem[0].other_model_states": put(
        T5, "mem", 1, "other_model_states", value=4
    ),
    f"{VIT}.mem.model_type: 'gpt' is not known": put(VIT, "mem", "model_type", value="gpt"),
    f"{VIT}.mem.other_memory_pp_on: lacks the field 'last_stage'": drop(
        VIT, "mem", "other_memory_pp_on", "last_stage"
    ),
    f"{VIT}.time.p2p_comm_coe_dict: lacks the field '16'": drop(VIT, "time", "p2p_comm_coe_dict", "16"),
    "'bert_1280_4gpus': is not FAMILY_HIDDEN_8gpus or _16gpus; use one of bert": put(
        "bert_1280_4gpus", value={}
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_one_line(message: str, data: dict[str, Any], tmp_path: Path) -> None:
    WRONG[message](data)
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ConstantsError) as error:
        read_constants(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[1]", "[1] is not a mapping of entries such as bert_1280_8gpus"),
        ('{"a": 1, "a": 2}', "is not JSON (a is given twice)"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text(text)
    with pytest.raises(ConstantsError) as error:
        read_constants(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
