"""Modes first, orders after: for a period, the modes that hold least memory in the time that it leaves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from placements import Placement
from placements.modes import Chosen
from schedsearch.bounds.mode_choice import Need, needs_of

_MAX_MIXES = 50_000
"""Mixes of modes of one device that are compared; of more, each decision is taken on its own."""


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
