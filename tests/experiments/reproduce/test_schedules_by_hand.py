"""The table of schedules by hand: its cases, its rows, and what it concludes of them."""

from __future__ import annotations

import pytest

from experiments.config.options import OptionError
from experiments.reproduce.item import Row
from experiments.reproduce.schedules_by_hand.bubbles import BY_HAND, ByHandOptions


def test_a_placement_is_looked_at_in_the_memory_of_each_of_its_schedules() -> None:
    cases = ["V, memory 4", "V, memory 7", "X, memory 4"]
    assert list(BY_HAND.cases(ByHandOptions(placements=("V", "X")))) == cases


def test_known_bubbles_stand_beside_the_searched_one() -> None:
    options = ByHandOptions(num_micro_batches=(6, 16), placements=("X",), work_limit=10.0)
    rows = BY_HAND.rows(options, "X, memory 4")
    found = {(row.label, row.metric): row.ours for row in rows}
    assert found["chimera", "bubble_rate_of_6"] == pytest.approx(1 - 18 / 25)
    assert found["chimera", "bubble_rate_of_16"] == pytest.approx(1 - 48 / 58)
    assert found["searched", "bubble_rate_of_6"] == pytest.approx(1 - 18 / 22)  # proved elsewhere
    (trend,) = BY_HAND.trends(rows)
    assert trend.holds
    table = BY_HAND.files(rows)["bubbles.csv"].splitlines()
    assert table[0] == "placement,memory,schedule,bubble_rate_of_6,bubble_rate_of_16"
    assert "X,4,chimera,0.2800,0.1724" in table


def test_a_schedule_that_beats_the_searched_one_is_seen() -> None:
    rows = [Row("one_f_one_b", "b", 0.1), Row("searched", "b", 0.2)]
    assert not BY_HAND.trends(rows)[0].holds


@pytest.mark.parametrize(
    "options",
    [
        ByHandOptions(num_devices=3),
        ByHandOptions(num_micro_batches=(5,)),
        ByHandOptions(num_micro_batches=()),
        ByHandOptions(placements=("W",)),
        ByHandOptions(work_limit=0.0),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: ByHandOptions) -> None:
    with pytest.raises(OptionError) as caught:
        BY_HAND.cases(options)
    assert "\n" not in str(caught.value)
