"""`experiments.reproduce`: what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=gavel_las"], "as in data=FOLDER; download scheduler/simulation_throughputs.json, "),
        ([], "experiment: has no value; give one of all, dissertation_figure2_3, "),
        (
            ["tables=[II]"],
            "tables: is not an option of schedsearch reproduce as it is called; choose the item that ",
        ),
        (
            ["experiment=galvatron_trends", "size=tiny"],
            "size: 'tiny' is not known; the options are full, small",
        ),
        (["experiment=galvatron_trends", "tables=[VII]"], "tables: 'VII' is not known; did you mean VI?"),
    ],
)
def test_wrong_input(overrides: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("reproduce", *overrides)
