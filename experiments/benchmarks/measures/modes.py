"""Modes and streams that the search decides, beside how people decide by hand, with equal memory."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from experiments.benchmarks.inputs.made_placements import placement_of
from experiments.benchmarks.measures.search import searched
from experiments.benchmarks.timing import load_solvers as prepare
from placements import Placement
from schedsearch.baselines import HAND_MADE
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.searches.search import search
from schedsearch.validate import InvalidScheduleError, validate

__all__ = ["beside_hand_made", "dual_pipe_order", "prepare", "searched"]

DUAL_PIPE = (
    *("attn(F)", "combine(B)", "mlp(B)", "dispatch(F)", "mlp(W)", "dispatch(B)", "mlp(F)", "attn(B)"),
    *("combine(F)", "attn(W)"),
)
"""The order in which DeepSeek's trace runs a forward and a backward of one layer, on both streams."""


def beside_hand_made(*, work_limit: float, **made: Any) -> dict[str, Any]:
    """Search the period of a placement with modes or streams, beside the best by hand in as much memory.

    ``over_hand`` is ours over theirs; where nothing by hand fits, it is 0.
    """
    placement = placement_of(**made)
    number = 6 * placement.num_devices
    found = search(placement, number, objectives=["period"], work_limit=work_limit)
    rates = {name: steady_rate(schedule) for name, schedule in _by_hand(placement, number)}
    if found.repetend is None:
        return {"status": found.status.value}
    rate = Fraction(found.repetend.period, found.repetend.micro_batches)
    best = min(rates, key=lambda name: rates[name], default=None)
    return {
        "status": found.status.value,
        "period": float(placement.ms(rate)),
        "period_bound": found.period_bound * placement.tick_ms,
        "by_hand": None if best is None else float(placement.ms(rates[best])),
        "best_by_hand": best,
        "over_hand": 0.0 if best is None else float(rate / rates[best]),
    }


def steady_rate(schedule: Schedule) -> Fraction:
    """Return ticks per micro-batch over the middle half of a schedule, by the ends of its last blocks.

    Where forwards that ran before that half let it end sooner than it could go on, it is the work of the
    busiest stream in it.
    """
    number = schedule.num_micro_batches
    ends = sorted(max(end for (_, n), end in schedule.end_of.items() if n == own) for own in range(number))
    first, last = number // 4, 3 * number // 4
    runs = [schedule.as_run(n) for n in range(first, last)]
    work = (sum(run.load(lane) for run in runs) for lane in range(len(schedule.placement.lanes)))
    return Fraction(max(ends[last] - ends[first], *work), len(runs))


def _by_hand(placement: Placement, number: int) -> Iterator[tuple[str, Schedule]]:
    """Yield schedules made by hand that fit the placement's memory, with their names."""
    if placement.decisions:
        makers = {name: make for name, make in HAND_MADE.items() if name != "gpipe"}  # it has no steady state
        yield from with_chosen_modes(placement, number, makers)
        return
    yield from (("DualPipe's order", each) for each in dual_pipe_order(placement, number))


def dual_pipe_order(placement: Placement, number: int) -> Iterator[Schedule]:
    """Yield the schedule whose pairs run in the order of DualPipe's trace, layer by layer, if it fits."""
    stages = placement.num_devices
    layers = len(placement.on(0)) // len(DUAL_PIPE)
    orders: list[list[Instance]] = [[] for _ in placement.lanes]
    for stage in range(stages):
        ahead = min(2 * (stages - stage) - 1, number)
        for step in range(number + ahead):
            for k in range(layers):
                for phase in DUAL_PIPE:
                    is_forward = phase.endswith("(F)")
                    n = step if is_forward else step - ahead
                    name = f"{phase} {stage}.{k if is_forward else layers - 1 - k}"
                    if 0 <= n < number:
                        for lane in placement.lanes_of(placement.by_name[name]):
                            orders[lane].append((name, n))
    try:
        yield validate(as_soon_as_possible(placement, number, orders))
    except InvalidScheduleError:
        return
