"""The measured blocks of zero bubble's runs: one stage's times, its activations, and the published bubbles.

All stages of a run are alike. Activations follow from the model's hidden size and attention heads; the
module knows no schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path

from placements import Placement
from placements.forms.reading import Field, in_file
from placements.forms.tables import Row, csv_rows
from placements.profiles.operating_point import ProfileError
from placements.shapes import v_shape

FILE = "measured_times.csv"
"""Of the folder that is given."""

COLUMNS = ("p", "m", "F_us", "B_us", "W_us", "comm_us", "hidden", "heads")
"""Columns that the file must have; times in us."""

SCHEDULES = ("1F1B", "ZB_H1", "ZB_H2", "ZB_1p", "ZB_2p")
"""The published columns, each behind ``bubble_``; cells may be empty."""

SEQUENCE_LENGTH = 1024
"""Of all runs."""

_MOST = 1_000_000_000
_MAX_BLOCKS = 1_000_000


@dataclass(frozen=True)
class StageTimes:
    """A run.

    Attributes:
        line: In the file.
        num_stages: On as many devices.
        num_micro_batches: Number of micro-batches of an iteration.
        forward_us: Forward time of one stage for one micro-batch.
        input_us: Time of the gradient of its input.
        weight_us: Time of the gradient of its weights.
        transfer_us: Between two stages.
        hidden_size: Width of the model.
        num_heads: Number of heads of its attention.
        published: Bubble rate by the name of the schedule; those that the file gives.
    """

    line: int
    num_stages: int
    num_micro_batches: int
    forward_us: int
    input_us: int
    weight_us: int
    transfer_us: int
    hidden_size: int
    num_heads: int
    published: Mapping[str, float]

    @property
    def name(self) -> str:
        """Its name among the runs of a file."""
        return f"line {self.line}: p={self.num_stages} m={self.num_micro_batches}"

    @property
    def work_us(self) -> int:
        """What each device computes in an iteration."""
        return self.num_micro_batches * (self.forward_us + self.input_us + self.weight_us)

    def with_whole_backward(self) -> Placement:
        """Return the V-shape whose gradient of the input leaves a stage only with that of the weights."""
        return self._placed(
            v_shape(self.num_stages, self.forward_us, backward_time=self.input_us + self.weight_us)
        )

    def with_split_backward(self, num_activations: int | None = None) -> Placement:
        """Return the V-shape with the backward in two.

        A forward holds ``34 h + 5 a s`` of memory up to a common factor, the gradient of the input releases
        all but ``32 h`` of it, that of the weights the rest.

        Args:
            num_activations: For which each device has room; None for no limit.
        """
        held = 34 * self.hidden_size + 5 * self.num_heads * SEQUENCE_LENGTH
        kept = 32 * self.hidden_size
        unit = gcd(held, kept)
        placement = v_shape(
            self.num_stages,
            self.forward_us,
            split_backward=True,
            input_time=self.input_us,
            weight_time=self.weight_us,
            stage_memory=held // unit,
            input_release=(held - kept) // unit,
        )
        memory = None if num_activations is None else num_activations * held // unit
        return self._placed(placement).with_memory(memory)

    def _placed(self, placement: Placement) -> Placement:
        transfer = tuple(
            (before, block.name, self.transfer_us)
            for block in placement.blocks
            for before in block.after
            if placement.by_name[before].devices != block.devices
        )
        return replace(placement, tick_ms=0.001, transfer=transfer)


def read_stage_times(path: str | Path) -> tuple[StageTimes, ...]:
    """Read the runs of a ``measured_times.csv``.

    Raises:
        ProfileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with in_file(path, ProfileError):
        return tuple(_stage_times(row) for row in csv_rows(Path(path), "run", ProfileError, COLUMNS))


def _stage_times(row: Row) -> StageTimes:
    p, m = (_whole(row[column], 1, 100_000) for column in COLUMNS[:2])
    if 3 * p * m > _MAX_BLOCKS:
        raise row["m"].mistake(
            f"{m} micro-batches on {p} stages are more than {_MAX_BLOCKS} blocks; give fewer"
        )
    columns = ("F_us", "B_us", "W_us", "hidden", "heads")
    forward, backward, weight, hidden, heads = (_whole(row[column], 1, _MOST) for column in columns)
    transfer = _whole(row["comm_us"], 0, _MOST)
    published = {}
    for name in SCHEDULES:
        if f"bubble_{name}" in row:
            published[name] = row[f"bubble_{name}"].number("a bubble rate from 0 to 1", "give one", 0, 1)
    return StageTimes(row.line, p, m, forward, backward, weight, transfer, hidden, heads, published)


def _whole(cell: Field, least: int, most: int) -> int:
    wanted = f"a whole number from {least} to {most}"
    return cell.whole(wanted, "give one", least, most)
