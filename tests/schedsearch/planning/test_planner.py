"""Plans ranked by their schedules, in several shapes; what is said where none fits or a name is wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from told import told

from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.uniform import Degrees, Layout
from placements.trainers.as_run import rate
from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import Answer, SearchReport, Status
from schedsearch.core.problem import Problem
from schedsearch.metrics import peak_memory
from schedsearch.planning import ranking as module
from schedsearch.planning.explanation import explain, ranking
from schedsearch.planning.planner import NEAR_TIE, TRAINED, plan
from schedsearch.planning.plans import RankedPlan
from schedsearch.planning.ranking import rank
from schedsearch.planning.shape_plans import SHAPES
from schedsearch.planning.uniform_run import UniformRun
from schedsearch.searches.methods import find
from schedsearch.validate import validate

MODEL = read_model("gpt3_350m", num_layers=6)
FEW = PlanOptions(num_stages=(2,), num_micro_batches=(2, 4), num_plans=2)


def test_plans_are_ranked_by_their_schedules() -> None:
    found = plan(MODEL, "a100_4", 8, options=FEW, shapes=SHAPES, time_limit_s=12)
    rates = [each.samples_per_s or 0.0 for each in found.proposed]
    assert all(rates)
    assert is_falling(rates)
    assert {each.shape for each in found.proposed} == set(SHAPES) - {"nn_shape", "k_shape"}
    assert len({each.name for each in found.proposed}) == len(found.proposed)
    for each in found.proposed:
        assert each.schedule is not None and each.placement.memory is not None
        validate(each.schedule)
        assert (peak_memory(each.schedule) <= each.placement.memory).all()
        if each.shape == "v_shape":
            assert each.iteration_ms == pytest.approx(each.rated.time_ms, rel=0.1)


def is_falling(rates: list[float]) -> bool:
    """Whether no rate is below a later one by more than a near tie."""
    return all(rate * (1 + NEAR_TIE) >= max(rates[i:]) for i, rate in enumerate(rates))


def test_the_best_of_both_planners_is_the_first() -> None:
    """By default each layer had its own strategy under 1F1B, where interleaved 1F1B was 5 % faster."""
    options = PlanOptions(num_stages=(4,), num_micro_batches=(4, 8))
    found, alone = (
        plan("gpt3_1.3b", "a100_4", 8, options=options, rank_by="formula", planner=planner)
        for planner in (None, "hybrid")
    )
    assert (found.best.samples_per_s or 0.0) > 1.05 * (alone.best.samples_per_s or 0.0)
    assert found.best.shape == "loop_shape" and " VP" in found.best.name
    assert {each.name for each in alone.proposed} <= {each.name for each in found.proposed}
    (layout,) = [each for each in found.layouts[8].plans if each.run is found.best.run]
    assert layout.schedule is not None and layout.run is not None
    assert validate(layout.schedule).placement == found.best.placement
    makespan_ms = layout.placement.ms(layout.schedule.makespan)
    assert makespan_ms == pytest.approx(layout.run.iteration_ms, rel=1e-3)


def test_both_planners_give_a_plan_one_time_and_memory() -> None:
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
    """Of plans within 1 % that with fewest chunks is the first, or the fastest if it is the user's own."""
    options = PlanOptions(num_stages=(4,), num_micro_batches=(32,))
    own = Layout(Degrees(1, 4, 1, chunks=8), 1, 32)
    for mine, first, equal in (((), "PP4 VP4, 32x1", "PP4 VP8, 32x1"), ((own,), "PP4 VP8, 32x1", None)):
        found = plan("gpt3_2.7b", "a100_4", 32, options=options, planner="layouts", own=mine)
        names = [each.name for each in found.proposed]
        assert len(set(names)) == len(names) and names[0] == first == found.best.name
        rows = [row[1] for row in ranking(found)[1:]]
        assert [row.startswith("=") for row in rows] == [False, True] + [False] * (len(rows) - 2)
        assert equal in (None, names[1])


def test_gpus_of_several_sizes_have_their_own_memory_and_one_peak() -> None:
    """Once the planner's and the schedule's peak stood side by side, 66.1 and 72.4 GiB of one GPU."""
    options = PlanOptions(num_stages=(2,), num_micro_batches=(16,), num_plans=1)
    found = plan("gpt3_13b", "a100_8+v100_8", 32, options=options, time_limit_s=20)
    best = found.best
    assert best.placement.memory == ((80 - 4) * 1024, (32 - 4) * 1024)
    assert max(stage.peak_mib for stage in best.rated.stages) > 28 * 1024
    assert best.schedule is not None
    peaks = [best.placement.mib(peak) for peak in peak_memory(best.schedule).tolist()]
    assert list(best.peaks_mib) == peaks
    assert found.rows()[0]["peak_memory_mib"] == max(peaks)
    for peak, said in zip(peaks, explain(found).partition("## Stages")[2].splitlines()[2:], strict=False):
        assert f" {(peak or 0) / 1024:.1f} of " in said


def test_tokens_and_mfu_by_hand() -> None:
    """Of GPT-3 1.3B: 72 l s h^2 (1 + s / 6 h + v / 12 l h) operations of a sample (Narayanan, Eq. 4.3)."""
    best = plan("gpt3_1.3b", "h100_4", 16, rank_by="formula")
    layers, hidden, tokens, vocabulary = 24, 2048, 2048, 51200
    flops = 72 * layers * tokens * hidden**2
    flops *= 1 + tokens / (6 * hidden) + vocabulary / (12 * layers * hidden)
    for row in best.rows():
        rate = row["samples_per_s"]
        gpus = row["stages"] * row["gpus_per_stage"]
        assert row["tokens_per_s_per_gpu"] == pytest.approx(rate * tokens / gpus)
        assert row["mfu_percent"] == pytest.approx(100 * flops * rate / (gpus * 989.4e12), rel=0.01)
    images = plan("vit_huge_32", "a100_2", 8, rank_by="formula").rows()[0]
    assert images["tokens_per_s_per_gpu"] is None
    assert 0 < images["mfu_percent"] < 50.1


def test_the_least_memory_is_said_and_fits() -> None:
    tight = PlanOptions(memory_gib=4.5)
    with pytest.raises(PlanError) as caught:
        plan("bert_huge_32", "a100_2", 8, options=tight, rank_by="formula")
    message = str(caught.value)
    found = re.fullmatch(
        r"memory_gib: 4\.5 GiB less 4 in reserve are too little for bert_huge_32 on 2 GPUs; at least "
        r"(\d+\.\d) GiB, or more GPUs, would do",
        message,
    )
    assert found, message
    min_gib = float(found[1])
    assert plan("bert_huge_32", "a100_2", 8, options=PlanOptions(memory_gib=min_gib), rank_by="formula").best
    with pytest.raises(PlanError, match=f"at least {min_gib} GiB, or "):
        plan(
            "bert_huge_32",
            "a100_2",
            8,
            options=PlanOptions(memory_gib=round(min_gib - 0.1, 1)),
            rank_by="formula",
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch: 0 is not a whole number of samples above 0; give one"),
        ({"rank_by": "price"}, "rank: 'price' is not known; use schedule, formula"),
        ({"shapes": ("x_shape",)}, "shapes: 'x_shape' is not known; use v_shape"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"model": "gpt3_125m", "cluster": "a100_2", "batch": 4}
    with told(PlanError, message):
        plan(**(usual | arguments))  # type: ignore[arg-type]


def test_shapes_that_cannot_be_are_left_out() -> None:
    options = PlanOptions(num_stages=(1, 2), num_micro_batches=(2,), num_plans=2, gpus_per_stage=(2,))
    usual = {"options": options, "rank_by": "formula", "planner": "hybrid"}
    found = plan("vit_huge_32", "a100_4", 8, shapes=SHAPES, num_chunks=20, **usual)
    assert {each.shape for each in found.proposed} == {"v_shape"}
    for line in (
        "loop_shape: of one stage there is no other shape than v_shape",
        "wave_shape TP2 PP2 mixed, 2x4: ",
        "m_shape needs a model from an embedding to an output layer, which vit_huge_32 is not; leave it out",
        "nn_shape needs a model from an embedding over a second one to an output layer",
    ):
        assert [each.startswith(line) for each in found.left_out].count(True) == 1, found.left_out
    with pytest.raises(PlanError, match="^shapes: no plan of these can be made: m_shape needs a model from"):
        plan("vit_huge_32", "a100_4", 8, options=options, shapes=("m_shape",))


def some_plans() -> tuple[RankedPlan, ...]:
    return plan(MODEL, "a100_4", 8, options=FEW, rank_by="formula", planner="hybrid").proposed


def test_interrupted_while_searching() -> None:
    """The first search is cut, the second never begins and keeps the time of its formula."""
    told = []

    def stop(*_: object) -> None:
        if not told:
            told.append(True)
            raise KeyboardInterrupt

    first, second = some_plans()
    (left,) = (each for each in rank([first, second], 5.0, on_progress=stop) if each.name == second.name)
    assert left == second


def test_a_plan_without_memory_is_last() -> None:
    first, second = some_plans()
    without = replace(first, shape="small", placement=first.placement.with_memory(1))
    ranked = rank([without, second], 1.0)
    assert [each.name for each in ranked] == [second.name, without.name]
    small = ranked[1]
    assert (small.samples_per_s, small.status) == (None, Status.INFEASIBLE) and "\n" not in small.note


def test_a_limit_of_time_is_of_the_planners_and_all_searches_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def counted(request: Problem, report: SearchReport) -> Answer:
        assert request.time_limit_s is not None
        given.append(request.time_limit_s)
        return replace(find(replace(request, time_limit_s=0.01), report), seconds=request.time_limit_s)

    monkeypatch.setattr(module, "find", counted)
    plan(MODEL, "a100_4", 8, options=FEW, planner="hybrid", time_limit_s=8.0)
    assert given and sum(given) <= 8.0
