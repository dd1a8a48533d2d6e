"""The items of Tessel: all are there, and refuse wrong options; `test_results` makes their small versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.config.options import OptionError
from experiments.reproduce.catalogue import ITEMS

OURS = {name: ITEMS[name] for name in ITEMS if name.startswith("tessel")}


def test_all_tables_and_figures_are_there() -> None:
    figures = (8, 9, 10, 11, 12, 13, 15, 16, 17)
    assert set(OURS) == {"tessel_table2", "tessel_table3", *(f"tessel_figure{number}" for number in figures)}


@pytest.mark.parametrize(
    ("name", "option", "value", "says"),
    [
        ("tessel_table2", "only", ("bert",), "only: 'bert' is not known"),
        ("tessel_table2", "work_limit", 0.0, "work_limit: 0.0 is not a number above 0"),
        ("tessel_figure9", "only", ("m_shape", "m_shape"), "only: 'm_shape' is named twice"),
        ("tessel_figure9", "micro_batches", (), "micro_batches: [] is not a list of at least one"),
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
