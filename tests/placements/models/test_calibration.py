"""Measured times from a file: between and outside of what was measured, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from told import told

from placements.models.calibration import Calibration, CalibrationError

HEADER = "layer,tensor_parallel,samples,forward_ms,backward_ms"
TEXT = f"""{HEADER}
layer,1,4,10,20
layer,1,2,6,12
layer,2,4,6,13
"""


def read(tmp_path: Path, text: str) -> Calibration:
    path = tmp_path / "times.csv"
    path.write_text(text)
    return Calibration.from_csv(path)


def test_times_between_measured_numbers_are_linear_and_outside_in_proportion(tmp_path: Path) -> None:
    measured = read(tmp_path, TEXT)
    assert measured.at("layer", 1, 4) == (10, 20)
    assert measured.at("layer", 1, 3) == (8, 16)
    assert measured.at("layer", 1, 8) == (20, 40)
    assert measured.at("layer", 1, 1) == (3, 6)
    assert measured.at("layer", 2, 2) == (3, 6.5)
    assert measured.at("output", 1, 4) is None


def test_a_missing_degree_is_named(tmp_path: Path) -> None:
    with told(CalibrationError, "tensor_parallel: layer was not measured with 4 GPUs but with 1, 2;"):
        read(tmp_path, TEXT).at("layer", 4, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "\nlayer,0,4,10,20\n", "line 2, column tensor_parallel: '0' is not a whole number"),
        (HEADER + "\nlayer,1,4,ten,20\n", "line 2, column forward_ms: 'ten' is not a number above 0"),
        (
            HEADER + "\nlayer,1,4,1,2\nlayer,1,4,1,2\n",
            "line 3: layer layer tensor_parallel 1 samples 4 is in",
        ),
    ],
)
def test_a_wrong_file_is_told_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with told(CalibrationError, f"{tmp_path / 'times.csv'}: {message}"):
        read(tmp_path, text)
