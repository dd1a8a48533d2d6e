"""Exported files read by the frameworks themselves: megatron-core 0.16 and torchtitan 0.3.0, where installed.

``pip install megatron-core==0.16.0 torchtitan==0.3.0`` beside this project, then run this file; see
`docs/concepts/megatron.md`. Nothing here runs without them.
"""

from __future__ import annotations

import importlib
import shlex
from dataclasses import fields, make_dataclass
from typing import Any

import pytest
import yaml
from published_layouts import PUBLISHED

from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers import megatron, torchtitan
from placements.trainers.job import TrainerJob, model_sizes, plan_letters
from placements.trainers.layout import LayoutError, even_layout
from placements.trainers.megatron_layout import check_megatron, read_notation, write_notation
from placements.trainers.torchtitan import write_parts
from placements.trainers.words import given
from schedsearch.traces.megatron_log import read_log


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")


@pytest.fixture
def theirs() -> Any:
    """The class of megatron-core that reads a layout."""
    return module("megatron.core.transformer.pipeline_parallel_layer_layout").PipelineParallelLayerLayout


LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


@pytest.mark.parametrize(("text", "num_devices", "num_layers", "num_mtp"), PUBLISHED)
def test_megatron_reads_what_we_write(
    text: str, num_devices: int, num_layers: int, num_mtp: int, theirs: Any
) -> None:
    ours = read_notation(text, num_devices)
    parsed = theirs(write_notation(ours), num_devices)
    parsed.validate_layer_layout(num_layers, num_mtp or None)
    for i, stage in enumerate(ours.stages):
        chunk, rank = divmod(i, num_devices)
        assert "".join(LETTERS[part.name] for part in parsed.layout[rank][chunk]) == stage


@pytest.mark.parametrize(
    ("text", "num_layers"), [("tE|tL", 2), ("Et|tmL", 2), ("Et|tx|", 2), ("Et|t|L", 2), ("Ettm|mL", 2)]
)
def test_megatron_refuses_what_we_refuse_in_the_same_words(text: str, num_layers: int, theirs: Any) -> None:
    num_mtp = text.count("m") or None if text not in ("Et|tmL",) else None
    with pytest.raises(AssertionError) as their_error:
        theirs(text, 2).validate_layer_layout(num_layers, num_mtp)
    with pytest.raises(LayoutError) as our_error:
        check_megatron(read_notation(text, 2), num_layers, num_mtp)
    words = str(their_error.value).split("(")[0].strip()
    assert words in str(our_error.value)


def test_torchtitan_splits_a_model_by_our_lists() -> None:
    titan = module("torchtitan.distributed.pipeline_parallel")
    torch = module("torch")
    even = even_layout(2, 2, "E" + "t" * 8 + "L")
    assert even is not None
    lists = write_parts(even)
    theirs = titan._generate_llm_fqn_per_model_part(4, 8, 0, 0)
    assert lists == theirs
    model = torch.nn.Module()
    model.tok_embeddings = torch.nn.Embedding(8, 4)
    model.layers = torch.nn.ModuleDict({str(i): torch.nn.Linear(4, 4) for i in range(8)})
    model.norm, model.lm_head = torch.nn.LayerNorm(4), torch.nn.Linear(4, 8)
    for names in lists:
        part = titan._split_module(model, names)
        kept = [name for name, child in part.named_children() if name != "layers" and child is not None]
        kept += [f"layers.{name}" for name in part.layers]
        assert sorted(kept) == sorted(names)


def test_torchtitans_command_line_takes_our_flags() -> None:
    """By torchtitan's rules for tyro, without a model, which needs many more packages."""
    manager, configs, tyro = module("torchtitan.config.manager"), module("torchtitan.config"), module("tyro")
    manager.ConfigManager()  # which adds its rules
    for degrees in (
        Degrees(2, 2, 8, 2),
        Degrees(4, 4, 4, chunks=2, whole_experts=True, expert=8),
        Degrees(data=8),
    ):
        job = job_of("qwen3_30b_a3b", degrees)
        *words, checkpoint = shlex.split(torchtitan.write(job), comments=True)[4:]
        assert checkpoint == "activation_checkpoint:none"
        kinds = [("parallelism", configs.ParallelismConfig), ("training", configs.TrainingConfig)]
        config = tyro.cli(make_dataclass("Job", kinds), args=words, registry=manager.custom_registry)
        parallelism, training = config.parallelism, config.training
        if degrees.pipeline > 1:
            assert parallelism.module_fqns_per_model_part == write_parts(job.stages)
            assert parallelism.pipeline_parallel_schedule == ("1F1B", "Interleaved1F1B")[degrees.chunks - 1]
            assert training.local_batch_size == 8
        assert parallelism.pipeline_parallel_degree == degrees.pipeline
        assert (parallelism.tensor_parallel_degree, parallelism.context_parallel_degree) == (
            degrees.tensor,
            degrees.context,
        )
        assert parallelism.expert_parallel_degree == degrees.expert
        assert parallelism.enable_sequence_parallel
        assert (training.seq_len, training.global_batch_size) == (4096, 8 * degrees.data)


def job_of(name: str, degrees: Degrees) -> TrainerJob:
    """Return a job of 8 micro-batches."""
    model = read_model(name, precision="bf16")
    stages = even_layout(degrees.pipeline, degrees.chunks, "".join(plan_letters(model)))
    if stages is None:
        stages = read_notation("Et*20|t*14|t*14|t*13L", 4)
    sizes = model_sizes(model, "")
    return TrainerJob(stages=stages, sizes=sizes, layout=Layout(degrees, 1, 8))


NAMES = {
    "num_experts": "num_moe_experts",
    "swiglu": "gated_linear_unit",
    "norm_epsilon": "layernorm_epsilon",
    "fp8_format": "fp8",
}
"""Fields of megatron-core's configs that have other names than the arguments."""


@pytest.mark.parametrize("name", ["llama3_70b", "deepseek_v3", "qwen3_30b_a3b", "gpt_oss_20b", "gpt3_13b"])
def test_megatrons_configs_take_our_arguments(name: str, theirs: Any) -> None:
    """The script's parser is not in the package; its arguments are fields of configs, which check them."""
    configs, torch = module("megatron.core.transformer.transformer_config"), module("torch")
    experts = 4 if MODELS[name].layers[-2].num_routes else 1
    job = job_of(name, Degrees(2, 4, 4, expert=experts, whole_experts=experts > 1))
    flags = given(shlex.split(megatron.write(job), comments=True))
    kind = configs.MLATransformerConfig if "--multi-latent-attention" in flags else configs.TransformerConfig
    known = {field.name for field in fields(kind)}
    values: dict[str, Any] = {"pipeline_dtype": torch.bfloat16}
    for flag, words in flags.items():
        field = NAMES.get(flag[2:].replace("-", "_"), flag[2:].replace("-", "_"))
        if field in known:
            values[field] = yaml.safe_load(words[0]) if words else True
    values["add_bias_linear"] = "--disable-bias-linear" not in flags
    if name == "deepseek_v3":
        values["moe_layer_freq"] = [0] * 3 + [1] * 58
    if name == "gpt_oss_20b":
        values["window_size"] = tuple(map(int, values["window_size"].split(",")))
    layout = theirs(flags["--pipeline-model-parallel-layout"][0], 4)
    config = kind(**values | {"pipeline_model_parallel_layout": layout})
    assert (config.num_layers, config.hidden_size) == (job.sizes["num_layers"], job.sizes["hidden_size"])
    assert config.num_moe_experts == job.sizes.get("num_experts")
    assert config.expert_tensor_parallel_size == (1 if experts > 1 else config.tensor_model_parallel_size)


def test_we_read_what_megatrons_timers_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their text of an iteration of 4 micro-batches, below arguments as its training script prints them."""
    timers, torch = module("megatron.core.timers").Timers(2, "all"), module("torch")
    seconds = torch.tensor([[0.016, 0.032], [0.016, 0.032], [0.024, 0.04]])
    monkeypatch.setattr(timers, "_get_elapsed_time_all_ranks", lambda *_: seconds)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *_: 3)
    arguments = {"num_layers": 6, "pipeline_model_parallel_size": 3, "data_parallel_size": 1}
    arguments |= {"global_batch_size": 4, "micro_batch_size": 1}
    text = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in arguments.items())
    text += timers.get_all_timers_string(["forward-compute", "backward-compute"])
    rank_times = read_log(text).rank_times
    assert rank_times.layout.of_rank == ("Ett", "tt", "ttL")
    assert rank_times.forward_ms == pytest.approx((4, 4, 6))
    assert rank_times.backward_ms == pytest.approx((8, 8, 10))
