"""How long a search for plans takes, by layers, memory and strategies (Galvatron-BMW, Fig. 5).

CPU seconds of this machine, so that only their growth can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.reproduce.galvatron.best_batches import best_batches
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import curves, in_all, value_of
from placements.cluster import CLUSTERS
from placements.forms.meaning import option
from placements.models.zoo import read_model
from placements.planners.hybrid.shape_costs import ShapeCosts
from schedsearch.figures.panels import Panel, draw_panels

METRIC = "search_cpu_s"
"""Of all rows."""

LARGEST = "Galvatron-BMW"
"""The method with the most strategies."""

_BY_MEMORY = {f"{LARGEST}, {gib} GiB": (LARGEST, gib) for gib in (4, 8, 16)}
_BY_METHOD = {f"{method}, 16 GiB": (method, 16) for method in ("DP+TP", "DP+PP", "Galvatron", LARGEST)}
"""Methods and memories of Fig. 5 (a) and (b), by the names of their curves."""

MOST_SAMPLES = 64
"""The largest batch that is tried."""


@dataclass(frozen=True)
class SearchTimeOptions:
    """Options of the figure."""

    layers: tuple[int, ...] = option(
        (24, 48, 72, 96), "numbers of layers of a BERT with hidden size 1280", min=1, max=1000
    )


def _cases(options: SearchTimeOptions) -> dict[str, int]:
    return {f"{number} layers": number for number in options.layers}


def _rows(_: SearchTimeOptions, layers: int) -> Iterator[Row]:
    """Yield the times for one number of layers; a search in which nothing fits is in no series."""
    cluster = CLUSTERS["galvatron_titan_8"]
    for label, (method, gib) in (_BY_MEMORY | _BY_METHOD).items():
        costs = ShapeCosts(read_model("bert_huge_48", num_layers=layers))
        began = time.process_time()
        found = best_batches(costs, cluster, gib, [method], most=MOST_SAMPLES)[method]
        taken_s = time.process_time() - began
        note, series = ("nothing fits", "") if found is None else ("", label)
        yield Row(label, METRIC, taken_s, digits=2, note=note, series=series, at=layers)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    times, fits = value_of(rows, "at", "label"), value_of(rows, "at", "series")
    layers = sorted({at for at, _ in times})
    few, many = layers[0], layers[-1]
    ends = [((few, label), (many, label)) for label in _BY_MEMORY]
    ratios = [times[last] / times[first] for first, last in ends if {first, last} <= fits.keys()]
    yield Trend(
        "the time grows no more than in proportion to the layers",
        max(ratios, default=0.0) <= many / few,
        f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} times for {many / few:g} times the layers",
    )
    by_memory = [[times[at, label] for label in _BY_MEMORY] for at in layers]
    grows = [each == sorted(each) for each in by_memory]
    yield in_all("more memory takes longer", grows, "models", start="for ")
    *_, all_kinds = ([times[at, label] for at in layers] for label in _BY_METHOD)
    small = [max(times[at, label] for label in [*_BY_METHOD][:2]) for at in layers]
    yield Trend(
        "two kinds of parallelism take less than all",
        all(a < b for a, b in zip(small, all_kinds, strict=True)),
        f"at most {max(small):.2f} s beside at most {max(all_kinds):.2f} s",
    )
    longest_s = max(times.values())
    yield Trend("hundreds of seconds are enough", longest_s < 1000, f"{longest_s:.2f} s")


def _draw(rows: Sequence[Row]) -> object:
    found = curves(rows)
    panels = [
        Panel(title, {label: found[label] for label in labels if label in found})
        for title, labels in (("by memory", _BY_MEMORY), ("by strategies", _BY_METHOD))
    ]
    return draw_panels(panels, "layers", "CPU seconds", "Time of a search (Galvatron-BMW, Fig. 5)")


SEARCH_TIMES = described(
    "galvatron_figure5",
    _cases,
    _rows,
    conclude=_trends,
    draw=_draw,
    small=SearchTimeOptions(layers=(24, 96)),
)

ITEMS = (SEARCH_TIMES,)
