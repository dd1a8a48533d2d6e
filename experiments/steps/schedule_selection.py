"""The step between search and frontier: of several schedules, the one of least energy at the deadline."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments.config.command import Interrupted
from experiments.config.options import OptionError
from experiments.config.progress import StepBar
from experiments.config.records import Options
from experiments.steps.pipeline_steps import complete_profile
from experiments.steps.results import SearchStepResult, SelectionResult
from experiments.steps.search_step import describe, save_schedule
from schedsearch.energy import EnergyError, all_maximum_clocks, simulate
from schedsearch.energy.ordering import Chosen, Judged, best_order
from schedsearch.modulo.alternatives import (
    Candidate,
    keeps_memory,
    may_reorder,
    reached,
    schedules_of_equal_period,
)
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)

MOST_ORDERS = 10_000
"""More schedules than that take longer than anyone waits."""

SWAPS_PER_ORDER = 30
"""Swaps of neighbors that may be tried for each schedule that is judged."""

_SHARE_OF_CANDIDATES = 0.4
"""Share of the time that goes to finding schedules; swaps take what is left."""


def check_orders(options: Options) -> None:
    """Reject wrong options before any work starts.

    Raises:
        OptionError: One is out of its range, or there is no search to choose from.
    """
    energy = options.energy
    if not 1 <= energy.orders <= MOST_ORDERS:
        raise OptionError(f"energy.orders: {energy.orders} is not at least 1 and at most {MOST_ORDERS}")
    if not 0 < energy.orders_time_limit_s < math.inf:
        raise OptionError(
            f"energy.orders_time_limit_s: {energy.orders_time_limit_s:g} is not a time above 0; give seconds"
        )
    if energy.orders > 1 and options.schedule != "searched":
        raise OptionError(
            f"energy.orders: {energy.orders} schedules need a search, but schedule={options.schedule}; "
            "use schedule=searched or energy.orders=1"
        )


def choose_order(options: Options, found: SearchStepResult, directory: Path) -> SearchStepResult:
    """Return the outcome with the schedule of least energy at the deadline; write it as ``schedule.json``.

    Where one schedule is asked for, that is the search's and nothing is done.

    Raises:
        OptionError: No schedule keeps the deadline.
        Interrupted: The choice was interrupted from the keyboard; the best so far is written all the same.
    """
    energy, result = options.energy, found.result
    if energy.orders == 1 or result is None:
        return found
    profile = complete_profile(options, found.placement, found.profile)
    maximum = simulate(found.schedule, profile, all_maximum_clocks(found.schedule, profile))
    deadline_ms = energy.deadline_ms or maximum.time_ms * (energy.slowdown or 1.0)
    limit = reached(result, options.search.objectives) if options.search.method == "modulo" else {}
    proposed = _Remembered(
        schedules_of_equal_period(
            found.placement,
            options.search.num_micro_batches,
            result,
            limit=limit,
            count=energy.orders,
            time_limit_s=energy.orders_time_limit_s * _SHARE_OF_CANDIDATES,
            seed=options.search.seed,
        )
    )
    with StepBar("orders") as bar:
        try:
            chosen = best_order(
                proposed,
                profile,
                deadline_ms,
                most_swaps=energy.orders * SWAPS_PER_ORDER if may_reorder(limit) else 0,
                time_limit_s=energy.orders_time_limit_s,
                keeps=lambda schedule: keeps_memory(schedule, limit),
                on_progress=bar,
            )
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None
    origin = proposed.proposals[chosen.best.candidate]
    result = replace(result, repetend=origin.repetend, schedule=chosen.schedule)
    order = SelectionResult(chosen, tuple(each.origin for each in proposed.proposals))
    found = replace(found, schedule=chosen.schedule, result=result, order=order)
    save_schedule(options, chosen.schedule, result, directory)
    if chosen.best is not chosen.judged[0]:
        log.info("%s", describe(chosen.schedule, result))
    log.info("%s", describe_order(order))
    if chosen.interrupted:
        raise Interrupted(f"interrupted; the best schedule found so far is in {directory / 'schedule.json'}")
    return found


@dataclass
class _Remembered:
    """Iterates over the schedules of proposals, and keeps the proposals."""

    source: Iterator[Candidate]
    proposals: list[Candidate] = field(default_factory=list)

    def __iter__(self) -> Iterator[Schedule]:
        for candidate in self.source:
            self.proposals.append(candidate)
            yield candidate.schedule


def describe_order(order: SelectionResult) -> str:
    """Return the choice and its gain over tuning the search's schedule in a line."""
    best = order.chosen.best
    where = f"{order.origin_of(best)}{', neighbors swapped' if best.is_swapped else ''}"
    gain = order.chosen.gain
    text = (
        "the search's own cannot keep the deadline" if gain is None else f"{gain:.2%} less than the search's"
    )
    return (
        f"orders: {len(order.chosen.judged)} judged, chosen: {where}; "
        f"{best.energy_mj / 1e3:.6g} J until {order.chosen.deadline_ms:.6g} ms, {text}"
    )


def order_to_dict(order: SelectionResult) -> dict[str, object]:
    """Return what was judged and chosen as plain data; null stands for no plan and no bound."""
    chosen: Chosen = order.chosen
    return {
        "deadline_ms": chosen.deadline_ms,
        "chosen": chosen.judged.index(chosen.best),
        "gain": chosen.gain,
        "judged": [_judged_to_dict(order, each) for each in chosen.judged],
    }


def _judged_to_dict(order: SelectionResult, each: Judged) -> dict[str, object]:
    return {
        "origin": order.origin_of(each),
        "swapped": each.is_swapped,
        "makespan": each.schedule.makespan,
        "lower_bound_mj": each.lower_bound_mj if math.isfinite(each.lower_bound_mj) else None,
        "energy_mj": each.energy_mj if math.isfinite(each.energy_mj) else None,
    }
