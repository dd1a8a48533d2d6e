"""Fig. 13 and 14 of Tessel as an item: large vocabularies in two shapes, with costs from data sheets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from experiments.config.options import require_limits
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from experiments.reproduce.tessel.large_vocabulary import (
    CASES,
    PAPER_SPEEDUPS,
    VocabularyRow,
    cluster_of,
    compare_shapes,
    model_of,
    speedup,
)
from placements.files import csv_text
from placements.hardware import GPUS
from placements.meaning import option

SPEEDUP = "speedup"
"""Metric of the row that has a published value."""

METRICS = tuple(field.name for field in fields(VocabularyRow))[2:]
"""The fields of a `VocabularyRow` behind its shape and plan, each a row of the item."""


@dataclass(frozen=True)
class VocabularyOptions:
    """Options of all figures with a large vocabulary."""

    models: tuple[str, ...] = option(tuple(CASES), "models of Tessel's Table III")
    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core"
    )


def cases(options: VocabularyOptions) -> Sequence[str]:
    """Return the models.

    Raises:
        OptionError: There is no such model, or no work.
    """
    check_names("models", options.models, CASES)
    require_limits(options)
    return options.models


def make(options: VocabularyOptions, case: str) -> list[Row]:
    """Return the rows of one model: what its plans and schedules are, and the speedup."""
    own = CASES[case]
    found = compare_shapes(model_of(own), cluster_of(own), own.shape, work_limit=options.work_limit)
    rows = [row for each in found for row in plan_rows(case, each)]
    ratio = speedup(found)
    note = "the paper's is the largest of all models, over existing schedules" if ratio else "not compared"
    published = PAPER_SPEEDUPS[own.shape]
    return [*rows, Row(case, f"{own.shape} over v_shape", SPEEDUP, ratio, published, digits=2, note=note)]


def trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield what the paper concludes of each shape."""
    for shape in PAPER_SPEEDUPS:
        models = [row for row in rows if row.metric == SPEEDUP and CASES[row.case].shape == shape]
        ratios = [row.ours for row in models if row.ours is not None]
        if ratios:
            shown = (
                f"{min(ratios):.2f} to {max(ratios):.2f} times; the paper: up to {PAPER_SPEEDUPS[shape]:g}"
            )
            says = f"the {shape} is faster than the v_shape for every model"
            yield Trend(says, min(ratios) > 1 and len(ratios) == len(models), shown)
    min_gib = {
        row.case: row.ours for row in rows if row.metric == "least_memory_gib" and row.label == _SAME_STAGES
    }
    needed = {
        model: gib for model, gib in min_gib.items() if CASES[model].shape == "m_shape" and gib is not None
    }
    if needed:
        has_gib = GPUS["v100"].memory_gib
        too_much = sum(gib > has_gib for gib in needed.values())
        says = "with as many stages as the best m_shape no v_shape fits, as 1F1B in the paper"
        yield Trend(says, too_much == len(needed), f"{too_much} of {len(needed)} models")


def files(rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the plans as ``vocabulary.csv``; what is not there is empty."""
    plans: dict[tuple[str, str], dict[str, float | None]] = {}
    for row in rows:
        if row.metric in METRICS:
            plans.setdefault((row.case, row.label), {})[row.metric] = row.ours
    lines = []
    for (model, label), values in plans.items():
        shown = ["" if value is None else f"{value:.6g}" for value in map(values.get, METRICS)]
        lines.append([model, CASES[model].num_gpus, *label.split(", "), *shown])
    return {"vocabulary.csv": csv_text(("model", "num_gpus", "shape", "plan", *METRICS), lines)}


_SAME_STAGES = "v_shape, same_stages"


def plan_rows(case: str, row: VocabularyRow) -> Iterator[Row]:
    """Yield a row for each metric of a plan."""
    for metric in METRICS:
        value = getattr(row, metric)
        digits = 0 if metric in METRICS[:3] else 2
        yield Row(
            case, f"{row.shape}, {row.plan}", metric, None if value is None else float(value), digits=digits
        )


LARGE_VOCABULARY = Item(
    "large_vocabulary",
    "Tessel, Fig. 13 and 14",
    "models of large vocabularies in a V-shape, and with the vocabulary on all GPUs",
    Claim.TREND,
    VocabularyOptions,
    VocabularyOptions(models=("mt5_1.8b",), work_limit=2.5),
    cases,
    make,
    lambda rows: tuple(trends(rows)),
    files=files,
    because=(
        "costs are of data sheets where the paper measured on V100; the V-shape is the best plan that our "
        "planner finds, where the paper has existing schedules whose first stage has the whole embedding"
    ),
)
"""End-to-end training of GPT and mT5."""
