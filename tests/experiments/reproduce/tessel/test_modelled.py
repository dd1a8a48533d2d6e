"""Modelled plans with a large vocabulary, and searches that do not end."""

from __future__ import annotations

import pytest

from experiments.reproduce.model_sizes import published_sizes
from experiments.reproduce.tessel.large_vocabularies import CASES, LargeVocabularyCase, iterations_s
from experiments.reproduce.tessel.search_times import ITEMS, SearchTimeOptions
from placements.models.zoo import read_model


def test_what_a_parameter_needs_decides_between_1f1b_and_1f1b_plus() -> None:
    """With 8 bytes GPT with 24B shares its table within a server, with 16 over two, which makes 1F1B slow."""

    def slower_than_plus(case: LargeVocabularyCase) -> float:
        times_s = iterations_s(case, work_limit=0.1)
        plain_s, plus_s = times_s["1F1B"], times_s["1F1B+"]
        assert plain_s is not None and plus_s is not None
        return plain_s / plus_s

    few = CASES["gpt_24b"]
    usual = few._replace(num_gpus=16, state_bytes=16)
    assert [case.model_shape.precision.optimizer_bytes for case in (few, usual)] == [4, 12]
    assert slower_than_plus(few) < 1
    assert slower_than_plus(usual) > 2


def test_after_a_search_that_does_not_end_larger_ones_are_not_tried() -> None:
    options = SearchTimeOptions(("nn_shape",), (5, 6, 7), tessel_time_limit_s=1.0, time_limit_s=1.0)
    (row,) = (row for row in ITEMS[0].rows(options) if row.metric == "search_s" and row.at is not None)
    assert row.at == 5 and row.ours is None and row.note.startswith("more than")


def test_the_smallest_mt5_has_the_tables_size_with_a_vocabulary_of_a_million() -> None:
    """Table III prints 1.8 billion and a vocabulary of half a million, with which its shape has 1.2."""
    printed, larger = (read_model("mt5_1.8b", vocab_size=n).num_parameters for n in (512_000, 1_000_000))
    assert printed == pytest.approx(1.23e9, rel=0.01)
    assert larger == pytest.approx(published_sizes("Tessel")["mt5_1.8b"].parameters * 1e9, rel=0.05)
