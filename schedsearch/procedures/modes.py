"""Modes first, orders second: the modes with least memory at a target period, then the plain placement.

Joint questions about modes and orders find and refute periods of some dozens of blocks. With more blocks,
modes are chosen by each device's spare time at a period: it is spent on modes that hold less memory. The
result is a plain placement, on which all other procedures work.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from placements import Placement
from placements.modes import Chosen
from schedsearch.core.budget import Budget
from schedsearch.core.known import Known, Start
from schedsearch.passes.lowered import Lowered
from schedsearch.procedures.procedure import Procedure
from schedsearch.proof.load_and_path import period_bound
from schedsearch.proof.mode_choice import Need, needs_of

_MAX_MIXES = 50_000
"""Most mixes of one device's modes to compare; with more, each decision is taken on its own."""


@dataclass
class Modes(Procedure):
    """Tries periods from the bound up: for each, it takes the modes with least memory and searches orders.

    Attributes:
        steps: Periods to try between the bound and the best, in each round.
        search_orders: Yields repetends of a plain placement that all other procedures find in a round.
    """

    name: ClassVar[str] = "modes"
    share: float = 0.5
    steps: int = 8
    search_orders: Callable[[Known, Budget], Iterator[Start]] | None = None
    _tried: set[tuple[Chosen, ...]] = field(default_factory=set, init=False, repr=False)
    _round: int = field(default=0, init=False, repr=False)

    def suits(self, known: Known) -> bool:
        """Return whether the placement has decisions."""
        return bool(known.placement.decisions)

    def run(self, known: Known, budget: Budget) -> Iterator[Start]:
        """Yield ever better repetends, each with its modes."""
        assert self.search_orders is not None
        if known.round != self._round:  # more work than before for the same modes
            self._round, self._tried = known.round, set()
        best = known.rate
        for size in known.sizes:
            low, high = math.ceil(known.period_bound * size), math.ceil(best * size) - 1
            for target in range(low, high + 1, max(1, (high - low) // self.steps)):
                if Fraction(target, size) >= best or budget.is_over:
                    break
                for chosen in choices_at(known.placement, size, target):
                    lowered = None if chosen in self._tried else Lowered.of(known.placement, chosen)
                    self._tried.add(chosen)
                    if lowered is None or (least := period_bound(lowered.plain)) >= best * size:
                        continue
                    inner = Known(lowered.plain, (1,), least, seed=known.seed, round=known.round)
                    for start in self.search_orders(inner, budget.share(1 / self.steps)):
                        rate = Fraction(start.repetend.period, start.repetend.micro_batches * size)
                        if rate < best:
                            best = rate
                            yield Start(lowered.repetend(start.repetend), self.name)
                        if start.repetend.period <= math.ceil(least):
                            break


def choices_at(placement: Placement, micro_batches: int, period: int) -> Iterator[tuple[Chosen, ...]]:
    """Yield for each micro-batch the choices that hold least memory where each device fits into a period.

    Each device spends the time that it has left over on modes that hold less; of several micro-batches, some
    may do so, other ones on each device.
    """
    best: dict[int, Sequence[int]] = {}
    for device in range(placement.num_devices):
        needs = needs_of(placement, device)
        here = [i for i, modes in needs.items() if i is not None and i not in best and len(modes) > 1]
        fixed = [modes[0] for i, modes in needs.items() if i is None or len(modes) == 1]
        best |= zip(here, _cheapest([needs[i] for i in here], fixed, micro_batches, period), strict=True)
    chosen = [best.get(i, [0] * micro_batches) for i in range(len(placement.decisions))]
    for shift in range(micro_batches):
        yield tuple(
            tuple(numbers[(n + shift * i) % micro_batches] for i, numbers in enumerate(chosen))
            for n in range(micro_batches)
        )


def _cheapest(
    needs: Sequence[Sequence[Need]], fixed: Sequence[Need], size: int, period: int
) -> Sequence[Sequence[int]]:
    """Return for each decision of a device each micro-batch's mode: least memory within the period."""
    taken = Counter[int]()
    for need in fixed:
        taken.update({lane: ticks * size for lane, ticks in need.time.items()})

    def quality(mix: Sequence[Sequence[int]]) -> tuple[int, int, int]:
        time, held = taken.copy(), 0
        for modes, numbers in zip(needs, mix, strict=True):
            for number in numbers:
                held += modes[number].held
                time.update(modes[number].time)
        return max(0, max(time.values(), default=0) - period), held, time.total()

    options = [list(itertools.combinations_with_replacement(range(len(modes)), size)) for modes in needs]
    if math.prod(map(len, options)) <= _MAX_MIXES:
        return min(itertools.product(*options), key=quality)
    mix = [mixes[0] for mixes in options]
    for k, mixes in (*enumerate(options), *enumerate(options)):
        mix = min(([*mix[:k], numbers, *mix[k + 1 :]] for numbers in mixes), key=quality)
    return mix
