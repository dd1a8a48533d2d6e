"""Tables of recipes: layouts that others publish, beside the best of ours."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from experiments.predict.measured_folder import MeasuredFolderError
from experiments.predict.recipe_table import COLUMNS, Recipe, RecipePrices
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS
from placements.planners.hybrid.search.layout_search import LayoutSearch
from placements.tables import csv_records

HEADER = (
    "section,Model,System,#-GPUs,Precision,GBS,MBS,Sequence Length,FSDP,TP,PP,CP,VP,EP,Tokens / sec / GPU"
)
ROWS = (
    "x,LLAMA3_8B,DGX-H100,8,FP8,128,1,8192,0,1,1,2,n/a,n/a,15000 (14000)",
    "x,LLAMA3_8B (tokendrop),DGX-H100,8,,128,1,8192,8,1,1,1,1 (5),n/a,12000",
    "x,LLAMA3_8B,DGX-H100,8,FP8,128,1,8192,,1,1,1,n/a,n/a,",
    "x,GPT_5,DGX-H100,8,FP8,128,1,8192,,1,1,1,n/a,n/a,",
    "x,LLAMA3_8B,DGX-H100,8,FP8,100,1,8192,,1,1,1,n/a,n/a,",
)


def rows_of(path: Path) -> list[Recipe]:
    return [row for _, row in csv_records(path, "recipe", MeasuredFolderError, Recipe, others=True)]


def write(folder: Path, *rows: str) -> Path:
    path = folder / "recipes_of_others.csv"
    path.write_text("\n".join([HEADER, *(rows or ROWS)]) + "\n")
    return path


def test_recipes_beside_the_best(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder)
    done = command("predict", f"data={folder}")
    assert done.returncode == 0, done.stderr
    assert "recipes: 3 of 5 are priced, 3 fit, " in done.stdout
    with (tmp_path / "out/recipes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["measured_tokens_per_s_per_gpu"] for row in rows][:2] == ["15000 (14000)", "12000"]
    for row in rows[:3]:
        own, best = (float(row[f"{name}_tokens_per_s_per_gpu"]) for name in ("predicted", "best"))
        assert float(row["share_of_best"]) == pytest.approx(own / best, abs=0.001)
        assert own <= best * 1.0001
    assert rows[0]["recipe"].startswith("CP 2, DP 4, micro-batches 32 x 1")
    assert "ZeRO-3" in rows[1]["recipe"]
    assert rows[3]["note"].startswith("Model: 'GPT_5' is not known; use one of LLAMA3_8B, ")
    assert rows[4]["note"] == "8 GPUs and a batch of 100 are not divided by its degrees"


def test_weights_of_recipes_are_in_their_precision_alone(tmp_path: Path) -> None:
    """8-bit weights as they are and transposed, gradients in 16 bits, and the optimizer's states."""
    recipes = rows_of(write(tmp_path))
    assert recipes[0].shape().precision.static_bytes == 2 + 2 + 12
    assert recipes[1].shape().precision.static_bytes == 2 + 4 + 12, "16 bits are as Megatron has them"
    assert RecipePrices(FRAMEWORKS["megatron"]).price(recipes[3]).own is None


def test_adapters_have_no_gradients_of_weights(tmp_path: Path) -> None:
    """A 70B model with its gradients and moments does not fit two such stages; adapters alone do."""
    row = "LLAMA3_70B,DGX-H100,8,FP8,32,1,4096,,2,4,1,20,n/a,"
    trained, adapted = rows_of(write(tmp_path, f"Pre-Training Performance,{row}", f"LoRA Performance,{row}"))
    assert (trained.is_frozen, adapted.is_frozen) == (False, True)
    assert adapted.shape().precision.static_bytes == trained.shape().precision.weight_bytes == 2
    searches = [
        LayoutSearch(
            each.shape(),
            each.cluster(),
            each.batch,
            CostOptions(precision=each.shape().precision, frozen_weights=each.is_frozen),
        )
        for each in (trained, adapted)
    ]
    whole, part = (
        search.least_recomputed(each.layout)
        for search, each in zip(searches, (trained, adapted), strict=True)
    )
    assert whole.gib > searches[0].limit_gib > part.gib
    assert part.time_ms < 0.75 * whole.time_ms


def test_experts_of_recipes_are_whole_and_their_exchange_is_hidden_or_not(tmp_path: Path) -> None:
    (recipe,) = rows_of(write(tmp_path, "x,QWEN3_30B_A3B,DGX-H100,8,FP8,64,1,4096,,2,1,1,n/a,8,9000"))
    assert recipe.layout.degrees.whole_experts
    assert recipe.layout.strategy.expert_level == (8, 1), "tensor-parallel GPUs share experts too"
    hidden, waiting = (
        RecipePrices(FRAMEWORKS["megatron"], choice).price(recipe).own for choice in (True, False)
    )
    assert hidden is not None and waiting is not None
    assert hidden.time_ms < waiting.time_ms
