"""The items of Tessel: all are there, and refuse wrong options; `test_results` makes their small versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.config.options import OptionError
from experiments.reproduce.tessel.items import ITEMS

OURS = {item.name: item for item in ITEMS if item.name.startswith("tessel")}


def test_all_tables_and_figures_are_there() -> None:
    figures = (2, 3, 8, 9, 10, 11, 12, 13, 15, 16, 17)
    assert set(OURS) == {"tessel_table2", "tessel_table3", *(f"tessel_figure{number}" for number in figures)}


def test_the_whole_item_has_the_cases_of_the_small_one() -> None:
    for item in OURS.values():
        assert set(item.cases(item.small)) <= set(item.cases(item.options()))


@pytest.mark.parametrize(
    ("name", "option", "value", "says"),
    [
        ("tessel_table2", "models", ("bert",), "models: 'bert' is not known"),
        ("tessel_table2", "work_limit", 0.0, "work_limit: 0 is not a positive number of units of work"),
        ("tessel_figure9", "shapes", ("m_shape", "m_shape"), "shapes: 'm_shape' is named twice"),
        ("tessel_figure12", "tessel_time_limit_s", -1.0, "tessel_time_limit_s: -1 is not a positive"),
    ],
)
def test_wrong_options_are_refused_before_any_search(
    name: str, option: str, value: object, says: str
) -> None:
    item = OURS[name]
    with pytest.raises(OptionError) as error:
        item.cases(replace(item.small, **{option: value}))
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)
