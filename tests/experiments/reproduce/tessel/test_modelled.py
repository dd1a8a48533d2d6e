"""What is modelled: stages with a large embedding, joined blocks, Flava; and searches that do not end."""

from __future__ import annotations

import pytest

from experiments.reproduce.item import Row
from experiments.reproduce.model_sizes import published_sizes
from experiments.reproduce.tessel.flava_inference import (
    FlavaTimes,
    k_shape_placement,
    latency_ms,
    v_shape_placement,
)
from experiments.reproduce.tessel.run_times import played_s
from experiments.reproduce.tessel.search_times import FIGURE_9, SearchCostOptions
from experiments.reproduce.tessel.throughput import PAPER_CASES
from experiments.reproduce.tessel.vocabulary_plans import (
    CASES,
    LargeVocabularyCase,
    cluster_of,
    model_of,
    planned,
    whole_stages,
)
from placements import Block, Kind, Placement
from placements.models.zoo import read_model
from runtime.virtual.rules import Communication
from schedsearch.baselines import HAND_MADE
from schedsearch.schedule import as_soon_as_possible


def split_v_shape() -> Placement:
    """Two stages on two devices, the first of two blocks each way."""
    blocks = [
        Block("F0", Kind.F, (0,), 2, 1),
        Block("F1", Kind.F, (0,), 3, 2, ("F0",)),
        Block("F2", Kind.F, (1,), 5, 3, ("F1",)),
        Block("B2", Kind.B, (1,), 10, -3, ("F2",)),
        Block("B1", Kind.B, (0,), 6, -2, ("B2",)),
        Block("B0", Kind.B, (0,), 4, -1, ("B1",)),
    ]
    transfer = (("F1", "F2", 1), ("B2", "B1", 2))
    return Placement("split", 2, tuple(blocks), 1.0, transfer=transfer)


def test_blocks_on_the_same_devices_become_one() -> None:
    split = split_v_shape()
    whole = whole_stages(split)
    assert [(b.name, b.devices, b.time, b.memory) for b in whole.blocks] == [
        ("F0", (0,), 5, 3),
        ("F2", (1,), 5, 3),
        ("B2", (1,), 10, -3),
        ("B0", (0,), 10, -3),
    ]
    assert whole.transfer_time("F0", "F2") == 1 and whole.transfer_time("B2", "B0") == 2
    one = [
        as_soon_as_possible(p, 1, [[(b.name, 0) for b in p.on(d)] for d in range(2)]) for p in (split, whole)
    ]
    assert one[0].makespan == one[1].makespan
    assert HAND_MADE["one_f_one_b"](whole, 4).num_micro_batches == 4


def test_what_a_parameter_needs_decides_between_1f1b_and_1f1b_plus() -> None:
    """With 8 bytes GPT with 24B shares its table within a server, with 16 over two, which makes 1F1B slow."""

    def slower_than_plus(case: LargeVocabularyCase) -> float:
        ordinary, shared = planned(case)
        assert ordinary is not None and shared is not None
        plain, plus = ordinary.by_hand("one_f_one_b"), shared.by_hand("one_f_one_b_plus")
        assert plain is not None and plus is not None
        return ordinary.seconds(plain.makespan) / shared.seconds(plus.makespan)

    few, usual = PAPER_CASES["gpt_24b"], CASES["gpt_24b"]
    assert [model_of(each).precision.optimizer_bytes for each in (few, usual)] == [4, 12]
    assert slower_than_plus(few) < 1
    assert slower_than_plus(usual) > 2


def test_every_v_shape_has_a_1f1b_and_blocking_is_never_faster() -> None:
    ordinary, shared = planned(CASES["mt5_1.8b"])
    assert ordinary is not None and shared is not None
    assert ordinary.by_hand("one_f_one_b") is not None
    schedule = shared.searched(2.5)
    assert schedule is not None
    plan_s = shared.seconds(schedule.makespan)
    blocking_s, directed_s = (
        played_s(shared, schedule, how) for how in (Communication.BLOCKING, Communication.DIRECTED)
    )
    assert plan_s <= directed_s <= blocking_s


def test_each_case_has_its_vocabulary() -> None:
    for case in (*CASES.values(), *PAPER_CASES.values()):
        assert cluster_of(case).num_gpus == case.num_gpus
        assert len(model_of(case).runs) == {"m_shape": 3, "nn_shape": 5}[case.shape]


def test_flavas_placements_have_all_its_work() -> None:
    times = FlavaTimes(samples=2)
    chained, branched = v_shape_placement(times), k_shape_placement(times)
    everything_ms = times.sum_ms(times.model.chained.layers)
    assert sum(chained.ms(block.time) for block in chained.blocks) == pytest.approx(everything_ms, rel=1e-3)
    branches_ms = sum(times.sum_ms(branch.layers) for branch in times.model.branches)
    joined = next(block for block in branched.blocks if len(block.devices) == 4)
    alone = [block for block in branched.blocks if len(block.devices) == 1]
    assert sum(branched.ms(block.time) for block in alone) == pytest.approx(branches_ms, rel=1e-3)
    assert len(joined.after) == 2
    assert branched.ms(joined.time) == pytest.approx(times.sum_ms(times.model.layers, 4), rel=1e-3)


def test_the_latency_is_that_of_the_longest_micro_batch() -> None:
    placement = v_shape_placement(FlavaTimes(samples=1))
    alone, several = (latency_ms(HAND_MADE["gpipe"](placement, number)) for number in (1, 6))
    path_ms = placement.ms(
        sum(block.time for block in placement.blocks) + sum(ticks for _, _, ticks in placement.transfer)
    )
    assert alone == pytest.approx(path_ms)
    assert several >= alone


def test_after_a_search_that_does_not_end_larger_ones_are_not_tried() -> None:
    options = SearchCostOptions(("nn_shape",), (5, 6, 7), tessel_time_limit_s=1.0, time_limit_s=1.0)
    notes = [row.note for row in FIGURE_9.rows(options) if row.metric == "search_s" and row.at is not None]
    assert notes[0].startswith("more than")
    assert notes[1:] == ["not tried, as fewer took too long"] * 2


def test_a_search_that_was_ended_too_early_shows_nothing() -> None:
    def row(case: str, ours: float | None, bound: float | None = None) -> Row:
        note = "" if bound is None else f"more than {bound:g}"
        return Row("of 4", "over_tessels_search_s", ours, bound=bound, case=case, note=note)

    shown = [row("v_shape", 3.0), row("m_shape", None, 7.44)]
    assert FIGURE_9.trends(shown)[0].holds
    assert not FIGURE_9.trends([*shown, row("nn_shape", None, 0.436)])[0].holds


def test_the_smallest_mt5_has_the_tables_size_with_a_vocabulary_of_a_million() -> None:
    """Table III prints 1.8 billion and a vocabulary of half a million, with which its shape has 1.2."""
    own, larger = (read_model("mt5_1.8b", vocab_size=size).num_parameters for size in (512_000, 1_000_000))
    assert own == pytest.approx(1.23e9, rel=0.01)
    assert larger == pytest.approx(published_sizes("Tessel")["mt5_1.8b"].parameters * 1e9, rel=0.05)
