"""The search of 2022 against one that tries everything, and against the plans of its authors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from galvatron_constants import constants_of, entry
from galvatron_oracle import oracle
from places import SHARED_DATA

from experiments.reproduce.galvatron.search_2022.batch_search import FoundPlan, best_plan
from experiments.reproduce.galvatron.search_2022.constants import ConstantsError
from experiments.reproduce.galvatron.search_2022.constants_file import read_constants
from experiments.reproduce.galvatron.search_2022.micro_batches import (
    num_micro_batches,
    written_micro_batches,
)
from experiments.reproduce.galvatron.search_2022.strategies import METHODS, GalvatronStrategy

RTX_TITAN = SHARED_DATA / "galvatron" / "rtx_titan_2022"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("name", "counts", "memory_gib"),
    [
        ("bert_64_8gpus", (4,), 2.8),
        ("vit_64_8gpus", (4,), 2.7),
        ("t5_64_8gpus", (2, 2), 2.9),
        ("swin_64_8gpus", (1, 1, 1, 1), 2.3),
        ("bert_64_16gpus", (3,), 2.2),
        ("vit_64_16gpus", (3,), 2.6),
    ],
)
def test_it_is_as_good_as_trying_everything(
    name: str, counts: tuple[int, ...], memory_gib: float, seed: int, method: str
) -> None:
    data = entry(name, len(counts), seed)
    found, wanted = (
        best_plan(constants_of(name, data), counts, memory_gib, method),
        oracle(name, data, counts, memory_gib, method),
    )
    assert found is not None and wanted is not None
    assert (found.batch, found.samples_per_s) == (wanted[0], pytest.approx(wanted[1], rel=1e-9))
    assert sum(found.stage_layers) == len(found.strategies)
    assert len({each.num_stages for each in found.strategies}) == 1


def test_nothing_fits_in_too_little_memory() -> None:
    constants = constants_of("bert_64_8gpus", entry("bert_64_8gpus"))
    assert best_plan(constants, (4,), 1, "galvatron") is None
    assert best_plan(constants, (400,), 8, "galvatron") is None


def test_more_memory_is_never_slower_from_the_smallest_batch_on() -> None:
    """One kind of strategy with one stage, whose estimate is where it ends: the largest batch grows."""
    constants = constants_of("vit_64_8gpus", entry("vit_64_8gpus"))
    found = [best_plan(constants, (8,), memory_gib, "dp+pp") for memory_gib in (3, 5, 8, 12)]
    batches = [each.batch for each in found if each is not None]
    assert len(batches) == 4
    assert batches == sorted(batches)


def test_layers_that_are_left_over_are_dropped() -> None:
    data = entry("bert_64_8gpus")
    data["strategies"] = [each for each in data["strategies"] if each[0] == 2]
    found = best_plan(constants_of("bert_64_8gpus", data), (5,), 4, "galvatron")
    assert found is not None
    assert found.stage_layers == (2, 2)


def test_the_plan_of_bert_has_other_micro_batches_than_the_model_counts_with() -> None:
    strategy = GalvatronStrategy(2, 4, 1)
    assert num_micro_batches("bert", 8, strategy, 16) == 4
    assert num_micro_batches("bert", 8, strategy, 18) == 4.5
    assert written_micro_batches("bert", 8, strategy, 16) == 4
    assert written_micro_batches("bert", 8, strategy, 8) == 3


@pytest.mark.parametrize(
    ("counts", "memory_gib", "method", "message"),
    [
        ((4, 4), 8, "galvatron", "bert_64_8gpus: has 1 types of layers, but the model has (4, 4) of them"),
        ((0,), 8, "galvatron", "give a number above 0 for each"),
        ((4,), 0, "galvatron", "memory_gib: 0 is not a number above 0 to 1024"),
        ((4,), float("nan"), "galvatron", "memory_gib: nan is not a number"),
        ((4,), 8, "dp", "method: 'dp' is not known; use one of galvatron, dp+tp, dp+pp"),
    ],
)
def test_wrong_calls(counts: tuple[int, ...], memory_gib: float, method: str, message: str) -> None:
    constants = constants_of("bert_64_8gpus", entry("bert_64_8gpus"))
    with pytest.raises(ConstantsError) as error:
        best_plan(constants, counts, memory_gib, method)
    assert message in str(error.value)


def test_several_types_on_16_gpus_are_refused() -> None:
    constants = constants_of("t5_64_16gpus", entry("t5_64_16gpus", 2))
    with pytest.raises(ConstantsError, match="reproduced on 8 GPUs only"):
        best_plan(constants, (2, 2), 8, "galvatron")


def to_shipped_form(plan: FoundPlan) -> dict[str, Any]:
    def text(numbers: list[int]) -> str:
        return ",".join(map(str, numbers))

    return {
        "pp_deg": len(plan.stage_layers),
        "tp_sizes_enc": text([each.tensor_parallel for each in plan.strategies]),
        "tp_consecutive_flags": text(
            [int(each.tensor_consecutive in (True, None)) for each in plan.strategies]
        ),
        "dp_types_enc": text([int(each.sharded) for each in plan.strategies]),
        "global_bsz": plan.batch,
        "chunks": plan.num_micro_batches,
    }


@pytest.mark.skipif(not RTX_TITAN.exists(), reason="the shared data are not here")
@pytest.mark.parametrize("memory_gib", [8, 12])
def test_the_plans_that_its_authors_ship_come_out_equal(memory_gib: int) -> None:
    shipped = RTX_TITAN / "bert" / f"galvatron_config_8gpus_1280hidden_32layers_{memory_gib}G_full.json"
    constants = read_constants(RTX_TITAN / "profile_constants.json", ["bert_1280_8gpus"])
    found = best_plan(constants["bert_1280_8gpus"], (32,), memory_gib, "galvatron")
    assert found is not None
    assert to_shipped_form(found) == json.loads(shipped.read_text())
