"""Tables of recipes: layouts that others publish, beside the best of ours."""

from __future__ import annotations

from pathlib import Path

from experiments.predict.measured_folder import MeasuredFolderError
from experiments.predict.recipe_table import (
    PricedRecipe,
    Recipe,
    RecipePrices,
    search_of,
)
from placements.forms.tables import csv_records
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS
from placements.planners.hybrid.search.layout_search import LayoutSearch

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


def rows_of(path: Path) -> dict[str, Recipe]:
    rows = csv_records(path, "recipe", MeasuredFolderError, Recipe, others=True)
    return {f"{path.name}:{line}": row for line, row in rows}


def write(folder: Path, *rows: str) -> Path:
    path = folder / "recipes_of_others.csv"
    path.write_text("\n".join([HEADER, *(rows or ROWS)]) + "\n")
    return path


def test_weights_of_recipes_are_in_their_precision_alone(tmp_path: Path) -> None:
    """8-bit weights as they are and transposed, gradients in 16 bits, and the optimizer's states."""
    recipes = list(rows_of(write(tmp_path)).values())
    assert recipes[0].shape().precision.gradient_bytes == 2
    assert recipes[1].shape().precision.gradient_bytes == 4, "16 bits are as Megatron has them"
    assert RecipePrices(FRAMEWORKS["megatron"]).price(recipes[3]).own is None


def test_adapters_have_no_gradients_of_weights(tmp_path: Path) -> None:
    """A 70B model with its gradients and moments does not fit two such stages; adapters alone do."""
    row = "LLAMA3_70B,DGX-H100,8,FP8,32,1,4096,,2,4,1,20,n/a,"
    trained, adapted = rows_of(
        write(tmp_path, f"Pre-Training Performance,{row}", f"LoRA Performance,{row}")
    ).values()
    assert (trained.is_frozen, adapted.is_frozen) == (False, True)
    assert adapted.shape().precision.is_frozen and trained.shape().precision.gradient_bytes == 2
    searches = [
        LayoutSearch(
            each.shape(),
            each.cluster(),
            each.batch,
            CostOptions(precision=each.shape().precision),
        )
        for each in (trained, adapted)
    ]
    whole, part = (
        search.least_recomputed(each.layout)
        for search, each in zip(searches, (trained, adapted), strict=True)
    )
    assert whole.gib > searches[0].limit_gib > part.gib
    assert part.time_ms < 0.75 * whole.time_ms


def test_recipes_with_experts(tmp_path: Path) -> None:
    """Runs of Megatron-Bridge's summary, releases 25.11 to 26.06, with nothing fitted; all fit."""
    rows = (
        "26.02,QWEN3_30B_A3B,DGX-H100,16,FP8,1024,1,4096,0,1,2,1,12,8,9058",
        "26.06,Qwen3_30B_a3B,DGX-H100,16,FP8,1024,1,4096,,1,1,1,n/a,16,8826",
        "26.04,Qwen3_235B_a22B,DGX-H100,256,FP8,8192,1,4096,0,2,8,1,4,32,1686",
        "26.04,Qwen3_30B_a3B,DGX-B200,8,MXFP8,512,4,4096,0,1,1,1,n/a,8,26859",
        "26.02,Qwen3_30B_a3B,DGX-B200,8,MXFP8,512,1,4096,0,1,1,1,n/a,8,9691",
        "26.04,Qwen3_235B_a22B,DGX-GB200,256,MXFP8,8192,1,4096,0,1,8,1,3,32,5672",
        "26.06,Qwen3_235B_a22B,DGX-GB200,256,MXFP8,8192,1,4096,0,1,8,1,3,32,7376",
        "25.11,DeepSeekV3 (w/o MTP),DGX-GB200,256,FP8-MX,4096,1,4096,0,1,8,1,4,32,4018",
    )
    table = tmp_path / "recipes.csv"
    table.write_text("\n".join([HEADER.replace("section", "release"), *rows]) + "\n")
    found = {}
    for name, recipe in rows_of(table).items():
        search = search_of(recipe, FRAMEWORKS["megatron"])
        own = search.least_recomputed(recipe.layout)
        found[name] = PricedRecipe(recipe, own, None, own.gib <= search.limit_gib, "")
    errors = [each.error for each in found.values() if each.error is not None]
    assert len(errors) == len(rows) and all(each.fits for each in found.values())
    assert max(map(abs, errors)) < 0.15


def test_experts_of_recipes_are_whole(tmp_path: Path) -> None:
    row = "x,QWEN3_30B_A3B,DGX-H100,8,FP8,64,1,4096,,2,1,1,n/a,8,9000"
    (recipe,) = rows_of(write(tmp_path, row)).values()
    assert recipe.layout.degrees.whole_experts
    assert recipe.layout.strategy.expert_level == (8, 1), "tensor-parallel GPUs share experts too"
