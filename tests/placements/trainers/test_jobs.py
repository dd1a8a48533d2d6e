"""Trainers' options: written and read back the same, for every known model and random layouts."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest
from export_facts import megatron_parser, words

from placements.cluster import read_cluster
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers import megatron, torchtitan
from placements.trainers.as_run import PlanExport
from placements.trainers.job import TrainerJob, model_sizes, plan_stages
from placements.trainers.layout import layout_of_sizes
from schedsearch.planning.layout_plans import planned_layout
from schedsearch.planning.uniform_run import UniformRun

DECODERS = [
    name
    for name in MODELS
    if not name.startswith(
        ("mt5", "t5", "flava", "vit", "swin", "wide", "opt", "nemotron_h", "vgg", "alex", "res")
    )
]


def random_job(name: str, rng: random.Random) -> TrainerJob:
    """Return a job of a model on stages of random sizes, shared at random."""
    sizes = model_sizes(read_model(name, precision=rng.choice(("half", "bf16", "fp8", "mxfp8", "nvfp4"))), "")
    count, has_experts = sizes["num_layers"], sizes.get("num_experts", 1) > 1
    pipeline, chunks = rng.choice(((1, 1), (2, 1), (2, 3), (4, 2)))
    cuts = sorted(rng.sample(range(2, count), pipeline * chunks - 1))
    parts = tuple(end - first for first, end in pairwise([0, *cuts, count + 2]))
    context = rng.choice((1, 2))
    degrees = Degrees(
        tensor=rng.choice((1, 2, 4)),
        pipeline=pipeline,
        data=rng.choice((1, 2, 8)),
        context=context,
        expert=rng.choice((1, 8)) if has_experts else 1,
        chunks=chunks,
        whole_experts=has_experts and rng.random() < 0.5,
        context_sharing=rng.choice(("ring", "all_to_all")) if context > 1 else "all_to_all",
    )
    recompute = rng.choice(("none", "selective", "full"))
    return TrainerJob(
        stages=layout_of_sizes(pipeline, "E" + count * "t" + "L", parts),
        group=rng.choice((None, pipeline + 1)) if chunks > 1 else None,
        sizes=sizes,
        layout=Layout(degrees, rng.choice((1, 2)), 8, 1, recompute, 2 if recompute == "full" else None),
        overlap_exchanges=rng.random() < 0.5,
        sends_tokens_once=has_experts and rng.random() < 0.5,
    )


def torchtitan_part(job: TrainerJob) -> TrainerJob:
    """Return the part of a job that torchtitan has options for."""
    degrees = job.layout.degrees
    degrees = replace(
        degrees,
        context_sharing="ring" if degrees.context > 1 else "all_to_all",
        whole_experts=degrees.expert > 1 and degrees.tensor > 1,
    )
    zero = 0 if degrees.data == degrees.context == 1 else 1 if degrees.pipeline > 1 else 3
    layout = replace(job.layout, degrees=degrees, recompute="none", recomputed_layers=None, zero=zero)
    return TrainerJob(stages=job.stages, sizes={**job.sizes, "precision": "bf16"}, layout=layout)


def test_jobs_of_all_models_and_random_layouts_are_read_back() -> None:
    rng = random.Random(1)
    for name in DECODERS:
        job = random_job(name, rng)
        text = megatron.write(job)
        assert megatron.read(words(text), job.layout.degrees.num_gpus) == job, name
        megatron_parser().parse_args(words(text))
        expected = torchtitan_part(job)
        text = torchtitan.write(expected)
        if torchtitan.registered(job.sizes):
            assert torchtitan.read(words(text)) == expected, name
        elif job.layout.degrees.pipeline > 1:
            read = torchtitan.read(words(text))
            assert (read.layout, read.stages) == (expected.layout, expected.stages)


def test_models_that_are_no_decoders_are_refused() -> None:
    for name in set(MODELS) - set(DECODERS):
        with pytest.raises(PlanError, match=f"^model: {name} is not an embedding, equal transformer layers"):
            model_sizes(MODELS[name], "Megatron-LM")


def exported(name: str, layout: Layout, cluster: str = "h100_64", **sizes: int | str) -> UniformRun:
    return UniformRun(read_model(name, precision="bf16", **sizes), read_cluster(cluster), layout)


def test_the_export_of_layouts_is_the_whole_job() -> None:
    """Once it had the number of layers, the pipeline's size and its layout alone."""
    layout = Layout(Degrees(tensor=2, pipeline=8, chunks=10, context=4), 1, 8)
    planned = planned_layout(exported("llama3_70b", layout))
    export = megatron.to_megatron(planned)
    assert export.run.plan == planned.plan
    job = megatron.read(words(export.text), 64)
    assert (job.layout, job.stages) == (layout, plan_stages(planned.plan, planned.chunks))
    lines = export.text.splitlines()
    for line in (
        *("--rotary-base 500000", "--group-query-attention", "--num-query-groups 8", "--cp-comm-type a2a"),
        *("--sequence-parallel", "--use-distributed-optimizer", "--bf16", "--micro-batch-size 1"),
        *("--tensor-model-parallel-size 2", "--context-parallel-size 4", "--global-batch-size 8"),
    ):
        assert line in lines
    titan = torchtitan.to_torchtitan(planned)
    assert torchtitan.read(words(titan.text)) == titan.job
    assert "--config llama3_70b" in titan.text


def test_experts_latent_attention_and_further_tokens_are_exported() -> None:
    layout = Layout(Degrees(pipeline=2, data=4, expert=4), 1, 4, recompute="full", recomputed_layers=2)
    run = exported("deepseek_v3", layout, "h100_8", num_layers=7, num_predict_layers=1, num_experts=16)
    export = megatron.to_megatron(planned_layout(run))
    assert export.run.plan == run.plan, "it is told so"
    lines = export.text.splitlines()
    for line in (
        *("--multi-latent-attention", "--q-lora-rank 1536", "--kv-lora-rank 512", "--qk-head-dim 128"),
        *("--moe-layer-freq '([0]*3+[1]*4)'", "--moe-router-score-function sigmoid", "--num-experts 16"),
        *("--moe-router-topk-scaling-factor 2.5", "--moe-router-enable-expert-bias", "--mtp-num-layers 1"),
        *("--moe-shared-expert-intermediate-size 2048", "--ffn-hidden-size 18432", "--moe-grouped-gemm"),
        *("--moe-ffn-hidden-size 2048", "--moe-router-group-topk 4", "--qk-pos-emb-head-dim 64"),
        "--pipeline-model-parallel-layout 'Et*4|t*3mL'",
    ):
        assert line in lines, line
    assert megatron.read(words(export.text), 8) == export.job
    part = planned_layout(exported("llama3_8b", layout, "h100_8", num_layers=8), 18.0)
    titan = torchtitan.to_torchtitan(part).text
    assert "activation_checkpoint:full" in titan and "layers are shared otherwise than planned" in titan
    with pytest.raises(PlanError, match="torchtitan: MTP does not support pipeline parallelism yet"):
        torchtitan.to_torchtitan(planned_layout(run))


def test_parts_of_gpt_oss_and_weights_of_8_bits_are_exported() -> None:
    def export_of(tensor: int, zero: Literal[0, 1]) -> PlanExport:
        degrees = Degrees(tensor=tensor, data=8 // tensor, expert=8 // tensor)
        model = read_model("gpt_oss_20b", precision="mxfp8")
        run = UniformRun(model, read_cluster("b200_8"), Layout(degrees, 1, 2, zero=zero))
        return megatron.to_megatron(planned_layout(run, 1000.0))

    export = export_of(1, 1)
    there = ("--softmax-type learnable", "--quick-geglu", "--fp8-param-gather", "--normalization RMSNorm")
    assert {*there} <= {*export.text.splitlines()}
    assert not {"--swiglu", "--disable-bias-linear", "--add-qkv-bias"} & {*words(export.text)}
    assert megatron.read(words(export.text), 8) == export.job
    text = export_of(2, 0).text
    assert "--fp8-param-gather needs the distributed optimizer" in text
    assert "biases of experts need --expert-tensor-parallel-size 1" in text


def test_groups_of_micro_batches_are_timed_as_they_are_exported() -> None:
    run = exported("llama3_8b", Layout(Degrees(pipeline=4, data=2, chunks=2), 1, 18), "h100_8")
    job = megatron.to_megatron(planned_layout(run, 1000.0)).job
    assert job is not None and job.group == 6
    assert [name for name, _ in run.schedule.order(0)][:7] == 6 * ["F0"] + ["F4"]
