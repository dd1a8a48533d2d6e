"""Measured iterations of pipelines, as files and as placements."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.reproduce.measured.measured_iterations import (
    MeasuredIteration,
    PieceTimes,
    read_measured_iterations,
)
from experiments.reproduce.measured.unbalanced_stages import (
    moved_layers,
    predicted,
    with_layers,
    with_shared_output,
)
from placements.profiles.operating_point import ProfileError

HEADER = "case,layers_per_stage,F_us_per_stage,B_us_per_stage,iteration_ms"

EVEN = MeasuredIteration(
    "even",
    (2, 2, 2, 2),
    (PieceTimes(2.0, 4.5), PieceTimes(2.0, 4.0), PieceTimes(2.0, 4.0), PieceTimes(5.0, 9.0)),
    1800.0,
)
"""Layers of 1 and 2 ms, an embedding of 0.5, an output layer of 3 and 5."""


def test_pieces_are_inferred_from_the_stages() -> None:
    assert EVEN.layer == PieceTimes(1.0, 2.0)
    assert EVEN.embedding == PieceTimes(0.0, 0.5)
    assert EVEN.output_layer == PieceTimes(3.0, 5.0)


def test_the_iteration_of_1f1b_is_that_of_its_slowest_stage_and_what_fills_it() -> None:
    """The last stage has 128 micro-batches of 14 ms, before it a forward and after it a backward each."""
    found = predicted(EVEN)
    assert found.predicted_ms == 128 * 14 + 3 * 2 + 2 * 4 + 4.5
    assert found.longest_ms == 14
    assert found.error == pytest.approx(1810.5 / 1800 - 1)


def test_layers_move_away_from_the_output_layer() -> None:
    assert moved_layers(EVEN) == (2, 3, 3, 0)
    placement = with_layers(EVEN, moved_layers(EVEN))
    assert [placement.ms(placement.load(device)) for device in range(4)] == [6.5, 9.0, 9.0, 8.0]
    assert placement.memory == (4, 4, 4, 4)


def test_the_output_layer_stands_on_all_devices() -> None:
    placement = with_shared_output(EVEN, num_in_flight=6)
    times = {block.name: placement.ms(block.time) for block in placement.blocks}
    assert times["F0"] == times["F3"] == 2.0
    assert (times["H"], times["HB"], times["B3"], times["B0"]) == (0.8, 1.2, 4.0, 4.5)
    assert placement.by_name["H"].devices == (0, 1, 2, 3)
    assert placement.by_name["B3"].after == ("HB",)
    assert placement.memory == (6, 6, 6, 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\na,1|1|1,2|2,3|3|3,9\n", "line 2, column F_us_per_stage: has 2 numbers for the 3 stages"),
        (f"{HEADER}\na,1|1|1,2|2|x,3|3|3,9\n", "line 2, column F_us_per_stage.2.: 'x' is not"),
        (
            f"{HEADER}\na,1|1.5|1,2|2|2,3|3|3,9\n",
            "line 2, column layers_per_stage.1.: '1.5' is not a whole number",
        ),
        (f"{HEADER}\na,1|0|1,2|2|2,3|3|3,9\n", "line 2, column layers_per_stage: has no layers"),
    ],
)
def test_wrong_runs_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=f"^{path}: {message}"):
        read_measured_iterations(path)
