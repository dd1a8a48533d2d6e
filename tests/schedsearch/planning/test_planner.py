"""Plans ranked by their schedules, in several shapes; messages where none fits or a name is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from one_line_errors import raises_line
from small_profiles import write_profile

from placements.cluster import Cluster, Nodes, read_cluster
from placements.gpus import A100_SXM_80GB, GPUS
from placements.hardware import modelled_profile
from placements.measured.profile_folder import read_profiled_model
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, TreeOptions
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.profiled.layer_profile_costs import LayerProfileCosts
from placements.planners.hybrid.profiled.measured_cluster import read_measured_cluster
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers.as_run import rate
from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import Answer, SearchReport, Status
from schedsearch.core.problem import Problem
from schedsearch.energy import all_maximum_clocks, simulate_at_clocks
from schedsearch.metrics import peak_memory
from schedsearch.planning import ranking as module
from schedsearch.planning.explanation import explain, ranking
from schedsearch.planning.planner import NEAR_TIE, SHAPES, TRAINED, plan
from schedsearch.planning.plans import RankedPlan
from schedsearch.planning.ranking import rank
from schedsearch.planning.uniform_run import UniformRun
from schedsearch.searches.search import find
from schedsearch.validate import validate

MODEL = read_model("gpt3_350m", num_layers=6)
FEW = PlanOptions(num_stages=(2,), num_micro_batches=(2, 4), num_plans=2)
STRATEGIES = replace(FEW, trees=TreeOptions(PAPER))
"""Without sequence parallelism layouts do not compete."""

LARGE = read_model("gpt_11b", num_layers=8, hidden_size=1024, num_heads=16)
"""Whose table is larger than all layers."""


def test_plans_are_ranked_by_their_schedules() -> None:
    plans = plan(MODEL, "a100_4", 8, options=FEW, shapes=SHAPES, time_limit_s=12)
    rates = [row.samples_per_s or 0.0 for row in plans.proposed]
    assert all(rates)
    assert all(rate * (1 + NEAR_TIE) >= max(rates[i:]) for i, rate in enumerate(rates))
    assert {row.shape for row in plans.proposed} >= {"loop_shape", "m_shape"}
    assert len({row.name for row in plans.proposed}) == len(plans.proposed)
    for row in plans.proposed:
        assert row.schedule is not None and row.placement.memory is not None
        validate(row.schedule)
        assert (peak_memory(row.schedule) <= row.placement.memory).all()
        if row.shape == "v_shape":
            assert row.iteration_ms == pytest.approx(row.rated.time_ms, rel=0.1)


@pytest.mark.parametrize(
    ("model", "cluster", "batch", "numbers"),
    [
        ("gpt3_1.3b", "a100_4", 8, {"num_stages": (4,), "num_micro_batches": (4, 8)}),
        ("llama3_8b", "h100_8", 16, {"num_micro_batches": (4, 8)}),
        ("bert_huge_32", "v100_8", 64, {"memory_gib": 12.0, "num_micro_batches": (4, 8, 16)}),
    ],
)
def test_no_layout_and_no_searched_plan_is_faster(
    model: str, cluster: str, batch: int, numbers: dict[str, object]
) -> None:
    """By default each layer had its own strategy under 1F1B, where interleaved 1F1B was 5 % faster."""
    options = PlanOptions(**numbers)  # type: ignore[arg-type]
    plans, layouts = (
        plan(model, cluster, batch, options=options, rank_by="simulation", uniform=uniform)
        for uniform in (False, True)
    )
    fastest_ms = min(row.iteration_ms or 0.0 for row in plans.proposed)
    assert fastest_ms <= min(row.iteration_ms or 0.0 for row in layouts.proposed)
    searched = search_plans(FrameworkCosts(plans.model, TRAINED), plans.cluster, batch, options)
    assert fastest_ms <= searched.plans[0].time_ms * 1.01
    assert (plans.best.iteration_ms or 0.0) <= (1 + NEAR_TIE) * fastest_ms
    for row in (row for row in plans.proposed if row.run is not None and row.schedule is not None):
        assert row.placement.ms(row.schedule.makespan) == pytest.approx(row.iteration_ms, rel=1e-3)


def test_both_kinds_of_plans_have_one_time_and_memory() -> None:
    model, cluster = read_model("llama3_8b", precision="bf16"), read_cluster("h100_8")
    costs = FrameworkCosts(model, TRAINED)
    for degrees in (Degrees(2, 2, 2), Degrees(1, 4, 2), Degrees(4, 1, 2)):
        layout = Layout(degrees, 1, 8)
        run = UniformRun(model, cluster, layout, replace(costs.options, exchanges_apart=True), overlap=True)
        placement = planned_placement(run.plan, costs)
        schedule = HAND_MADE["one_f_one_b"](placement.with_memory(None), 8)
        assert placement.ms(schedule.makespan) == pytest.approx(run.iteration_ms, rel=1e-3)
        assert rate(run.plan, costs).time_ms == pytest.approx(run.iteration_ms, rel=0.01)
        held = [stage.peak_mib / 1024 for stage in rate(run.plan, costs).stages]
        assert held == pytest.approx(run.gib_by_stage, rel=0.02)


def test_equal_plans_are_shown_once_and_the_simplest_first() -> None:
    """Of plans within 1 % that with fewest chunks is the first."""
    options = PlanOptions(num_stages=(4,), num_micro_batches=(32,))
    plans = plan("gpt3_2.7b", "a100_4", 32, options=options, uniform=True, rank_by="simulation")
    names = [row.name for row in plans.proposed]
    assert len(set(names)) == len(names)
    assert names[:2] == ["PP4 VP4 uneven, 32x1", "PP4 VP8 uneven, 32x1"]
    rows = [row[1] for row in ranking(plans)[1:]]
    assert [row.startswith("=") for row in rows] == [False, True] + [False] * (len(rows) - 2)


def test_gpus_of_several_sizes_have_their_own_memory_and_one_peak() -> None:
    """Once the planner's and the schedule's peak stood side by side, 66.1 and 72.4 GiB of one GPU."""
    options = PlanOptions(num_stages=(2,), num_micro_batches=(16,), num_plans=1)
    plans = plan("gpt3_13b", "a100_8+v100_8", 32, options=options, rank_by="simulation")
    assert plans.left_out == ("layouts: not compared: GPUs are of several kinds",)
    best = plans.best
    assert best.placement.memory == ((80 - 4) * 1024, (32 - 4) * 1024)
    assert max(stage.peak_mib for stage in best.rated.stages) > 28 * 1024
    assert best.schedule is not None
    peaks = [best.placement.mib(peak) for peak in peak_memory(best.schedule).tolist()]
    assert list(best.peaks_mib) == peaks
    assert plans.rows()[0]["peak_memory_mib"] == max(peaks)
    for peak, said in zip(peaks, explain(plans).partition("## Stages")[2].splitlines()[2:], strict=False):
        assert f" {(peak or 0) / 1024:.1f} of " in said


def test_tokens_and_mfu_by_hand() -> None:
    """Of GPT-3 1.3B: 72 l s h^2 (1 + s / 6 h + v / 12 l h) operations of a sample (Narayanan, Eq. 4.3)."""
    best = plan("gpt3_1.3b", "h100_4", 16, rank_by="simulation")
    layers, hidden, tokens, vocabulary = 24, 2048, 2048, 51200
    flops = 72 * layers * tokens * hidden**2
    flops *= 1 + tokens / (6 * hidden) + vocabulary / (12 * layers * hidden)
    for row in best.rows():
        rate = row["samples_per_s"]
        gpus = row["stages"] * row["gpus_per_stage"]
        assert row["tokens_per_s_per_gpu"] == pytest.approx(rate * tokens / gpus)
        assert row["mfu_percent"] == pytest.approx(100 * flops * rate / (gpus * 989.4e12), rel=0.01)
        assert row["tokens_per_kwh"] == pytest.approx(3.6e6 / row["j_per_token"])
    chain = next(row for row in best.proposed if row.run is None and row.schedule is not None)
    profile = modelled_profile(chain.placement, GPUS["h100"])
    clocks = all_maximum_clocks(chain.schedule, profile)
    energy_mj = simulate_at_clocks(chain.schedule, profile, clocks).energy_mj
    assert chain.row(best.model)["j_per_token"] == pytest.approx(energy_mj / 1e3 / (16 * tokens))
    images = plan("vit_huge_32", "a100_2", 8, rank_by="simulation").rows()[0]
    assert images["tokens_per_s_per_gpu"] is None
    assert 0 < images["mfu_percent"] < 50.1


def test_too_little_memory_is_said() -> None:
    message = (
        "memory_gib: 4.5 GiB less 4 in reserve are too little for bert_huge_32 on 2 GPUs; use more or larger "
        "GPUs, recomputation or a smaller batch"
    )
    with raises_line(PlanError, message):
        plan("bert_huge_32", "a100_2", 8, options=PlanOptions(memory_gib=4.5), rank_by="simulation")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch: 0 is not a whole number of samples above 0; give one"),
        ({"rank_by": "price"}, "rank: 'price' is not known; use schedule, simulation"),
        ({"shapes": ("x_shape",)}, "shapes: 'x_shape' is not known; use v_shape"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"model": "gpt3_125m", "cluster": "a100_2", "batch": 4}
    with raises_line(PlanError, message):
        plan(**(usual | arguments))  # type: ignore[arg-type]


def test_shapes_that_cannot_be_are_left_out() -> None:
    options = PlanOptions(num_stages=(2,), num_micro_batches=(2,), num_plans=2, gpus_per_stage=(2,))
    plans = plan("vit_huge_32", "a100_4", 8, options=options, rank_by="simulation", shapes=SHAPES)
    assert {row.shape for row in plans.proposed} <= {"v_shape", "loop_shape"}
    for line in (
        "m_shape needs a model from an embedding to an output layer, which vit_huge_32 is not; leave it out",
        "nn_shape needs a model from an embedding over a second one to an output layer",
    ):
        assert [note.startswith(line) for note in plans.left_out].count(True) == 1, plans.left_out
    with pytest.raises(PlanError, match="^shapes: no plan of these can be made: m_shape needs a model from"):
        plan("vit_huge_32", "a100_4", 8, options=options, shapes=("m_shape",))


def some_plans() -> tuple[RankedPlan, ...]:
    return plan(MODEL, "a100_4", 8, options=STRATEGIES, rank_by="simulation").proposed


def test_interrupted_while_searching() -> None:
    """The first search is cut, the second never begins and keeps its time."""
    stops = []

    def stop(*_: object) -> None:
        if not stops:
            stops.append(True)
            raise KeyboardInterrupt

    first, second = (replace(row, status=None, schedule=None) for row in some_plans())
    (left,) = (row for row in rank([first, second], 5.0, on_progress=stop) if row.name == second.name)
    assert left == second


def test_a_plan_without_memory_has_no_schedule() -> None:
    first, second = some_plans()
    without = replace(
        first, shape="small", placement=first.placement.with_memory(1), status=None, schedule=None
    )
    small, other = rank([without, second], 1.0)
    assert (small.samples_per_s, small.status) == (None, Status.INFEASIBLE) and "\n" not in small.note
    assert other.samples_per_s


def test_a_limit_of_time_is_of_planning_and_all_searches_together(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def counted(request: Problem, report: SearchReport) -> Answer:
        assert request.time_limit_s is not None
        given.append(request.time_limit_s)
        return replace(find(replace(request, time_limit_s=0.01), report), seconds=request.time_limit_s)

    monkeypatch.setattr(module, "find", counted)
    plan(MODEL, "a100_4", 8, options=STRATEGIES, time_limit_s=8.0, shapes=("v_shape", "m_shape"))
    assert given and sum(given) <= 8.0


def test_a_vocabulary_on_all_gpus_is_explained_drawn_and_has_its_own_time() -> None:
    """Once an M-shape was taken for as fast as its layers without the vocabulary."""
    options = PlanOptions(num_plans=1, num_micro_batches=(8,))
    plans = plan(LARGE, "v100_4", 32, options=options, shapes=SHAPES, rank_by="simulation")
    plans = replace(plans, proposed=tuple(sorted(plans.proposed, key=lambda row: row.shape != "m_shape")))
    best = plans.best
    assert best.rated.time_ms > best.rated.shared.iteration_ms(8) + 8 * max(
        stage.time_ms for stage in best.rated.stages
    )
    assert best.samples_per_s == pytest.approx(32e3 / best.rated.time_ms)
    assert "\n- on all GPUs besides: 1 embedding, 1 output: " in explain(plans)
    drawn = {text.get_text() for text in plans.plot().axes[0].texts}
    assert {"1 embedding", "1 output"} <= drawn
    # The peaks count what is on all GPUs, as the placement does.
    held_mib = best.placement.static_memory or ()
    assert all(peak >= held for peak, held in zip(best.peaks_mib, held_mib, strict=True))


def test_a_shape_fits_where_a_chain_does_not() -> None:
    """No stage has memory for the whole table and its share of the layers."""
    options = PlanOptions(num_plans=1, num_micro_batches=(8, 16, 32), memory_gib=20.0, gpus_per_stage=(1,))
    plans = plan(LARGE, "v100_4", 32, options=options, shapes=("v_shape", "m_shape"), rank_by="simulation")
    assert [row.shape for row in plans.proposed] == ["m_shape"]
    assert plans.left_out[0].startswith("v_shape: memory_gib: 20 GiB less 4 in reserve are too little")


def test_a_file_has_the_record_of_its_gpu() -> None:
    gpu = replace(A100_SXM_80GB, name="mine", memory_gib=60.0)
    plans = plan(MODEL, Cluster((Nodes(gpu, 1, 4),), 1.0), 8, options=FEW, rank_by="simulation")
    text = json.dumps(plans.to_dict())
    assert '"name": "mine"' in text and '"memory_gib": 60.0' in text


def test_measured_layers_have_an_m_shape(tmp_path: Path) -> None:
    known = read_profiled_model(write_profile(tmp_path / "profile"), "toy")
    where = read_measured_cluster("A100-40_2", known)
    costs = LayerProfileCosts(known, where)
    plans = plan(costs.model, where.cluster, 8, costs=costs, shapes=("m_shape",), rank_by="simulation")
    best = plans.best
    assert [layer.name for layer in best.rated.shared.layers] == ["embedding", "head"]
    assert [layer.name for layer in best.rated.plan.model.layers] == ["block", "block"]
