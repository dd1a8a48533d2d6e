"""How far the answers of a run are from the best known and from the bounds, by group, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import mean
from typing import Any

from experiments.benchmarks.instances.answers import FIGURES, BestKnown
from experiments.benchmarks.instances.measuring import BY_HAND, InstanceRow
from experiments.benchmarks.results import markdown_table

_HEADS = ("group", "instances", "no answer", "optimal", *FIGURES, "seconds")

LEGEND = (
    "A gap is the mean, in percent, by which an answer is above the best known and, in brackets, above the "
    "bound as it is known today, over instances and seeds with an answer. A device span is counted from each "
    "device's own first block to its last. Held-out instances are never used to tune a search. Optimal "
    "counts rows whose period meets the bound on all periods; seconds are wall-clock time."
)


def gaps(
    rows: Iterable[InstanceRow], best: Mapping[str, BestKnown], with_all: bool = True
) -> list[dict[str, Any]]:
    """Return for each group, and for its held-out instances apart, the mean gaps of some rows.

    Args:
        rows: Of one method.
        best: The best known by instance; rows of others are left out.
        with_all: Whether there is also a group of all rows.

    Returns:
        Plain data: the gap of each figure is a pair, in percent, to the best known and to the bound.
    """
    grouped: dict[tuple[str, bool], list[InstanceRow]] = {}
    for row in rows:
        if row.instance in best:
            for group in (row.group, *["all"] * with_all):
                grouped.setdefault((group, row.held_out), []).append(row)
    return [
        {
            "group": group + (" (held out)" if held_out else ""),
            "instances": len({row.instance for row in here}),
            "no answer": len({row.instance for row in here if row.period is None and row.makespan is None}),
            "optimal": sum(_meets_bound(row, best[row.instance]) for row in here),
            **{figure: _gap(figure, here, best) for figure in FIGURES},
            "seconds": round(mean(row.seconds for row in here), 1),
        }
        for (group, held_out), here in sorted(
            grouped.items(), key=lambda item: (item[0][0] == "all", item[0])
        )
    ]


def _meets_bound(row: InstanceRow, best: BestKnown) -> bool:
    return row.period is not None and Fraction(row.period) <= best.period_bound


def _value(row: InstanceRow, figure: str) -> Fraction | None:
    value = getattr(row, figure)
    return None if value is None else Fraction(value)


def _gap(figure: str, rows: Iterable[InstanceRow], best: Mapping[str, BestKnown]) -> list[float] | None:
    pairs = [
        (float(value / known) - 1, float(value / Fraction(best[row.instance].bound(figure))) - 1)
        for row in rows
        if (value := _value(row, figure)) is not None
        and (known := best[row.instance].best(figure)) is not None
    ]
    if not pairs:
        return None
    return [round(100 * mean(each), 2) for each in zip(*pairs, strict=True)]


def beaten_by_hand(rows: Sequence[InstanceRow]) -> list[str]:
    """Return where a hand-made schedule is better than the search with any seed, a line for each instance."""
    searched: dict[str, list[InstanceRow]] = {}
    for row in rows:
        if row.method != BY_HAND:
            searched.setdefault(row.instance, []).append(row)
    lines = []
    for row in rows:
        if row.method != BY_HAND or row.instance not in searched:
            continue
        parts = []
        for figure in FIGURES:
            by_hand, found = _value(row, figure), [_value(each, figure) for each in searched[row.instance]]
            ours = min((value for value in found if value is not None), default=None)
            if by_hand is not None and (ours is None or by_hand < ours):
                parts.append(f"{figure} " + (f"{float(ours / by_hand) - 1:.1%} above" if ours else "none"))
        if parts:
            lines.append(f"{row.instance}: {', '.join(parts)} ({row.note})")
    return lines


def markdown(rows: Sequence[InstanceRow], best: Mapping[str, BestKnown]) -> str:
    """Return the gaps of the search and of the hand-made schedules, and where these are better."""
    texts = [LEGEND]
    for title, method in (("Search", "search"), ("Best schedule made by hand", BY_HAND)):
        chosen = [row for row in rows if row.method == method]
        if chosen:
            texts.append(f"## {title}\n\n{_table(gaps(chosen, best))}")
    if lines := beaten_by_hand(rows):
        texts.append(
            "## Where a schedule made by hand is better\n\n" + "\n".join(f"- {line}" for line in lines)
        )
    return "\n\n".join(texts) + "\n"


def history(runs: Mapping[str, Sequence[InstanceRow]], best: Mapping[str, BestKnown]) -> str:
    """Return a line for each run and for its held-out instances: versions of the search side by side."""
    found = []
    for name, rows in runs.items():
        in_one_group = [replace(row, group=name) for row in rows if row.method != BY_HAND]
        found += gaps(in_one_group, best, with_all=False)
    return _table(found, "version") + "\n"


def _table(found: Sequence[Mapping[str, Any]], first_head: str = "group") -> str:
    rows = [tuple(_cell(gap[head]) for head in _HEADS) for gap in found]
    return markdown_table((first_head, *_HEADS[1:]), rows)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]:.2f} ({value[1]:.2f})"
    return "-" if value is None else str(value)
