"""The measured blocks of zero bubble's runs: one stage's times, its activations, and the published bubbles.

All stages of a run are alike. Activations follow from the model's hidden size and attention heads; the
module knows no schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Annotated

from placements import Placement
from placements.forms.meaning import Meaning
from placements.shapes import v_shape

SCHEDULES = ("1F1B", "ZB_H1", "ZB_H2", "ZB_1p", "ZB_2p")
"""The published columns, each behind ``bubble_``; cells may be empty."""

SEQUENCE_LENGTH = 1024
"""Tokens of a sample in all runs."""


def _count(text: str, key: str, min: int = 1, max: int = 1_000_000_000) -> Meaning:
    return Meaning(text, key=key, min=min, max=max)


def _bubble(schedule: str) -> Meaning:
    return Meaning("published bubble rate", key=f"bubble_{schedule}", min=0, max=1)


@dataclass(frozen=True)
class StageTimes:
    """A run: times of one stage's blocks for one micro-batch, the model, and published bubble rates."""

    num_stages: Annotated[int, _count("stages", "p", max=1_000)]
    num_micro_batches: Annotated[int, _count("micro-batches", "m", max=10_000)]
    forward_us: Annotated[int, _count("a forward", "F_us")]
    input_us: Annotated[int, _count("gradient of the input", "B_us")]
    weight_us: Annotated[int, _count("gradient of the weights", "W_us")]
    transfer_us: Annotated[int, _count("a transfer", "comm_us", min=0)]
    hidden_size: Annotated[int, _count("width of the model", "hidden")]
    num_heads: Annotated[int, _count("attention heads", "heads")]
    one_f_one_b: Annotated[float | None, _bubble("1F1B")] = None
    zb_h1: Annotated[float | None, _bubble("ZB_H1")] = None
    zb_h2: Annotated[float | None, _bubble("ZB_H2")] = None
    zb_1p: Annotated[float | None, _bubble("ZB_1p")] = None
    zb_2p: Annotated[float | None, _bubble("ZB_2p")] = None

    @property
    def published(self) -> Mapping[str, float | None]:
        """Published bubble rates by the name of the schedule."""
        rates = (self.one_f_one_b, self.zb_h1, self.zb_h2, self.zb_1p, self.zb_2p)
        return dict(zip(SCHEDULES, rates, strict=True))

    @property
    def work_us(self) -> int:
        """Time that each device computes in an iteration."""
        return self.num_micro_batches * (self.forward_us + self.input_us + self.weight_us)

    def with_whole_backward(self) -> Placement:
        """Return the V-shape whose gradients of input and weights leave a stage together."""
        return self._placed(
            v_shape(self.num_stages, self.forward_us, backward_time=self.input_us + self.weight_us)
        )

    def with_split_backward(self, num_activations: int | None = None) -> Placement:
        """Return the V-shape with the backward in two, and room for some activations; None for no limit.

        A forward holds ``34 h + 5 a s`` of memory up to a common factor, the gradient of the input releases
        all but ``32 h`` of it, that of the weights the rest.
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
