"""Cells of Galvatron-BMW's tables from the constants of 2022, beside what the paper says of them.

It knows the paper's models by name, but not how their plans are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.reproduce.galvatron.published_cells import PublishedCell
from experiments.reproduce.galvatron.published_columns import Best
from experiments.reproduce.galvatron.search_2022.batch_search import best_plan
from experiments.reproduce.galvatron.search_2022.constants import Constants
from placements.files import csv_text

MODELS = {
    "BERT-Huge-32": ("bert_1280", (32,)),
    "BERT-Huge-48": ("bert_1280", (48,)),
    "ViT-Huge-32": ("vit_1280", (32,)),
    "ViT-Huge-48": ("vit_1280", (48,)),
    "T5-Large-32": ("t5_1024", (16, 16)),
    "T5-Large-48": ("t5_1024", (24, 24)),
    "Swin-Huge-32": ("swin_320", (2, 2, 26, 2)),
    "Swin-Huge-48": ("swin_320", (2, 2, 42, 2)),
}
"""By the paper's names (Table I): family and width of the constants, and the layers of each type."""

COLUMNS = (
    "model",
    "memory_gb",
    "method",
    "out_of_memory",
    "batch",
    "throughput",
    "paper_out_of_memory",
    "paper_batch",
    "paper_throughput",
)


@dataclass(frozen=True)
class ReproducedCell:
    """One cell of a table: the paper's and ours.

    Attributes:
        published: The paper's.
        found: Ours; None where nothing fits.
    """

    published: PublishedCell
    found: Best | None

    def to_row(self) -> tuple[str, ...]:
        """Return the values of `COLUMNS`; batches and throughputs are empty where nothing fits."""
        paper = self.published
        ours = self.found or (None, None)
        return (
            paper.model,
            str(paper.memory_gb),
            paper.method,
            *_figures(*ours),
            *_figures(paper.batch, paper.samples_per_s),
        )


def _figures(batch: int | None, samples_per_s: float | None) -> tuple[str, str, str]:
    if batch is None or samples_per_s is None:
        return "true", "", ""
    return "false", str(batch), f"{samples_per_s:.6g}"


def entry_of(model: str, num_gpus: int) -> str:
    """Return the name of the constants of one of `MODELS` on so many GPUs."""
    return f"{MODELS[model][0]}_{num_gpus}gpus"


def best_of(constants: Constants, cell: PublishedCell) -> Best | None:
    """Return the best batch of a cell by the search of 2022; None where nothing fits.

    Args:
        constants: Of the cell's model.
        cell: Of which the model, the memory and the method count.

    Raises:
        ConstantsError: They have not as many types of layers as the model.
    """
    found = best_plan(constants, MODELS[cell.model][1], cell.memory_gb, cell.method.lower())
    return None if found is None else Best(found.batch, found.samples_per_s)


def to_csv(cells: Sequence[ReproducedCell]) -> str:
    """Return the cells as CSV with `COLUMNS`."""
    return csv_text(COLUMNS, (cell.to_row() for cell in cells))


@dataclass(frozen=True)
class Agreement:
    """How much of a table is as in the paper.

    Attributes:
        num_cells: That there are constants for.
        same_out_of_memory: Cells in which both have a batch, or both none.
        both_batches: Cells in which both have a batch.
        same_batch: Those of them in which it is the same.
        throughput_error: By how much ours is off, as a share of the paper's: the mean over the cells in which
            both have a batch; None where there are none.
    """

    num_cells: int
    same_out_of_memory: int
    both_batches: int
    same_batch: int
    throughput_error: float | None


def agreement(cells: Sequence[ReproducedCell]) -> Agreement:
    """Compare the cells with the paper's."""
    same_out_of_memory = sum((cell.found is None) == (cell.published.batch is None) for cell in cells)
    pairs = [(cell.found, cell.published) for cell in cells if cell.found and cell.published.batch]
    errors = [
        abs(ours.samples_per_s / paper.samples_per_s - 1) for ours, paper in pairs if paper.samples_per_s
    ]
    return Agreement(
        len(cells),
        same_out_of_memory,
        len(pairs),
        sum(ours.batch == paper.batch for ours, paper in pairs),
        sum(errors) / len(errors) if errors else None,
    )
