"""Fig. 13 and 14 of Tessel as an item: large vocabularies in two shapes, with costs from data sheets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from experiments.config.options import require_limits
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from experiments.reproduce.rows import cases_in, in_all, numbers, rows_with, span, value_of
from experiments.reproduce.tessel.large_vocabulary import (
    CASES,
    PAPER_SPEEDUPS,
    VocabularyRow,
    cluster_of,
    compare_shapes,
    model_of,
    speedup,
)
from placements.forms.meaning import option
from placements.forms.texts import csv_text
from placements.gpus import GPUS

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


def _rows(options: VocabularyOptions, case: str) -> Iterator[Row]:
    """Yield what the plans and schedules of one model are, and the speedup."""
    own = CASES[case]
    found = compare_shapes(model_of(own), cluster_of(own), own.shape, work_limit=options.work_limit)
    for each in found:
        yield from plan_rows(each)
    ratio, published = speedup(found), PAPER_SPEEDUPS[own.shape]
    note = "the paper's is the largest of all models, over existing schedules" if ratio else "not compared"
    yield Row(f"{own.shape} over v_shape", SPEEDUP, ratio, published, digits=2, note=note)


def plan_rows(row: VocabularyRow) -> Iterator[Row]:
    """Yield a row for each metric of a plan."""
    for metric in METRICS:
        value = getattr(row, metric)
        ours = None if value is None else float(value)
        yield Row(_label(row.shape, row.plan), metric, ours, digits=0 if metric in METRICS[:3] else 2)


def _label(shape: str, plan: str) -> str:
    return f"{shape}, {plan}"


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    """Yield what the paper concludes of each shape."""
    for shape, published in PAPER_SPEEDUPS.items():
        models = [row for row in rows_with(rows, metric=SPEEDUP) if CASES[row.case].shape == shape]
        if ratios := numbers(models):
            says = f"the {shape} is faster than the v_shape for every model"
            holds = min(ratios) > 1 and len(ratios) == len(models)
            yield Trend(says, holds, f"{span(ratios)}; the paper: up to {published:g}")
    alike = rows_with(rows, metric="least_memory_gib", label=_label("v_shape", "same_stages"))
    needed = numbers(row for row in alike if CASES[row.case].shape == "m_shape")
    if needed:
        too_much = [gib > GPUS["v100"].memory_gib for gib in needed]
        says = "with as many stages as the best m_shape no v_shape fits, as 1F1B in the paper"
        yield in_all(says, too_much, "models", start="")


def files(rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the plans as ``vocabulary.csv``; what is not there is empty."""
    value, made, lines = value_of(rows), {(row.case, row.label) for row in rows}, []
    for model in cases_in(rows):
        own = CASES[model]
        for shape, plan in (("v_shape", "best"), (own.shape, "best"), ("v_shape", "same_stages")):
            label = _label(shape, plan)
            if (model, label) in made:
                values = (value.get((model, label, metric)) for metric in METRICS)
                shown = ("" if each is None else f"{each:.6g}" for each in values)
                lines.append([model, own.num_gpus, shape, plan, *shown])
    return {"vocabulary.csv": csv_text(("model", "num_gpus", "shape", "plan", *METRICS), lines)}


LARGE_VOCABULARY = Item(
    name="large_vocabulary",
    paper="Tessel",
    part="Fig. 13 and 14",
    title="models of large vocabularies in a V-shape, and with the vocabulary on all GPUs",
    claim=Claim.TREND,
    known=cases,
    make=_rows,
    conclude=_trends,
    small=VocabularyOptions(models=("mt5_1.8b",), work_limit=2.5),
    files=files,
    because=(
        "costs are of data sheets where the paper measured on V100; the V-shape is the best plan that our "
        "planner finds, where the paper has existing schedules whose first stage has the whole embedding. "
        "Within a server a table that tensor-parallel GPUs share costs little, so that a V-shape is nearly "
        "as fast, and for the smallest mT5 faster"
    ),
    supported_by="test_within_a_server_the_shared_vocabulary_gains_less",
)
"""End-to-end training of GPT and mT5."""
