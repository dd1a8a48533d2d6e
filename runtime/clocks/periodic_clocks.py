"""Clocks that repeat with a loop, for any number of micro-batches; plain data and one look-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RoundClocks = Sequence[Sequence[int]]
"""For each micro-batch of a round its clocks in MHz."""


@dataclass(frozen=True)
class PeriodicClocks:
    """A clock for each block of the warmup, of one round, and of the cooldown; as in ``periodic.json``.

    Attributes:
        warmup: By block: clocks of each micro-batch of a round, from its first micro-batch on.
        steady: By block: one clock of each; none where every micro-batch is warmup or cooldown.
        cooldown: By block: clocks of each micro-batch of a round, from its last micro-batch backwards.
        micro_batches_per_round: Of the loop.
    """

    warmup: Mapping[str, RoundClocks]
    steady: Mapping[str, RoundClocks]
    cooldown: Mapping[str, RoundClocks]
    micro_batches_per_round: int = 1

    def repeats(self, block: str) -> bool:
        """Tell whether a block has a clock for each of any number of micro-batches."""
        return all(_clocks_of(self.steady, block, number) for number in range(self.micro_batches_per_round))

    def at(self, block: str, micro_batch: int, num_micro_batches: int) -> int:
        """Return a block's clock in MHz.

        Where there are so few micro-batches that one is both of the warmup and of the cooldown, it is the
        higher of the two clocks.

        Args:
            block: Name.
            micro_batch: Which one it computes.
            num_micro_batches: Of the iteration.

        Raises:
            KeyError: The block has no clocks.
        """
        turn, number = divmod(micro_batch, self.micro_batches_per_round)
        last = (num_micro_batches - 1) // self.micro_batches_per_round
        first = _clocks_of(self.warmup, block, number)[turn : turn + 1]
        final = _clocks_of(self.cooldown, block, number)[last - turn : last - turn + 1]
        found = [*first, *final] or list(_clocks_of(self.steady, block, number))
        if not found:
            raise KeyError(f"{block} has no clock for micro-batch {micro_batch} of {num_micro_batches}")
        return max(found)


def _clocks_of(phase: Mapping[str, RoundClocks], block: str, number: int) -> Sequence[int]:
    by_micro_batch = phase.get(block, ())
    return by_micro_batch[number] if number < len(by_micro_batch) else ()
