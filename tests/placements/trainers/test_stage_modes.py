"""Modes by stage and micro-batch, in the words of each trainer, and back, with the memory that they need."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from export_facts import megatron_parser, words
from modes_and_streams import offloading, recomputing
from one_line_errors import raises_line

from placements.cluster import read_cluster
from placements.models.parallel import LayerStrategy
from placements.models.zoo import read_model
from placements.models.zoo.shapes import decoder, sizes_of
from placements.planners.hybrid.plan import Plan, alike
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.trainers import megatron
from placements.trainers.as_run import planned_by, rate
from placements.trainers.files import export, job_files
from placements.trainers.job import StageMode, TrainerJob, plan_job
from placements.trainers.layout import LayoutError, PipelineLayout
from placements.trainers.megatron_forks import read_flagscale
from placements.trainers.stage_modes import ModeError, chosen_modes

MODELS = (
    *("gpt3_6.7b", "llama3_8b", "llama3_70b", "qwen3_32b", "qwen3_30b_a3b", "mixtral_8x7b"),
    *("deepseek_v2_lite", "deepseek_v3", "nemotron_8b", "gpt_oss_20b"),
)


def plan_of(model: Any, counts: tuple[int, ...]) -> Plan:
    """Return a plan of four stages; stage i recomputes its first `counts[i]` layers."""
    size, over = divmod(len(model.layers), 4)
    experts = max(getattr(layer, "num_experts", 1) for layer in model.layers)
    ways = [LayerStrategy(1, 4, 1, expert_parallel=4 if experts > 1 else 1)] * len(model.layers)
    numbers = [size + (i < over) for i in range(4)]
    for shared in (False, True):
        modes = [alike(how, layer) if shared else how for how, layer in zip(ways, model.layers, strict=True)]
        plan = Plan.of_sizes(model, read_cluster("h100_16"), numbers, modes, 64, 8)
        for stage, count in zip(plan.stages, counts, strict=True):
            for i in plan.inner_layers(stage.layers)[:count]:
                ways[i] = replace(ways[i], recompute="full")
    return plan


def recomputed_counts(trainer: str, files: dict[str, str], job: TrainerJob) -> list[int]:
    """Return how many layers of each stage a trainer recomputes by its files."""
    text, *more = files.values()
    if trainer in ("megatron", "flagscale"):
        read = (megatron.read if trainer == "megatron" else read_flagscale)(words(text), 16)
        assert (read.stages, read.sizes) == (job.stages, job.sizes)
        return [row[0].layers for row in read.stage_modes]
    if trainer == "primus":
        ids = yaml.safe_load(text)["recompute_layer_ids"]
    else:
        base = type("FullAC", (), {"Config": object, "_wrap_block": lambda *_, **__: "wrapped"})
        names: dict[str, Any] = {"FullAC": base}
        exec("\n".join(line for line in more[0].splitlines() if "torchtitan" not in line), names)
        wrap = names["SomeLayers"]()._wrap_block
        ids = [i for i in range(100) if wrap(i, base_fqn=f"layers.{i}") == "wrapped"]
    return [sum(n in ids for part, n in stage if part == "t") for stage in job.stages.numbered]


@pytest.mark.parametrize("name", MODELS)
def test_modes_by_stage_are_read_back_with_the_memory_of_the_plan(name: str) -> None:
    rng, model = random.Random(name), read_model(name)
    mixed = (*(rng.randint(1, 4) for _ in range(3)), 0)
    for trainer in ("megatron", "flagscale", "primus", "torchtitan"):
        counts = (2,) * 4 if trainer == "megatron" else mixed
        plan = plan_of(model, counts)
        job = plan_job(plan, 8, trainer)
        recomputed = recomputed_counts(trainer, job_files(trainer, job, ()), job)
        assert recomputed == list(counts)
        sizes = {size: value for size, value in job.sizes.items() if size in sizes_of(decoder)}
        again = plan_of(decoder(name, **sizes), tuple(recomputed))
        pairs = [rate(version, ShapeCosts(version.model)).stages for version in (again, plan)]
        for read, planned in zip(*pairs, strict=True):
            assert read.peak_mib == pytest.approx(planned.peak_mib, rel=0.03)


def job(*rows: tuple[StageMode, ...], stages: tuple[str, ...] = ("Ettt", "tttL")) -> TrainerJob:
    return TrainerJob(stages=PipelineLayout(min(2, len(stages)), stages), modes=rows)


KEEP, ALL, TWO = StageMode(), StageMode("recompute", 3), StageMode("recompute", 2)
PARTS, HOST = StageMode("selective", 3), StageMode("offload", 3)


SAID = (
    ("megatron", [(ALL,), (ALL,)], "--recompute-num-layers 3\n--recompute-granularity full"),
    ("megatron", [(PARTS,), (PARTS,)], "--recompute-granularity selective"),
    ("megatron", [(HOST,), (HOST,)], "--offload-modules attn_norm core_attn attn_proj mlp_norm"),
    ("flagscale", [(ALL, KEEP, KEEP), (KEEP,)], "'[1, 1, 3, 2, 0]' '[1, 3, 0]'"),
    ("flagscale", [(ALL, TWO), (ALL, TWO)], "-micro-batch '[2, 1, 3, 1, 2]'"),
    ("primus", [(TWO,), (KEEP,)], "recompute_layer_ids: [0, 1]"),
    ("primus", [(HOST,), (HOST,)], 'offload_modules: ["attn_norm", '),
    ("torchtitan", [(ALL,), (ALL,)], "activation_checkpoint:full"),
    ("torchtitan", [(KEEP,), (KEEP,)], "activation_checkpoint:none"),
)
NOT_SAID = (
    ("megatron", [(ALL, KEEP), (KEEP,)], "cannot choose by micro-batch, as in stage 0"),
    ("megatron", [(ALL,), (KEEP,)], "cannot recompute in stage 0 alone"),
    ("megatron", [(ALL,), (TWO,)], "cannot recompute 3, 2 layers of its stages, but as many in each"),
    ("flagscale", [(ALL,), (PARTS,)], "cannot recompute parts of layers in stage 1 beside other modes"),
    ("primus", [(ALL, KEEP), (KEEP,)], "cannot choose by micro-batch, as in stage 0"),
    ("primus", [(KEEP,), (HOST,)], "cannot offload in stage 1 beside other modes"),
    ("torchtitan", [(HOST,), (HOST,)], "cannot offload in stages 0 and 1"),
)


def test_what_a_trainer_can_say_and_cannot() -> None:
    for trainer, rows, part in SAID:
        text = next(iter(job_files(trainer, job(*rows), ()).values()))
        assert part in text
        assert trainer != "megatron" or megatron_parser().parse_args(words(text))
    for trainer, rows, reason in NOT_SAID:
        with pytest.raises(ModeError, match=f"^{reason}$"):
            job_files(trainer, job(*rows), ())


def test_primus_offloads_the_first_chunks_of_every_rank() -> None:
    chunks = job((HOST,), (HOST,), (KEEP,), (KEEP,), stages=("Et", "t", "t", "tL"))
    config = yaml.safe_load(job_files("primus", chunks, ())["primus.yaml"])
    assert config["cpu_offload"] and config["offload_chunk_num"] == 1 and config["interleave_group_size"] == 2


def test_modes_of_a_placement() -> None:
    modes = chosen_modes(recomputing(), [(0, 0), (1, 0)], job((KEEP,), (KEEP,)), [1, 0])
    assert modes == ((ALL, KEEP), (KEEP, KEEP))
    one = job((KEEP,), stages=("EtttL",))
    assert chosen_modes(offloading(), [(1,)], one, [0]) == ((HOST,),)
    with raises_line(LayoutError, has="recomputing: its 2 forward blocks are not the 1 stages of the layout"):
        chosen_modes(recomputing(), [(0, 0)], one, [0])


def test_uniform_recomputation_and_offload_are_read() -> None:
    """Once uniform recomputation was read as none."""
    whole = plan_job(plan_of(read_model("mixtral_8x7b"), (2,) * 4), 8, "")
    text = job_files("megatron", whole, ())["megatron.txt"]
    uniform = text.replace("block", "uniform")
    read = megatron.read(words(uniform.replace("--recompute-num-layers 2", "--recompute-num-layers 1")), 16)
    assert [row[0] for row in read.stage_modes] == [
        StageMode("recompute", count) for count in read.num_layers
    ]
    with raises_line(LayoutError, "--recompute-num-layers: is not known with uniform; give 1, or block"):
        megatron.read(words(uniform), 16)
    lists = ["--recompute-num-layers-per-stage-micro-batch", "[4, 7, 1]"]
    with pytest.raises(LayoutError, match="is not of 4 stages and 8 micro-batches; give lists"):
        read_flagscale([*words(text), *lists], 16)
    away = replace(whole, modes=tuple((StageMode("offload", count),) for count in whole.num_layers))
    text = job_files("megatron", away, ())["megatron.txt"]
    assert "moe_act" in text and megatron.read(words(text), 16) == away


def test_a_plan_that_recomputes_by_stage_goes_to_the_forks(tmp_path: Path) -> None:
    plan = plan_of(read_model("llama3_8b"), (3, 2, 0, 0))
    rated = rate(plan, ShapeCosts(plan.model))
    limits = [stage.peak_mib / 1024 for stage in rated.stages]
    lines = export(planned_by(rated, ShapeCosts(plan.model), limits), tmp_path)
    assert "FlagScale and Primus with recomputation by stage" in lines[0]
    read = read_flagscale(words((tmp_path / "flagscale.txt").read_text()), 16)
    assert [row[0].layers for row in read.stage_modes] == [3, 2, 0, 0]
