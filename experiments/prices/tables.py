"""Tables of the savings of strategies: as CSV, and for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from experiments.prices.disturbances import Disturbed
from placements.forms.texts import csv_text
from schedsearch.cluster.prices.study import Reduction

_CASE = ("model", "days", "strategy")


def reductions_csv(found: Iterable[Reduction]) -> str:
    """Return the saving of each strategy, as a factor."""
    return csv_text((*_CASE, "reduction"), ([*_case(each), f"{each.reduction:.6f}"] for each in found))


def costs_csv(found: Iterable[Reduction]) -> str:
    """Return the mean cost of a job over the start days; empty where the bound has none."""
    names = ("mean_dollars", "mean_hours", "mean_moves")
    rows = ([*_case(each), *(_figure(getattr(each, name)) for name in names)] for each in found)
    return csv_text((*_CASE, *names), rows)


def disturbances_csv(found: Iterable[Disturbed]) -> str:
    """Return the savings left under restarts and preemptions."""
    rows = (
        [
            *_case(each.found),
            *(f"{value:g}" for value in (each.restart_s, each.preemptions_per_day)),
            *map(_figure, (each.found.reduction, each.of_undisturbed, each.found.mean_moves)),
        ]
        for each in found
    )
    conditions = "restart_s", "preemptions_per_day"
    return csv_text(
        (*_CASE, *conditions, "reduction", "reduction_of_undisturbed_baseline", "mean_moves"), rows
    )


def to_table(found: Sequence[Reduction]) -> str:
    """Return the savings as text: a line per model, a column per strategy."""
    names = list(dict.fromkeys(each.strategy for each in found))
    ratios = {(each.days, each.model, each.strategy): each.reduction for each in found}
    wide = max(len(each.model) for each in found)
    lines = [f"{'days':>5} {'model':<{wide}} " + " ".join(f"{name:>11}" for name in names)]
    for days, model in dict.fromkeys((each.days, each.model) for each in found):
        cells = " ".join(f"{ratios[days, model, name]:>11.2f}" for name in names)
        lines.append(f"{days:>5g} {model:<{wide}} {cells}")
    return "\n".join(lines)


def means_by_strategy(found: Sequence[Disturbed]) -> Iterator[str]:
    """Yield a line for each restart time and rate: the savings, as geometric means over models."""
    for restart_s, rate in dict.fromkeys(each[:2] for each in found):
        here = [each for each in found if each[:2] == (restart_s, rate)]
        names = dict.fromkeys(each.found.strategy for each in here)
        means = ", ".join(f"{name} {mean_of_undisturbed(here, name):.2f}" for name in names)
        yield f"restart {restart_s:g} s, {rate:g} preemptions per day: {means}"


def mean_of_undisturbed(found: Iterable[Disturbed], strategy: str) -> float:
    """Return the geometric mean, over models, of a strategy's saving against the undisturbed baseline."""
    logarithms = [math.log(each.of_undisturbed) for each in found if each.found.strategy == strategy]
    return math.exp(math.fsum(logarithms) / len(logarithms))


def _case(found: Reduction) -> list[str]:
    return [found.model, f"{found.days:g}", found.strategy]


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
