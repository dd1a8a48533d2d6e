"""Rules of block times by the length of a sequence, fitted to times measured here or given as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.config.options import OptionError, require
from experiments.profile.options import ProfileCommandOptions
from experiments.report.result import Result
from placements import Placement
from placements.profiles.length_rules import POWERS, LengthTimeRow, fit_rules, rules_to_csv


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


def length_rules(rows: Sequence[LengthTimeRow], directory: Path) -> Result:
    """Fit the rule of each block; return ``length_rules.csv``, and the rules with their errors.

    Raises:
        ProfileError: A block has too few lengths.
    """
    rules, name = fit_rules(rows), "length_rules.csv"
    return Result(
        files={name: rules_to_csv(rules)},
        sentences=[
            "rules of the length, where x is a thousand tokens:",
            *(f"  {block}: {rule}" for block, rule in rules.items()),
            f"search with: search.micro_batches=FILE.csv search.length_rules={directory / name}",
        ],
    )
