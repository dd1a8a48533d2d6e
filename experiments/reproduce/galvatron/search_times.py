"""How long a search for plans takes, by layers, memory and strategies (Galvatron-BMW, Fig. 5).

CPU seconds of this machine, so that only their growth can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.config.options import require
from experiments.reproduce.galvatron.best_batches import best_batches
from experiments.reproduce.item import Claim, Item, Row, Trend
from placements.cluster import CLUSTERS
from placements.meaning import option
from placements.models.zoo import read_model
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.figures.panels import Panel, Point, draw_panels

METRIC = "search_cpu_s"
"""Of all rows."""

LARGEST = "Galvatron-BMW"
"""The method with the most strategies."""

METHODS = ("DP+TP", "DP+PP", "Galvatron", LARGEST)
"""Those of Fig. 5 (b)."""

MEMORIES_GIB = (4, 8, 16)
"""Those of Fig. 5 (a); the last is that of (b)."""

MOST_SAMPLES = 64
"""The largest batch that is tried."""


@dataclass(frozen=True)
class SearchTimeOptions:
    """Options of the figure."""

    layers: tuple[int, ...] = option((24, 48, 72, 96), "numbers of layers of a BERT with hidden size 1280")


def cases(options: SearchTimeOptions) -> list[str]:
    """Return a case for each number of layers.

    Raises:
        OptionError: There is none, or one that is out of range.
    """
    require(bool(options.layers), "layers", [], "a list of at least one", "give some, as in [24,48]")
    for number in options.layers:
        require(1 <= number <= 1000, "layers", number, "a number of layers from 1 to 1000", "give one")
    return [_case(number) for number in dict.fromkeys(options.layers)]


def make(options: SearchTimeOptions, case: str) -> list[Row]:
    """Return the times for one number of layers."""
    layers = _layers(case)
    asked = [(LARGEST, gib) for gib in MEMORIES_GIB[:-1]] + [(method, MEMORIES_GIB[-1]) for method in METHODS]
    return [_row(layers, *each) for each in asked]


def trends(rows: Sequence[Row]) -> list[Trend]:
    """Return whether the time grows as the paper says."""
    times = {(row.case, row.label): row.ours or 0.0 for row in rows}
    names = sorted({row.case for row in rows}, key=_layers)
    few, many = names[0], names[-1]
    growth = _layers(many) / _layers(few)
    fits = {(row.case, row.label) for row in rows if not row.note}
    ends = [((few, _label(LARGEST, gib)), (many, _label(LARGEST, gib))) for gib in MEMORIES_GIB]
    ratios = [times[last] / times[first] for first, last in ends if {first, last} <= fits]
    largest = [times[name, _label(LARGEST, MEMORIES_GIB[-1])] for name in names]
    small = [max(times[name, _label(method, MEMORIES_GIB[-1])] for method in METHODS[:2]) for name in names]
    by_memory = [[times[name, _label(LARGEST, gib)] for gib in MEMORIES_GIB] for name in names]
    grows = sum(row == sorted(row) for row in by_memory)
    return [
        Trend(
            "the time grows no more than in proportion to the layers",
            max(ratios, default=0.0) <= growth,
            f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} times for {growth:g} times the layers",
        ),
        Trend("more memory takes longer", grows == len(names), f"for {grows} of {len(names)} models"),
        Trend(
            "two kinds of parallelism take less than all",
            all(a < b for a, b in zip(small, largest, strict=True)),
            f"at most {max(small):.2f} s beside at most {max(largest):.2f} s",
        ),
        Trend("hundreds of seconds are enough", max(times.values()) < 1000, f"{max(times.values()):.2f} s"),
    ]


def draw(rows: Sequence[Row]) -> object:
    """Return both parts of the figure, by increasing layers."""
    points: dict[str, list[Point]] = {}
    for row in sorted(rows, key=lambda each: _layers(each.case)):
        if row.ours is not None and not row.note:
            points.setdefault(row.label, []).append(Point(_layers(row.case), row.ours))
    by_memory = [_label(LARGEST, gib) for gib in MEMORIES_GIB]
    by_method = [_label(method, MEMORIES_GIB[-1]) for method in METHODS]
    parts = {"by memory": by_memory, "by strategies": by_method}
    panels = [
        Panel(title, {label: points[label] for label in labels if label in points})
        for title, labels in parts.items()
    ]
    return draw_panels(panels, "layers", "CPU seconds", "Time of a search (Galvatron-BMW, Fig. 5)")


def _row(layers: int, method: str, gib: int) -> Row:
    costs = ShapeCosts(read_model("bert_huge_48", num_layers=layers))
    began = time.process_time()
    found = best_batches(costs, CLUSTERS["galvatron_titan_8"], gib, [method], most=MOST_SAMPLES)[method]
    taken_s = time.process_time() - began
    note = "nothing fits" if found is None else ""
    return Row(_case(layers), _label(method, gib), METRIC, taken_s, digits=2, note=note)


def _case(layers: int) -> str:
    return f"{layers} layers"


def _layers(case: str) -> int:
    return int(case.removesuffix(" layers"))


def _label(method: str, gib: int) -> str:
    return f"{method}, {gib} GiB"


SEARCH_TIMES = Item(
    "galvatron_figure5",
    "Galvatron-BMW, Fig. 5",
    "how long a search takes, by layers, memory and strategies",
    Claim.TREND,
    SearchTimeOptions,
    SearchTimeOptions(layers=(24, 96)),
    cases,
    make,
    trends,
    draw,
    because=(
        "times are of another machine and another search: the paper goes through amounts of memory, ours "
        "ends where nothing better is left, so that more memory may take less time; the published times are "
        "curves without numbers"
    ),
)
"""BERT with hidden size 1280 on 8 RTX TITAN, batches of 8 to 64."""
