"""The search for periods and whole schedules: results, proofs and times."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from experiments.benchmarks.best_known.answers import named_problem, placement_of_problem
from experiments.benchmarks.inputs.made_placements import made_placement
from experiments.benchmarks.inputs.random_placements import random_placement
from experiments.benchmarks.inputs.shops import published_shop
from experiments.benchmarks.timing import load_solvers as prepare
from placements import Placement
from schedsearch.baselines import applicable
from schedsearch.core.answer import Answer
from schedsearch.core.problem import OBJECTIVES
from schedsearch.device_span import device_spans
from schedsearch.proof.load_and_path import load_bound
from schedsearch.searches.search import search

__all__ = ["instance", "prepare", "random", "result_figures", "searched", "shop"]

Options = Mapping[str, Any]
"""Arguments of `search`, with at least a limit of work or time."""


def searched(
    *,
    options: Options,
    micro_batches: int | None = None,
    by_hand: bool = False,
    without: Collection[str] = (),
    **made: Any,
) -> dict[str, Any]:
    """Search a placement that is made, see `made_placement`; by default for two micro-batches a device.

    With ``by_hand`` there is also the least makespan of the hand-made schedules that fit.
    """
    placement = made_placement(**made)
    number = micro_batches or 2 * placement.num_devices
    figures = _searched(placement, number, options, without)
    if by_hand:
        fitting = applicable(placement, number).values()
        figures["by_hand"] = min((schedule.makespan for schedule in fitting), default=None)
    return figures


def instance(*, instance: str, options: Options, without: Collection[str] = ()) -> dict[str, Any]:
    """Search an instance of the library."""
    problem = named_problem(instance)
    return _searched(placement_of_problem(problem), problem["num_micro_batches"], options, without)


def random(*, family: str, number: int, options: Options, without: Collection[str] = ()) -> dict[str, Any]:
    """Search a placement from a seed."""
    placement = random_placement(family, number)
    return _searched(placement, 2 * placement.num_devices, options, without)


def shop(*, shop: str, work_limit: float) -> dict[str, Any]:
    """Search a published shop, one batch of micro-batches that differ."""
    answer = search(published_shop(shop), work_limit=work_limit)
    makespan = None if answer.schedule is None else answer.schedule.makespan
    return {"status": answer.status.value, "makespan": makespan, "makespan_bound": answer.makespan_bound}


def _searched(
    placement: Placement, micro_batches: int, options: Options, without: Collection[str]
) -> dict[str, Any]:
    result = search(placement, micro_batches, without=without, **options)
    return result_figures(result, placement, micro_batches, options.get("objectives", OBJECTIVES))


def result_figures(
    result: Answer, placement: Placement, micro_batches: int, objectives: Collection[str] = OBJECTIVES
) -> dict[str, Any]:
    """Return the figures of a search's objectives, in ticks.

    A period is of one micro-batch; ``load`` is the work of a device for one, and ``gap`` the share by which
    the period is above its bound. ``bubble`` is the idle share of the longest device span, to four digits.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    if result.interrupted:
        raise KeyboardInterrupt
    figures: dict[str, Any] = {"status": result.status.value, "search_s": round(result.seconds, 2)}
    if "period" in objectives:
        figures |= {"period": None, "period_bound": result.period_bound, "load": load_bound(placement)}
        if result.repetend is not None:
            figures |= {"period": result.repetend.period_per_micro_batch, "gap": max(0.0, result.gap)}
    schedule = result.schedule
    if "makespan" in objectives:
        figures["makespan"] = None if schedule is None else schedule.makespan
        figures["makespan_bound"] = result.makespan_bound
    if "device_span" in objectives and schedule is not None:
        span = int(device_spans(schedule).max())
        bubble = round(1 - placement.load(0) * micro_batches / span, 4)
        figures |= {"device_span": span, "device_span_bound": result.device_span_bound, "bubble": bubble}
    return figures
