"""Forms of others' tables: each row is a run, predicted or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.predict.modelled_run import as_modelled
from experiments.predict.run_prediction import predict_run
from experiments.predict.run_table import NO_TABLES, read_run_folder, read_run_table, shape_of
from experiments.predict.runs.run import Run
from experiments.predict.runs.table_forms import table_forms
from placements.forms.texts import write_text
from placements.models.memory import FRAMEWORKS

MEGATRON = FRAMEWORKS["megatron"]

BRIDGE = (
    "section,Model,System,#-GPUs,Precision,GBS,MBS,Sequence Length,FSDP,TP,PP,CP,VP,EP,Tokens / sec / GPU"
)
VTRAIN = (
    "gpu,gpus,params_b,layers,hidden,heads,sequence_length,tp,pp,dp,micro_batch,global_batch,precision,"
    "schedule,measured_ms"
)
MPT = (
    "section,Model,SeqLen (T),# GPUs,GPU,MicroBatchSize,GradAccum,Throughput (T/s/GPU),Precision,"
    "Sharding Strategy,Activation Checkpointing,Activation CPUOffload"
)
TORCHTITAN = (
    "model,gpu,gpus,fsdp,tp,pp,cp,schedule,sequence_length,local_batch,global_batch,precision,compile,"
    "async_tp,recompute,tps_per_gpu,memory_gib"
)


def runs_of(folder: Path, header: str, *rows: str) -> tuple[Run, ...]:
    write_text(folder / "others.csv", "\n".join([header, *rows]) + "\n")
    return read_run_table(folder / "others.csv")


def test_a_form_has_what_its_origin_states(tmp_path: Path) -> None:
    """vTrain's runs: 16 bits, everything computed again, attention unfused, no distributed optimizer."""
    (run,) = runs_of(tmp_path, VTRAIN, "a100,64,3.6,30,3072,32,2048,2,1,32,8,512,fp16,1f1b,3975.2")
    assert run.run == "others:2"
    assert (run.num_micro_batches, run.measured_ms, run.refused) == (2, 3975.2, "")
    modelled = as_modelled(NO_TABLES, run, MEGATRON)
    assert modelled.cluster.node_bandwidth_gb_s == 100
    assert modelled.plan.common.sequence == "none"
    assert (modelled.layout.zero, modelled.layout.recompute, modelled.overlap) == (0, "full", False)
    assert modelled.model.precision.name == "half"
    assert modelled.model.num_parameters == pytest.approx(3.6e9, rel=0.03)


def test_fsdp_of_a_models_name_and_of_a_gpu_with_a_power_limit(tmp_path: Path) -> None:
    rows = "1600 Gbps RoCE,70b,2048,64,a100_80gb,8,4,410,bf16,FULL_SHARD,True,False"
    (mpt,) = runs_of(tmp_path, MPT, rows)
    assert (mpt.gpu, mpt.zero, mpt.recompute, mpt.node_bandwidth_gb_s) == ("a100", 3, "full", 200)
    assert mpt.measured_ms == pytest.approx(1e3 * 2048 * 2048 / (64 * 410))
    assert shape_of(mpt, {}).num_parameters == pytest.approx(64_862_437_376, rel=1e-5), "as in the table"
    rows = "llama31_8b,h100_96gb_500w,128,128,1,1,1,,8192,2,256,bf16,1,0,selective,6514,62.0"
    (titan,) = runs_of(tmp_path, TORCHTITAN, rows)
    modelled = as_modelled(NO_TABLES, titan, MEGATRON)
    assert modelled.cluster.whole.memory_gib == 96
    assert modelled.options.is_compiled and modelled.options.overlap_weights
    assert 1.05 < modelled.options.compute_factor < 1.3, "500 W of 700"
    assert (modelled.layout.zero, modelled.layout.shard_gpus, titan.num_micro_batches) == (3, None, 1)
    assert modelled.layout.recompute_modules == ("operators",) and titan.precision == "bf16"


@pytest.mark.parametrize(
    ("name", "gpu", "gib"),
    [
        *(("NVIDIA H100 80GB HBM3", "h100", 80), ("NVIDIA A100-SXM4-40GB", "a100_40gb", 40)),
        *(("H100 PCIe", "h100_pcie", 80), ("NVIDIA B200", "b200", 180), ("H200 SXM", "h200", 141)),
    ],
)
def test_a_gpu_may_have_the_name_of_its_driver(tmp_path: Path, name: str, gpu: str, gib: float) -> None:
    (run,) = runs_of(
        tmp_path, "run,model,gpu,gpus,sequence_length,global_batch", f"a,llama2_7b,{name},8,512,8"
    )
    assert (run.gpu, run.cluster().whole.memory_gib) == (gpu, pytest.approx(gib, rel=0.1))


def test_recipes(tmp_path: Path) -> None:
    """Megatron-Bridge's summary, with its notes in brackets; of adapters weights are frozen."""
    rows = (
        'x,LLAMA3_8B (tokendrop),DGX-H100,8,,128,1,8192,8,1,1,1,1 (5),n/a,"12,000 (9)"',
        "LoRA,LLAMA3_70B,DGX-H100,8,FP8,32,1,4096,,2,4,1,20,n/a,",
        "x,QWEN3_30B_A3B,DGX-B300,8,FP8,64,1,4096,,2,1,1,n/a,8,9000",
        "x,GPT_5,DGX-H100,8,FP8,128,1,8192,,1,1,1,n/a,n/a,",
        "x,LLAMA3_8B,DGX-H100,8,FP8,100,1,8192,,1,1,1,n/a,n/a,",
    )
    whole, adapted, experts, unknown, undivided = runs_of(tmp_path, BRIDGE, *rows)
    assert (whole.zero, whole.vp, whole.tokens_per_s_per_gpu, whole.precision) == (3, 1, 12_000, "fp8")
    assert shape_of(adapted, {}).precision.is_frozen and adapted.zero == 1
    assert experts.degrees.whole_experts and shape_of(experts, {}).precision.gradient_bytes == 2
    assert experts.cluster().nodes[0].gpus_per_node == 8
    assert "model: 'GPT_5' is not known; " in predict_run(NO_TABLES, unknown, MEGATRON).note
    assert undivided.refused.startswith("global_batch: 100 is not of whole micro-batches")


def test_recipes_with_experts(tmp_path: Path) -> None:
    """Runs of Megatron-Bridge's summary, releases 26.02 to 26.06, with nothing fitted."""
    rows = (
        "26.02,QWEN3_30B_A3B,DGX-H100,16,FP8,1024,1,4096,0,1,2,1,12,8,9058",
        "26.06,Qwen3_30B_a3B,DGX-H100,16,FP8,1024,1,4096,,1,1,1,n/a,16,8826",
        "26.04,Qwen3_30B_a3B,DGX-B200,8,MXFP8,512,4,4096,0,1,1,1,n/a,8,26859",
    )
    runs = runs_of(tmp_path, BRIDGE.replace("section", "release"), *rows)
    for run in runs:
        prediction = predict_run(NO_TABLES, run, MEGATRON)
        assert prediction.predicted_ms == pytest.approx(run.measured_ms, rel=0.15), run


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("run,gpu,gpus,sequence_length,hiden", "has an unknown column 'hiden'; did you mean hidden?"),
        ("run,gpu,sequence_length", "line 1: lacks the column 'gpus'"),
        (VTRAIN.replace("hidden", "width"), "lacks the column 'hidden' of the form vtrain"),
    ],
)
def test_a_wrong_column_is_told_in_a_line(
    refused: Callable[..., str], tmp_path: Path, header: str, why: str
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    write_text(folder / "t.csv", f"{header}\n" + ",".join("1" for _ in header.split(",")) + "\n")
    message = refused("predict", f"data={folder}")
    assert why in message and "t.csv: " in message


def test_layouts_are_said_in_several_ways(tmp_path: Path) -> None:
    """A layout of Megatron-LM, layers of the ends, and chunks by their layers."""
    header = (
        "run,model,layers,gpu,gpus,pp,vp,sequence_length,global_batch,layout,first_stage_layers,chunk_layers"
    )
    rows = [
        *("a,llama2_7b,8,h100,8,2,,512,16,Ettt|tt|tt|tL,,", "b,llama2_7b,8,h100,8,2,,512,16,,3,"),
        *("c,llama2_7b,8,h100,8,2,,512,16,,,2", "d,llama2_7b,8,h100,8,2,,512,16,Ett|tL,,"),
    ]
    with pytest.raises(ValueError, match="line 2, column chunk_layers: 3 do not divide the layers .8. of 2"):
        runs_of(tmp_path, header, "e,llama2_7b,8,h100,8,2,,512,16,,,3")
    notation, ends, chunks, wrong = runs_of(tmp_path, header, *rows)
    layouts = [as_modelled(NO_TABLES, run, MEGATRON).layout for run in (notation, ends, chunks)]
    assert [layout.chunk_layers for layout in layouts] == [(4, 2, 2, 2), (4, 6), None]
    assert [layout.degrees.chunks for layout in layouts] == [2, 1, 2]
    assert "must match num_layers 8" in predict_run(NO_TABLES, wrong, MEGATRON).note


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the shared data")
@pytest.mark.parametrize("name", ["public_runs", "measured_runs"])
def test_every_public_row_is_predicted_or_refused_with_a_reason(name: str) -> None:
    folder = read_run_folder(SHARED_DATA / name)
    assert folder.runs
    for runs in folder.tables.values():
        for run in runs[:: max(len(runs) // 8, 1)]:
            prediction = predict_run(folder, run, MEGATRON)
            assert prediction.predicted_ms is not None or prediction.note.partition("not predicted: ")[2], run
            assert "\n" not in prediction.note
    assert all(form.source for form in table_forms().values())


def test_arguments_of_megatron_lm_are_columns(tmp_path: Path) -> None:
    """A made-up model with latent attention and experts; other arguments are in a file beside the table."""
    header = (
        "family,test_case,gpu,gpus,median_iteration_s,max_allocated_gib,tensor_model_parallel_size,"
        "pipeline_model_parallel_size,expert_model_parallel_size,expert_tensor_parallel_size,micro_batch_size,"
        "global_batch_size,seq_length,num_layers,hidden_size,ffn_hidden_size,num_attention_heads,num_experts,"
        "moe_ffn_hidden_size,moe_layer_freq,multi_latent_attention,bf16,sequence_parallel,attention_backend,"
        "use_distributed_optimizer,fine_grained_activation_offloading"
    )
    row = "h100,8,0.5,9,2,2,2,1,1,16,1024,12,1024,4096,16,8,512,([0]*1+[1]*11),True,True,True,unfused,True"
    write_text(
        tmp_path / "megatron_golden_args.json.gz", '{"a": {"--hidden-dropout": 0.0, "--v-head-dim": 64}}'
    )
    rows = (f"moe,a,{row},", f"moe,b,{row},True", f"t5,c,{row},", f"gpt,d_inference,{row},")
    run, offloaded, other, inference = runs_of(tmp_path, header, *rows)
    assert (run.zero, run.attention, run.dense_layers, run.top_k, run.measured_stage) == (
        1,
        "fused",
        1,
        2,
        "last",
    )
    assert (run.kv_rank, run.head_width, run.value_width, run.dropout) == (32, 128, 64, False)
    assert run.degrees.whole_experts and run.measured_ms == 500
    prediction = predict_run(NO_TABLES, run, MEGATRON)
    stages_gib = [float(gib) for gib in prediction.gib_by_stage.split(";")]
    assert prediction.predicted_gib == pytest.approx(stages_gib[-1], abs=0.005) != max(stages_gib)
    assert offloaded.value_width == 128, "the default"
    notes = [predict_run(NO_TABLES, run, MEGATRON).note for run in (offloaded, other, inference)]
    assert "offload: tensors on the host (activations) are not modelled" in notes[0]
    assert "the family t5" in notes[1] and "generates text" in notes[2]


def test_a_power_limit_and_a_clock_lengthen_computing(tmp_path: Path) -> None:
    header = "run,model,gpu,gpus,sequence_length,num_micro_batches,power_w,clock_mhz"
    limits = {"a": ",", "b": "700,", "c": ",990", "d": "100,"}
    rows = [f"{name},llama2_7b,h100,8,512,1,{limit}" for name, limit in limits.items()]
    plain, limited, slow, too_low = runs_of(tmp_path, header, *rows)
    gpu = plain.cluster().whole.gpu
    assert [run.clock_factor(gpu) for run in (plain, limited)] == [1, 1], "700 W is the usual limit"
    assert slow.clock_factor(gpu) == pytest.approx(1 + gpu.power.compute_share * (1980 / 990 - 1))
    assert "power_w: 100 W is too low" in predict_run(NO_TABLES, too_low, MEGATRON).note
