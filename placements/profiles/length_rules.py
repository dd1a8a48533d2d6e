"""Time and memory of blocks by the length of a sequence: polynomials, fitted to measurements, and their file.

The length is in thousands of tokens, so that factors are readable. Attention is in the square, the rest of a
layer is linear, and the start of kernels is constant. The module does not know micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from placements.forms.meaning import Meaning
from placements.forms.tables import csv_records, keys_of
from placements.forms.texts import csv_text
from placements.profiles.operating_point import ProfileError

POWERS = (0, 1, 2)
"""Powers of the length in a fitted rule."""

Coefficients = tuple[float, ...]
"""Factors of the powers 0, 1, ... of a thousand tokens."""


@dataclass(frozen=True)
class LengthRuleRow:
    """A term of the rule of a block."""

    block: Annotated[str, Meaning("name of a block")]
    power: Annotated[int, Meaning("exponent of the length", min=0, max=4)]
    time_ms: Annotated[float, Meaning("time per (thousand tokens)^exponent", "ms", min=0)]
    memory_mib: Annotated[float | None, Meaning("memory likewise, negative if released")] = None


@dataclass(frozen=True)
class LengthTimeRow:
    """A measured time and memory of a block in sequences of some length."""

    tokens: Annotated[int, Meaning("sequence length", min=1, max=1e9)]
    block: Annotated[str, Meaning("name of the block")]
    time_ms: Annotated[float, Meaning("time of the block", "ms", above=0)]
    memory_mib: Annotated[float | None, Meaning("memory allocated, negative if released")] = None


class LengthRule(NamedTuple):
    """Polynomials of a block's time and memory in the length of a sequence.

    Attributes:
        time_ms: Its time.
        memory_mib: Memory allocated, negative if released; None where no rule is known.
        deviation: Largest deviation of its time from a measured one, as a share of that; 0 where not fitted.
        worst_tokens: Length of the largest deviation.
    """

    time_ms: Coefficients
    memory_mib: Coefficients | None = None
    deviation: float = 0.0
    worst_tokens: int = 0

    def __str__(self) -> str:
        """Return the polynomials and the worst deviation."""
        memory = "" if self.memory_mib is None else f", {in_words(self.memory_mib)} MiB"
        worst = f"worst {self.deviation:.1%}, at {self.worst_tokens:,} tokens"
        return f"{in_words(self.time_ms)} ms{memory}; {worst}"


def value(coefficients: Sequence[float], thousands: float) -> float:
    """Return the value of a polynomial at a length in thousands of tokens.

    >>> value((1.0, 0.0, 2.0), 3.0)
    19.0
    """
    return sum(factor * thousands**power for power, factor in enumerate(coefficients))


def in_words(coefficients: Sequence[float]) -> str:
    """Return a polynomial in words, x being a thousand tokens.

    >>> in_words((0.02, 3.1, 0.0188)), in_words((0.0, -625.0, -0.4)), in_words((0.0,))
    ('0.02 + 3.1 x + 0.0188 x^2', '-625 x - 0.4 x^2', '0')
    """
    names = ["", " x", *(f" x^{power}" for power in range(2, len(coefficients)))]
    terms = [f"{factor:.4g}{name}" for factor, name in zip(coefficients, names, strict=False) if factor]
    return " + ".join(terms).replace("+ -", "- ") or "0"


def fitted(points: Iterable[tuple[float, float]], powers: Sequence[int] = POWERS) -> Coefficients:
    """Return the polynomial of factors of 0 or more with the least squares of relative deviations.

    Points are lengths in thousands of tokens, and measured values, all of 0 or more, or all of 0 or less.

    >>> [round(power, 6) for power in fitted([(1, 3.0), (2, 7.0), (4, 21.0)])]
    [1.0, 1.0, 1.0]
    >>> fitted([(1, 3.0), (2, 5.0), (4, 5.0)])[2]  # never a curve that bends down
    0.0
    """
    from scipy.optimize import nnls  # which what only reads rules does not wait for

    lengths, values = np.array(sorted(points), dtype=float).T
    weights = 1 / np.maximum(np.abs(values), np.abs(values).max() * 1e-9 or 1.0)
    coefficients = np.zeros(max(powers) + 1)
    coefficients[list(powers)], _ = nnls(
        (weights * lengths ** np.array(powers)[:, None]).T, weights * np.abs(values)
    )
    return tuple((coefficients * (-1 if values.sum() < 0 else 1) + 0.0).tolist())


def fit_rules(rows: Iterable[LengthTimeRow]) -> dict[str, LengthRule]:
    """Return the rule of each block, fitted to measurements.

    Raises:
        ProfileError: A block has fewer lengths than the rule has factors, or memory for some of them alone.
    """
    by_block: dict[str, list[LengthTimeRow]] = {}
    for row in rows:
        by_block.setdefault(row.block, []).append(row)
    return {name: _fit(name, rows) for name, rows in by_block.items()}


def _fit(name: str, rows: Sequence[LengthTimeRow]) -> LengthRule:
    num_lengths = len({row.tokens for row in rows})
    if num_lengths < len(POWERS):
        word = "length" if num_lengths == 1 else "lengths"
        raise ProfileError(f"block {name}: has {num_lengths} {word}; give {len(POWERS)} or more")
    known = [(row.tokens / 1000, row.memory_mib) for row in rows if row.memory_mib is not None]
    if known and (len(known) < len(rows) or len({mib > 0 for _, mib in known if mib}) > 1):
        fault = "some cells are empty, or above 0 and others below"
        raise ProfileError(f"block {name}, column memory_mib: {fault}; give all with one sign, or none")
    times = fitted((row.tokens / 1000, row.time_ms) for row in rows)
    missed = ((abs(value(times, row.tokens / 1000) / row.time_ms - 1), row.tokens) for row in rows)
    return LengthRule(times, fitted(known) if known else None, *max(missed))


def read_measured_lengths(path: str | Path) -> list[LengthTimeRow]:
    """Read times of blocks at several lengths from a CSV with the columns of `LengthTimeRow`, others ignored.

    Raises:
        ProfileError: The file is wrong; one line with its path, the place and the remedy.
    """
    records = csv_records(Path(path), "block and length", ProfileError, LengthTimeRow, others=True)
    return [row for _, row in records]


def read_length_rules(path: str | Path) -> dict[str, LengthRule]:
    """Read rules by block: a CSV with the columns of `LengthRuleRow`.

    Raises:
        ProfileError: The file is wrong; one line with its path, the place and the remedy.
    """
    records = csv_records(Path(path), "block and power", ProfileError, LengthRuleRow, once=("block", "power"))
    rows = [row for _, row in records]
    rules = {}
    for name in dict.fromkeys(row.block for row in rows):
        terms = {row.power: row for row in rows if row.block == name}
        by_power = [terms.get(power, LengthRuleRow(name, power, 0.0)) for power in range(1 + max(terms))]
        memory = tuple(row.memory_mib or 0.0 for row in by_power)
        has_memory = any(row.memory_mib is not None for row in by_power)
        rules[name] = LengthRule(tuple(row.time_ms for row in by_power), memory if has_memory else None)
    return rules


def rules_to_csv(rules: Mapping[str, LengthRule]) -> str:
    """Return rules as the CSV that `read_length_rules` reads, with factors of six digits."""
    num_columns = 4 if any(rule.memory_mib is not None for rule in rules.values()) else 3
    rows = []
    for name, rule in rules.items():
        for power, (time_ms, mib) in enumerate(zip_longest(rule.time_ms, rule.memory_mib or ())):
            if time_ms or mib or not power:
                factors = [float(f"{time_ms or 0.0:.6g}"), None if mib is None else float(f"{mib:.6g}")]
                rows.append([name, power, *factors][:num_columns])
    return csv_text(keys_of(LengthRuleRow)[:num_columns], rows)
