"""Modes first, orders after: for each target the modes that hold least, and the orders of what is left.

Joint questions about modes and orders find and refute periods of some dozens of blocks. Of more, the modes
are chosen by what each device can afford: at a period, the time that its blocks leave over is spent on modes
that hold less. What is left is a plain placement, on which all other strategies work.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from placements import Placement
from placements.modes import Chosen
from schedsearch.core.budget import Account
from schedsearch.core.known import Known, Start
from schedsearch.passes.lowered import Lowered
from schedsearch.procedures.procedure import Procedure
from schedsearch.proof.load_and_path import period_bound
from schedsearch.proof.mode_choice import Need, needs_of

_MAX_MIXES = 50_000
"""Mixes of modes of one device that are compared; of more, each decision is taken on its own."""


@dataclass
class ModeChoices(Procedure):
    """Tries periods from the bound up, each with the modes that then hold least, and searches the orders.

    Attributes:
        steps: Periods that are tried between the bound and the best, in each round.
        search_orders: Yields repetends of a plain placement, given what is known of its period, who counts
            the work, and until when to go on.
    """

    name: ClassVar[str] = "modes"
    share_of_few: float = 0.5
    share_of_many: float = 0.6
    steps: int = 8
    search_orders: Callable[[Known, Account, float], Iterator[Start]] | None = None
    _tried: set[tuple[Chosen, ...]] = field(default_factory=set, init=False, repr=False)
    _round: int = field(default=0, init=False, repr=False)

    def share(self, state: Known) -> float:
        """Return the share of a round's work that it gets at most; 0 where nothing is decided."""
        if not state.placement.decisions:
            return 0.0
        return self.share_of_many if state.has_many_blocks else self.share_of_few

    def run(self, state: Known, oracle: Account, until: float) -> Iterator[Start]:
        """Yield ever better repetends, each with its modes."""
        if state.round != self._round:  # more work than before for the same modes
            self._round, self._tried = state.round, set()
        best = state.rate
        for size in state.sizes:
            for target in self._targets(state.period_bound * size, best * size):
                if Fraction(target, size) >= best or oracle.effort.spent >= until:
                    break
                for chosen in choices_at(state.placement, size, target):
                    lowered = None if chosen in self._tried else Lowered.of(state.placement, chosen)
                    self._tried.add(chosen)
                    if lowered is None:
                        continue
                    least = period_bound(lowered.plain)
                    if least >= best * size:
                        continue
                    for found in self._orders(lowered.plain, least, size, best, state, oracle, until):
                        rate = Fraction(found.repetend.period, found.repetend.micro_batches * size)
                        if rate < best:
                            best = rate
                            yield Start(lowered.repetend(found.repetend), self.name)

    def _targets(self, least: Fraction, most: Fraction) -> Iterator[int]:
        """Yield periods from the bound up to the best, nearest to the bound first."""
        low, high = math.ceil(least), math.ceil(most) - 1
        step = max(1, (high - low) // self.steps)
        yield from range(low, high + 1, step)

    def _orders(
        self,
        plain: Placement,
        least: Fraction,
        size: int,
        best: Fraction,
        state: Known,
        oracle: Account,
        until: float,
    ) -> Iterator[Start]:
        assert self.search_orders is not None
        inner = Known(plain, (1,), least, seed=state.seed, round=state.round)
        end = oracle.effort.share(until, 1 / self.steps)
        for found in self.search_orders(inner, oracle, end):
            yield found
            if found.repetend.period <= math.ceil(least):
                return


def choices_at(placement: Placement, micro_batches: int, period: int) -> Iterator[tuple[Chosen, ...]]:
    """Yield for each micro-batch the choices that hold least memory where each device fits into a period.

    Each device spends the time that it has left over on modes that hold less; of several micro-batches, some
    may do so, other ones on each device.
    """
    best: dict[int, list[int]] = {}
    for device in range(placement.num_devices):
        needs = needs_of(placement, device)
        here = [i for i, each in needs.items() if i is not None and i not in best and len(each) > 1]
        fixed = [each for i, each in needs.items() if i is None or len(each) == 1]
        if not here:
            continue
        for i, numbers in zip(here, _cheapest(needs, here, fixed, micro_batches, period), strict=True):
            best[i] = numbers
    decisions = range(len(placement.decisions))
    chosen = [best.get(i, [0] * micro_batches) for i in decisions]
    for shift in range(micro_batches):
        turned = [
            numbers[(shift * i) % micro_batches :] + numbers[: (shift * i) % micro_batches]
            for i, numbers in enumerate(chosen)
        ]
        yield tuple(tuple(numbers[n] for numbers in turned) for n in range(micro_batches))


def _cheapest(
    needs: dict[int | None, list[Need]],
    here: Sequence[int],
    fixed: Sequence[list[Need]],
    size: int,
    period: int,
) -> list[list[int]]:
    """Return for each decision of a device what each micro-batch chooses: within the period, least memory."""
    taken: dict[int, int] = {}
    for each in fixed:
        for lane, ticks in each[0].time.items():
            taken[lane] = taken.get(lane, 0) + ticks * size

    def quality(mix: Sequence[tuple[int, ...]]) -> tuple[int, int, int]:
        time, held = dict(taken), 0
        for i, numbers in zip(here, mix, strict=True):
            for number in numbers:
                need = needs[i][number]
                held += need.held
                for lane, ticks in need.time.items():
                    time[lane] = time.get(lane, 0) + ticks
        over = max(0, max(time.values(), default=0) - period)
        return over, held, sum(time.values())

    options = [list(itertools.combinations_with_replacement(range(len(needs[i])), size)) for i in here]
    if math.prod(map(len, options)) <= _MAX_MIXES:
        return [list(numbers) for numbers in min(itertools.product(*options), key=quality)]
    mix = [own[0] for own in options]
    for k, own in itertools.chain(enumerate(options), enumerate(options)):
        candidates = [[*mix[:k], numbers, *mix[k + 1 :]] for numbers in own]
        mix = min(candidates, key=quality)
    return [list(numbers) for numbers in mix]
