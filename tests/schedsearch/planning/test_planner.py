"""Plans ranked by their schedules, in several shapes; what is said where none fits or a name is wrong."""

from __future__ import annotations

import re

import pytest
from told import told

from placements import PlacementError
from placements.cluster import GpusError, read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.parallel_plan import PlanError
from schedsearch.metrics import peak_memory
from schedsearch.modulo.result import Status
from schedsearch.planning.explanation import explain
from schedsearch.planning.planner import plan
from schedsearch.planning.ranking import PlanCandidate, rank
from schedsearch.planning.shape_plans import SHAPES
from schedsearch.planning.short_memory import min_memory_gib
from schedsearch.validate import validate

MODEL = read_model("gpt3_350m", num_layers=6)
FEW = PlanOptions(num_stages=(2,), num_micro_batches=(2, 4), num_plans=2)


def test_plans_are_ranked_by_their_schedules() -> None:
    found = plan(MODEL, "a100_4", 8, options=FEW, shapes=SHAPES, search_time_limit_s=0.5)
    rates = [each.samples_per_s for each in found.proposed]
    assert all(rates)
    assert rates == sorted(rates, reverse=True)  # type: ignore[type-var]
    assert {each.candidate.shape for each in found.proposed} == set(SHAPES) - {"nn_shape", "k_shape"}
    assert len({each.name for each in found.proposed}) == len(found.proposed)
    for each in found.proposed:
        assert each.ranked is not None
        assert each.ranked.schedule is not None
        assert each.candidate.placement.memory is not None
        validate(each.ranked.schedule)
        assert (peak_memory(each.ranked.schedule) <= each.candidate.placement.memory).all()
        if each.candidate.shape == "v_shape":
            assert each.ranked.iteration_ms == pytest.approx(each.rated.time_ms, rel=0.1)
    favourite = found.favourite
    assert favourite is not None
    assert favourite.candidate.shape == "v_shape"
    assert favourite.rated.time_ms == min(
        each.rated.time_ms for each in found.proposed if each.candidate.shape == "v_shape"
    )


def test_by_the_formula_nothing_is_searched() -> None:
    found = plan(MODEL, "a100_4", [4, 8], rank_by="formula")
    assert all(each.ranked is None for each in found.proposed)
    rates = [each.rated.samples_per_s for each in found.proposed]
    assert rates == sorted(rates, reverse=True)
    assert set(found.searches) == {4, 8}
    assert found.best is found.favourite


def test_gpus_of_several_sizes_have_their_own_memory() -> None:
    """Once each stage was given the least memory of all GPUs, so that no schedule fitted the larger ones."""
    options = PlanOptions(num_stages=(2,), num_micro_batches=(16,), num_plans=1)
    found = plan("gpt3_13b", "a100_8+v100_8", 32, options=options, search_time_limit_s=1.0)
    placement = found.best.candidate.placement
    assert placement.memory == ((80 - 4) * 1024, (32 - 4) * 1024)
    assert max(stage.peak_mib for stage in found.best.rated.stages) > 28 * 1024
    assert found.best.ranked is not None
    assert found.best.ranked.schedule is not None


def test_one_peak_of_memory() -> None:
    """The planner's and the schedule's peak once stood side by side, 66.1 and 72.4 GiB of one GPU."""
    options = PlanOptions(num_stages=(2,), gpus_per_stage=(2,), num_plans=4)
    found = plan(
        MODEL, "a100_4", 16, options=options, search_time_limit_s=1.0, shapes=("v_shape", "wave_shape")
    )
    for each, row in zip(found.proposed, found.rows(), strict=True):
        assert each.ranked is not None and each.ranked.schedule is not None
        placement = each.candidate.placement
        peaks = [placement.mib(peak) for peak in peak_memory(each.ranked.schedule).tolist()]
        assert list(each.peaks_mib) == peaks
        assert row["peak_memory_mib"] == max(peaks)
    said = explain(found)
    shown = f"{max(found.best.peaks_mib) / 1024:.1f}"
    assert f" {shown} of " in said.partition("## Why")[0]
    ranked = next(line for line in said.partition("## Ranking")[2].splitlines() if found.best.name in line)
    assert f"| {shown} " in ranked


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


def test_uniform_plans_alone() -> None:
    options = PlanOptions(uniform=True, num_plans=3, memory_gib=12.0)
    found = plan("gpt3_1.3b", "a100_8", 32, options=options, rank_by="formula")
    assert all(each.is_uniform for each in found.proposed)


def test_energy_at_a_deadline() -> None:
    options = PlanOptions(num_stages=(2,), gpus_per_stage=(1,), num_micro_batches=(2,))
    fastest = plan(MODEL, "a100_2", 4, options=options, search_time_limit_s=1.0).best.ranked
    assert fastest is not None
    assert fastest.iteration_ms is not None

    def energy(slowdown: float) -> float | None:
        assert fastest.iteration_ms is not None
        deadline_ms = slowdown * fastest.iteration_ms
        found = plan(
            MODEL,
            "a100_2",
            4,
            options=options,
            rank_by="energy",
            deadline_ms=deadline_ms,
            search_time_limit_s=1.0,
        )
        assert found.best.ranked is not None
        return found.best.ranked.energy_j

    soon, later, too_soon = energy(1.05), energy(1.3), energy(0.5)
    assert soon is not None
    assert later is not None
    assert 0 < later < soon
    assert too_soon is None


def test_the_least_memory_is_said_and_fits() -> None:
    tight = PlanOptions(memory_gib=4.5)
    with pytest.raises(PlanError) as caught:
        plan("bert_huge_32", "a100_2", 8, options=tight, rank_by="formula")
    message = str(caught.value)
    found = re.fullmatch(
        r"memory_gib: 4\.5 GiB less 4 in reserve are too little for bert_huge_32 on 2 GPUs; at least "
        r"(\d+\.\d) GiB or (\d+) of these GPUs would do",
        message,
    )
    assert found, message
    min_gib = float(found[1])
    assert plan("bert_huge_32", "a100_2", 8, options=PlanOptions(memory_gib=min_gib), rank_by="formula").best
    with pytest.raises(PlanError, match=f"at least {min_gib} GiB or "):
        plan(
            "bert_huge_32",
            "a100_2",
            8,
            options=PlanOptions(memory_gib=round(min_gib - 0.1, 1)),
            rank_by="formula",
        )


@pytest.mark.parametrize(
    ("model", "cluster", "gpus"), [("gpt3_13b", "a100_1", 3), ("gpt3_6.7b", "v100_2", 4)]
)
def test_the_least_number_of_gpus_is_said_and_fits(model: str, cluster: str, gpus: int) -> None:
    with pytest.raises(PlanError) as caught:
        plan(model, cluster, 8, rank_by="formula")
    kind = cluster.partition("_")[0]
    assert f"or {gpus} of these GPUs would do" in str(caught.value)
    assert plan(model, f"{kind}_{gpus}", 8, rank_by="formula").best


def test_no_number_of_gpus_is_enough() -> None:
    """One stage on one GPU is asked for, and more of them do not help."""
    options = PlanOptions(num_stages=(1,), gpus_per_stage=(1,), memory_gib=6.0)
    with pytest.raises(PlanError, match=r"GiB would do, but no number of these GPUs up to 1024$"):
        plan("gpt3_1.3b", "a100_2", 8, options=options, rank_by="formula")


def test_no_memory_is_enough_below_a_limit() -> None:
    costs, cluster = ShapeCosts(read_model("gpt3_13b")), read_cluster("a100_2")
    assert min_memory_gib(costs, cluster, [2], PlanOptions(), max_gib=64.0) is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "gpt_9"}, PlacementError, "model: 'gpt_9' is not known; "),
        ({"cluster": "b100_8"}, GpusError, "cluster: 'b100_8' in 'b100_8' is not a known GPU"),
        ({"batch": 0}, PlanError, "batch: 0 is not a whole number of samples above 0; give one"),
        ({"rank_by": "price"}, PlanError, "rank: 'price' is not known; use schedule, formula, energy"),
        ({"shapes": ("x_shape",)}, PlanError, "shapes: 'x_shape' is not known; use v_shape"),
        ({"rank_by": "energy"}, PlanError, "deadline_ms: None is not a time above 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: dict[str, object], error: type[ValueError], message: str
) -> None:
    usual: dict[str, object] = {"model": "gpt3_125m", "cluster": "a100_2", "batch": 4}
    with told(error, message):
        plan(**(usual | arguments))  # type: ignore[arg-type]


def test_shapes_that_cannot_be_are_left_out() -> None:
    options = PlanOptions(num_stages=(1, 2), num_micro_batches=(2,), num_plans=2, gpus_per_stage=(2,))
    found = plan("vit_huge_32", "a100_4", 8, options=options, shapes=SHAPES, num_chunks=20, rank_by="formula")
    assert {each.candidate.shape for each in found.proposed} == {"v_shape"}
    for line in (
        "loop_shape: of one stage there is no other shape than v_shape",
        "wave_shape 2x2, 2x4: ",
        "m_shape needs a model from an embedding to an output layer, which vit_huge_32 is not; leave it out",
        "nn_shape needs a model from an embedding over a second one to an output layer",
    ):
        assert [each.startswith(line) for each in found.left_out].count(True) == 1, found.left_out
    with pytest.raises(PlanError, match="^shapes: no plan of these can be made: m_shape needs a model from"):
        plan("vit_huge_32", "a100_4", 8, options=options, shapes=("m_shape",))


def some_candidates() -> list[PlanCandidate]:
    return [each.candidate for each in plan(MODEL, "a100_4", 8, options=FEW, rank_by="formula").proposed]


def test_interrupted_while_searching() -> None:
    """The first search is cut, the second never begins."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    first, second = some_candidates()
    ranked = rank([first, second], 5.0, on_progress=stop)
    notes = {each.candidate.name: each for each in ranked}
    assert notes[second.name].status is Status.UNKNOWN
    assert notes[second.name].note == "interrupted before its search"


def test_a_candidate_without_memory_is_last() -> None:
    first, second = some_candidates()
    without = PlanCandidate("small", "v_shape", first.placement.with_memory(1), 2, 8)
    ranked = rank([without, second], 1.0)
    assert [each.candidate.name for each in ranked] == [second.name, "small"]
    assert ranked[1].status is Status.INFEASIBLE
    assert ranked[1].samples_per_s is None
    assert "\n" not in ranked[1].note
