"""Rules for block times by sequence length: fitted, written, read, and wrong ones refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from placements.profiles.length_rules import (
    LengthRule,
    LengthTimeRow,
    ProfileError,
    fit_rules,
    fitted,
    read_length_rules,
    read_measured_lengths,
    rules_to_csv,
    value,
)


def test_a_polynomial_is_found_again_from_what_it_gives() -> None:
    rule = (0.2, 3.1, 0.0188)
    coefficients = fitted([(length, value(rule, length)) for length in (0.5, 1, 4, 16, 32)])
    assert coefficients == pytest.approx(rule, rel=1e-6)
    assert fitted([(length, -625 * length) for length in (1, 2, 4)]) == pytest.approx((0, -625, 0), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_no_polynomial_of_a_grid_is_nearer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = [(length, length * float(rng.uniform(1, 3))) for length in (1.0, 2.0, 3.0, 5.0)]

    def missed(rule: tuple[float, ...]) -> float:
        return sum((value(rule, length) / time - 1) ** 2 for length, time in points)

    coefficients = fitted(points)
    assert min(coefficients) >= 0
    grid = itertools.product(np.linspace(0, 4, 21), np.linspace(0, 4, 21), np.linspace(0, 1, 21))
    assert missed(coefficients) <= min(map(missed, grid)) + 1e-9


def test_the_worst_deviation_is_told() -> None:
    times = {1000: 2.0, 2000: 4.0, 3000: 6.0, 4000: 9.0}
    fit = fit_rules([LengthTimeRow(tokens, "F0", time) for tokens, time in times.items()])["F0"]
    deviations = {n: abs(value(fit.time_ms, n / 1000) / time - 1) for n, time in times.items()}
    assert fit.deviation == max(deviations.values()) > 0.01
    assert deviations[fit.worst_tokens] == fit.deviation
    assert f"worst {fit.deviation:.1%}, at {fit.worst_tokens:,} tokens" in str(fit)


def test_rules_are_read_as_they_were_written(tmp_path: Path) -> None:
    rules = {"F0": LengthRule((0.1, 3.0, 0.02), (0.0, 5.0, 0.0)), "B0": LengthRule((0.0, 4.0))}
    path = tmp_path / "rules.csv"
    path.write_text(rules_to_csv(rules))
    assert read_length_rules(path) == rules
    path.write_text(rules_to_csv({"B0": rules["B0"]}))
    assert path.read_text() == "block,power,time_ms\nB0,0,0.0\nB0,1,4.0\n"


def test_too_few_lengths_and_half_known_memory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("device,tokens,block,time_ms\n0,512,F0,1\n0,512,F0,1.1\n0,1024,F0,2\n")
    with pytest.raises(ProfileError, match="block F0: has 2 lengths; give 3 or more"):
        fit_rules(read_measured_lengths(path))
    rows = [LengthTimeRow(1000 * n, "F0", 1.0 * n, None if n == 2 else 5.0) for n in (1, 2, 3)]
    with pytest.raises(ProfileError, match="block F0, column memory_mib: some cells are empty"):
        fit_rules(rows)
