"""Rules of block times by the length of a sequence, fitted to times measured here or given as a table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from experiments.config.options import OptionError, require
from experiments.profile.options import ProfileCommandOptions
from placements import Placement
from placements.forms.texts import csv_text, write_text
from placements.profiles.length_rules import POWERS, LengthTimeRow, fit_rules, rules_to_csv

log = logging.getLogger(__name__)


def lengths_to_measure(options: ProfileCommandOptions, placement: Placement) -> tuple[int, ...]:
    """Return the lengths at which blocks are measured, the longest first; none where it is one.

    Raises:
        OptionError: There are too few for a rule, or the blocks have modes.
    """
    given = options.runtime.sequence_lengths
    if given is None:
        return ()
    lengths = sorted(set(given), reverse=True)
    remedy = f"give {len(POWERS)} different ones or more, so that a rule can be fitted"
    require(len(lengths) >= len(POWERS), "runtime.sequence_lengths", list(given), "enough", remedy)
    if placement.decisions:
        raise OptionError(
            f"runtime.sequence_lengths: the blocks of {placement.name} have modes, which rules of lengths do "
            "not have; leave it out"
        )
    return tuple(lengths)


def save_length_rules(rows: Sequence[LengthTimeRow], directory: Path) -> None:
    """Fit the rule of each block, write ``length_rules.csv``, and log its errors.

    Raises:
        ProfileError: A block has too few lengths.
    """
    rules = fit_rules(rows)
    path = directory / "length_rules.csv"
    write_text(path, rules_to_csv(rules))
    log.info("rules of the length, where x is a thousand tokens:")
    log.info("%s", "\n".join(f"  {name}: {each}" for name, each in rules.items()))
    log.info("search with: search.micro_batches=FILE.csv search.length_rules=%s", path)


def save_measured_lengths(rows: Sequence[LengthTimeRow], directory: Path) -> None:
    """Write ``measured_lengths.csv``, of which `profiling.length_table` makes the rules again."""
    columns = ("tokens", "block", "time_ms")
    table = ([getattr(row, name) for name in columns] for row in rows)
    write_text(directory / "measured_lengths.csv", csv_text(columns, table))
