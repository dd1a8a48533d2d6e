"""`search.export` to trainers: layers and modes in their words, or the nearest modes with their cost."""

from __future__ import annotations

import re
from pathlib import Path

from commands import refusal
from modes_and_streams import options_for, recomputing

from placements.trainers import megatron
from placements.trainers.words import argument_words

ALL = "search.export=[torch,megatron,flagscale,primus,torchtitan]"


TIGHT = recomputing().with_memory((12, 32))


def test_modes_that_a_trainer_cannot_say_have_a_nearest(ran, tmp_path: Path) -> None:
    options = options_for(TIGHT, tmp_path, 4)
    done = ran("search", *options, "search.layout=Ett|ttL", "schedule=one_f_one_b", ALL)
    line = next(line for line in done.stdout.splitlines() if line.startswith("Megatron-LM cannot"))
    reason, nearest = line.split("; nearest: ")
    assert reason == "Megatron-LM cannot recompute in stage 0 alone"
    assert re.fullmatch(
        r"recompute everywhere, .* time than the searched \(\d+ ms\), .* searched \(.* units\)", nearest
    )
    texts = {path.name: path.read_text() for path in (tmp_path / "out/export").iterdir()}
    assert f"# {line}\n" in texts["megatron.txt"] and "--recompute-num-layers 2" in texts["megatron.txt"]
    assert "-per-stage-micro-batch '[1, 4, 2]' '[1, 4, 0]'" in texts["flagscale.txt"]
    assert "recompute_layer_ids: [0, 1]" in texts["primus.yaml"]
    assert "for number in [0, 1]" in texts["torchtitan_layers.py"]
    assert "# 4 micro-batches for Primus, in its own order, 1F1B\n" in texts["primus.yaml"]
    assert (tmp_path / "out/schedule.csv").exists()


def test_a_model_whose_plan_is_known_is_exported_whole(ran, tmp_path: Path) -> None:
    gpt = [
        "placement=gpt",
        "placement.arrangement=v_shape",
        "placement.num_layers=8",
        "placement.vocab_size=50000",
    ]
    options = [*gpt, "placement.recompute=true", "schedule=gpipe", "search.num_micro_batches=4"]
    done = ran("search", *options, "search.export=megatron")
    assert "in the order of schedule.json; its own, 1F1B, takes " in done.stdout
    path = tmp_path / "out/export/megatron.txt"
    job = megatron.read(argument_words(path, ("--num-layers",)), 4)
    assert job.layout is not None and (job.layout.recompute, job.layout.num_micro_batches) == ("full", 4)
    assert (job.sizes["hidden_size"], job.stages.stages) == (4096, ("Ett", "tt", "tt", "ttL"))


def test_what_is_not_known_is_said_before_the_search(tmp_path: Path) -> None:
    for options, message in (
        ([], "the layers of the stages of recomputing are not known; give search.layout, as Et*4|t*4|t*4L"),
        (["search.layout=EttttL"], "search.layout: Megatron-LM: pipeline_model_parallel_layout must be"),
        (["search.layout=Et|t|t|tL"], "recomputing: its 2 forward blocks are not the 4 stages of the layout"),
    ):
        error = refusal("search", [*options_for(TIGHT, tmp_path, 4), *options, ALL], tmp_path / "out")
        assert error.startswith(f"search.export: {message}")
