"""Tables of the savings of strategies: as CSV files, and for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from experiments.report.result import Table
from placements.forms.texts import text_columns
from schedsearch.cluster.prices.study import Reduction


def reductions_table(found: Iterable[Reduction]) -> Table:
    """Return the saving of each strategy, as a factor."""
    return Table(dict, [_case(each) | {"reduction": f"{each.reduction:.6f}"} for each in found])


def costs_table(found: Iterable[Reduction]) -> Table:
    """Return the mean cost of a job over the start days; empty where the bound has none."""
    rows = []
    for each in found:
        means = {name: getattr(each, name) for name in ("mean_dollars", "mean_hours", "mean_moves")}
        cells = {name: "" if math.isnan(value) else f"{value:.6g}" for name, value in means.items()}
        rows.append(_case(each) | cells)
    return Table(dict, rows)


def to_lines(found: Sequence[Reduction]) -> list[str]:
    """Return the savings as text: a line per model, a column per strategy."""
    names = list(dict.fromkeys(each.strategy for each in found))
    ratios = {(each.days, each.model, each.strategy): f"{each.reduction:.2f}" for each in found}
    rows = [
        [f"{days:g}", model, *(ratios[days, model, name] for name in names)]
        for days, model in dict.fromkeys((each.days, each.model) for each in found)
    ]
    return text_columns([["days", "model", *names], *rows])


def _case(found: Reduction) -> dict[str, str]:
    return {"model": found.model, "days": f"{found.days:g}", "strategy": found.strategy}
