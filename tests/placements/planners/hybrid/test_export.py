"""Plans in the terms of other systems: read back where we can, golden text where not, and what is lost."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable
from dataclasses import replace

import pytest

from placements.cluster import read_cluster
from placements.models.parallel import LayerStrategy
from placements.models.zoo import read_model
from placements.planners.galvatron_file import galvatron_from_dict
from placements.planners.hybrid.export import (
    megatron_text,
    parallel_plan,
    to_galvatron,
    to_megatron,
    to_torchtitan,
    torchtitan_text,
)
from placements.planners.hybrid.plan import Plan, StagePlan
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.parallel_plan import PlanError

USUAL = LayerStrategy(2, 2)


def some_plan(*strategies: LayerStrategy, model: str = "gpt3_1.3b", cluster: str = "a100_8") -> Plan:
    """Return two stages of four GPUs with five layers each; the strategies are of the first layers."""
    all_of_them = (*strategies, *[USUAL] * (10 - len(strategies)))
    shape = read_model(model, num_layers=8)
    stages = tuple(
        StagePlan(range(4 * i, 4 * i + 4), range(5 * i, 5 * i + 5), all_of_them[5 * i : 5 * i + 5])
        for i in range(2)
    )
    return Plan(shape, read_cluster(cluster), stages, 32, 8)


@pytest.mark.parametrize("model", ["gpt3_1.3b", "bert_huge_32", "t5_large", "swin_huge_32", "vit_huge_32"])
@pytest.mark.parametrize("memory_gib", [8.0, 24.0])
def test_searched_plans_are_read_back_from_galvatrons_form(model: str, memory_gib: float) -> None:
    found = search_plans(
        ShapeCosts(read_model(model)), read_cluster("a100_8"), 32, PlanOptions(memory_gib=memory_gib)
    )
    assert found.plans
    for rated in found.plans:
        plan = rated.plan
        inner = [s.tensor_innermost or 1 in (s.tensor_parallel, s.data_parallel) for s in plan.strategies]
        try:
            expected = parallel_plan(plan)
        except PlanError as error:
            assert str(error).startswith("pp_division")
            continue
        exported = to_galvatron(plan)
        if not all(inner):
            continue
        read, zero = (
            galvatron_from_dict(exported.options),
            2 if any(s.zero == 1 for s in plan.strategies) else 0,
        )
        assert read == replace(
            expected,
            layers=tuple(replace(s, tensor_innermost=True, zero=s.zero or zero) for s in expected.layers),
            vocabulary=replace(expected.vocabulary, zero=expected.vocabulary.zero or zero),
            default_zero=zero,
        )


def test_galvatrons_form_by_hand() -> None:
    plan = some_plan(USUAL, LayerStrategy(1, 4, 3, "full"), LayerStrategy(4, 1))
    options, lost = to_galvatron(plan)
    assert lost == ()
    assert options == {
        "pp_deg": 2,
        "tp_sizes_enc": "1,4,2,2,2,2,2,2",
        "tp_consecutive_flags": "1,1,1,1,1,1,1,1",
        "dp_types_enc": "1,0,0,0,0,0,0,0",
        "use_sp": "0,0,0,0,0,0,0,0",
        "checkpoint": "1,0,0,0,0,0,0,0",
        "global_bsz": 32,
        "chunks": 8,
        "pp_division": "4,4",
        "pipeline_type": "pipedream_flush",
        "default_dp_type": "ddp",
        "vtp": 2,
        "vsp": 0,
        "embed_sdp": 0,
        "world_size": 8,
    }


@pytest.mark.parametrize(
    ("strategy", "lost"),
    [
        (LayerStrategy(2, 2, 1), "ZeRO-1: Galvatron has ZeRO-2"),
        (LayerStrategy(2, 2, 2), "different ZeRO stages below 3"),
        (LayerStrategy(2, 2, 0, "selective"), "selective recomputation: Galvatron recomputes whole layers"),
        (LayerStrategy(4, 1), "the output layer's strategy: Galvatron gives it the embedding's"),
    ],
)
def test_what_galvatron_loses_is_said(strategy: LayerStrategy, lost: str) -> None:
    assert any(line.startswith(lost) for line in to_galvatron(some_plan(strategy)).lost)


def test_what_galvatron_cannot_have_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^context_parallel: is above 1, .*; export another plan$"):
        to_galvatron(some_plan(LayerStrategy(2, 1, context_parallel=2)))
    with pytest.raises(PlanError, match=r"^model: wide_resnet50_8 has no transformer layer; "):
        to_megatron(of_one_stage("wide_resnet50_8"))


def of_one_stage(name: str) -> Plan:
    model = read_model(name)
    count = len(model.layers)
    stage = StagePlan(range(2), range(count), (LayerStrategy(1, 2),) * count)
    return Plan(model, read_cluster("a100_8"), (stage,), 4, 2)


def test_golden_text(golden: Callable[[str, str], None]) -> None:
    plan = some_plan(*[LayerStrategy(2, 2, 3)] * 3)
    golden("export/megatron.txt", megatron_text(to_megatron(plan)))
    golden("export/torchtitan.toml", torchtitan_text(to_torchtitan(plan)))


@pytest.mark.parametrize("model", ["gpt3_1.3b", "llama2_70b", "mixtral_8x7b"])
def test_texts_can_be_read(model: str) -> None:
    """A shell splits Megatron's arguments as they are meant; torchtitan's text is TOML."""
    plan = some_plan(model=model)
    words = shlex.split(megatron_text(to_megatron(plan)), comments=True)
    expected = [(name, value) for name, value in to_megatron(plan).options.items()]
    assert words == [str(each) for pair in expected for each in pair if each is not None]
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et*4|t*4L"
    options = tomllib.loads(torchtitan_text(to_torchtitan(plan)))
    parts = options["parallelism"]["module_fqns_per_model_part"]
    assert parts[0] == ["tok_embeddings", *(f"layers.{i}" for i in range(4))]
    assert parts[1] == [*(f"layers.{i}" for i in range(4, 8)), "norm", "output"]


def test_degrees_multiply_to_the_gpus() -> None:
    for strategy in (USUAL, LayerStrategy(4), LayerStrategy(2, 2, 3), LayerStrategy(4, sequence="ulysses")):
        plan = some_plan(*[strategy] * 10)
        megatron, titan = to_megatron(plan).options, to_torchtitan(plan).options
        model_parallel = 1
        for name in ("tensor-model", "pipeline-model", "context"):
            size = megatron[f"--{name}-parallel-size"]
            assert isinstance(size, int)
            model_parallel *= size
        assert model_parallel * strategy.data_parallel == 8
        degrees = [value for name, value in titan.items() if name.endswith("_degree")]
        product = 1
        for degree in degrees:
            assert isinstance(degree, int)
            product *= degree
        assert product == 8


def test_what_mixed_plans_lose_is_said() -> None:
    plan = some_plan(*[LayerStrategy(4)] * 3, cluster="a100_16")
    for lost in (to_megatron(plan).lost, to_torchtitan(plan).lost):
        assert lost == (
            "2 of 8 layers are shared otherwise; all are given the strategy of most",
            "embedding or output layer are shared otherwise than the layers; they are given the same",
            "8 of 16 GPUs are used; start a process for each of these",
        )
    assert "ZeRO-2" in to_megatron(some_plan(*[LayerStrategy(2, 2, 2)] * 10)).lost[0]
    assert "ZeRO-1" in to_torchtitan(some_plan(*[LayerStrategy(2, 2, 1)] * 10)).lost[0]
