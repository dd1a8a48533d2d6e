"""The board of measured runs: errors by table, pairs in the measured order, our choice beside the best.

It knows nothing of models and costs: a run on it is its figures, its question and its layout.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from placements.models.training_figures import TrainingFigures
from schedsearch.comparison.rows import joined

NOT_PREDICTED = "not predicted: "
"""Before the reason, in the note of a run without a prediction."""

LEFT_OUT = 0.01
"""Share by which two measured times differ at least where their order counts."""


class StageTensor(NamedTuple):
    """Tensors of one name on a GPU of a stage of a run, with their size in GiB.

    Attributes:
        run: Name of the run.
        stage: Number of the stage, from 0.
        kind: See `placements.models.memory.MemoryKind`.
        tensor: Name of the tensors.
        gib: GiB of all of them together.
        held: Micro-batches of which they are held, of several chunks the most; 1 of states.
        rule: The rule in words by which they are counted.
    """

    run: str
    stage: int
    kind: str
    tensor: str
    gib: float
    held: int
    rule: str


@dataclass(frozen=True)
class BoardRun:
    """A run with its predictions, without its model.

    Attributes:
        table: Name of its table.
        run: Name of the run.
        question: Model, GPUs, global batch and all else besides the layout, in words.
        layout: How its GPUs share the work, in words.
        measured_ms: Time of an iteration; None where it is not known, as of all figures.
        predicted_ms: The same as we predict it, and `peer_ms` as another tool does.
        measured_gib: Memory of the fullest GPU; `predicted_gib` and `peer_gib` likewise.
        gib_by_stage: Predicted memory of a GPU of each stage, in words.
        note: Note of its table, then remarks on the prediction, or why there is none.
        is_given: Whether the calibration is by it, so that it has no error.
        tokens_per_s_per_gpu: Predicted throughput; for it and the others see
            `placements.models.training_figures.TrainingFigures`.
        memory: Tensors of the fullest stage.
    """

    table: str
    run: str
    question: str
    layout: str
    measured_ms: float | None = None
    predicted_ms: float | None = None
    peer_ms: float | None = None
    measured_gib: float | None = None
    predicted_gib: float | None = None
    peer_gib: float | None = None
    gib_by_stage: str = ""
    note: str = ""
    is_given: bool = False
    tokens_per_s_per_gpu: float | None = None
    mfu_percent: float | None = None
    j_per_token: float | None = None
    tokens_per_kwh: float | None = None
    memory: tuple[StageTensor, ...] = ()

    def __str__(self) -> str:
        """Return the prediction in a line, or why there is none."""
        if self.predicted_ms is None or self.predicted_gib is None:
            return f"{self.run}: {self.note}"
        figures = self.tokens_per_s_per_gpu, self.mfu_percent, self.j_per_token, self.tokens_per_kwh
        words = f"{self.predicted_ms:,.0f} ms, {self.predicted_gib:.1f} GiB, {TrainingFigures(*figures)}"
        return f"{self.run}: {joined(words, self.note)}"

    @property
    def refusal(self) -> str:
        """Why it is not predicted; empty where it is."""
        return self.note.rpartition(NOT_PREDICTED)[2] if self.predicted_ms is None else ""

    def pair(self, unit: str, by: str = "predicted") -> tuple[float, float] | None:
        """Return the measured figure in ``ms`` or ``gib`` and the prediction; None without one of both.

        It is predicted by us, or by another tool with `by` as ``peer``.
        """
        pair = getattr(self, f"measured_{unit}"), getattr(self, f"{by}_{unit}")
        return None if None in pair else pair


def by_table(runs: Sequence[BoardRun]) -> dict[str, list[BoardRun]]:
    """Return runs by their tables, in order."""
    tables = dict.fromkeys(run.table for run in runs)
    return {table: [run for run in runs if run.table == table] for table in tables}


def refusals(runs: Iterable[BoardRun]) -> list[tuple[str, int]]:
    """Return the reasons for which runs are not predicted, with their numbers, the most frequent first."""
    return Counter(run.refusal for run in runs if run.refusal).most_common()


def group_rows(runs: Iterable[BoardRun]) -> list[dict[str, Any]]:
    """Return a row for each question to which a table has layouts, by the names of its columns.

    Two or more different layouts are predicted and measured; of several runs of a layout the shortest counts.
    The best one is the shortest that was measured, predicted or not; the chosen one has the shortest
    prediction, and of equal ones the longest time. A pair of layouts counts where the measured times differ
    by `LEFT_OUT` or more; predicted as equal it is out of order.
    """
    groups = defaultdict[tuple[str, str], list[tuple[float, BoardRun]]](list)
    for run in runs:
        if run.measured_ms is not None:
            groups[run.table, run.question].append((run.measured_ms, run))
    rows = []
    for (table, question), every in groups.items():
        some = {run.layout: (ms, run) for ms, run in sorted(every, key=lambda row: -row[0])}.values()
        known = [(run.predicted_ms, ms, run) for ms, run in some if run.predicted_ms is not None]
        known.sort(key=lambda row: (row[0], -row[1]))
        if len(known) < 2:
            continue
        predicted_ms, measured_ms = np.array([row[:2] for row in known]).T
        pairs = right = 0
        for i, ms in enumerate(measured_ms):
            then_ms = measured_ms[i + 1 :]
            counts = abs(ms - then_ms) >= LEFT_OUT * np.minimum(ms, then_ms)
            pairs += int(counts.sum())
            right += int((counts & (predicted_ms[i] < predicted_ms[i + 1 :]) & (ms < then_ms)).sum())
        best_ms, best = min(some, key=lambda row: row[0])
        _, chosen_ms, chosen = known[0]
        row = {"table": table, "question": question, "runs": len(every), "predicted": len(known)}
        row |= {"best": best.layout, "best_ms": best_ms, "chosen": chosen.layout, "chosen_ms": chosen_ms}
        row["longer_percent"] = round(100 * (chosen_ms / best_ms - 1), 4)
        rows.append(row | {"pairs": pairs, "pairs_in_order": right})
    return rows


def board_rows(runs: Sequence[BoardRun]) -> list[dict[str, Any]]:
    """Return the row of each table; of several tables a last one of all."""
    rows = [board_row(table, some) for table, some in by_table(runs).items()]
    return [*rows, board_row("all tables", runs)] if len(rows) > 1 else rows


def board_row(table: str, runs: Sequence[BoardRun]) -> dict[str, Any]:
    """Return the figures of some runs by the names of columns; None where there is nothing to compare.

    Errors are shares of the measured figures; the run of a calibration has none.
    """
    groups, counted = group_rows(runs), [run for run in runs if not run.is_given]
    row = {"table": table, "runs": len(runs), "refused": sum(bool(run.refusal) for run in runs)}
    for name, unit in (("time", "ms"), ("memory", "gib")):
        for prefix, by in (("", "predicted"), ("peer_", "peer")):
            pairs = [pair for run in counted if (pair := run.pair(unit, by))]
            errors = [100 * abs(predicted / measured - 1) for measured, predicted in pairs]
            row |= {f"{prefix}{name}_runs": len(errors)} | _mean_and_worst(f"{prefix}{name}_error", errors)
    number, right = (sum(group[name] for group in groups) for name in ("pairs", "pairs_in_order"))
    row |= {"pairs": number, "pairs_in_order_percent": round(100 * right / number, 4) if number else None}
    row |= {"groups": len(groups)} | _mean_and_worst("longer", [group["longer_percent"] for group in groups])
    return row | {"refusals": "; ".join(f"{count} x {why}" for why, count in refusals(runs))}


def _mean_and_worst(name: str, percents: Sequence[float]) -> dict[str, Any]:
    figures = (sum(percents) / len(percents), max(percents)) if percents else ()
    mean, worst = (round(figure, 4) for figure in figures) if figures else (None, None)
    return {f"{name}_percent": mean, f"worst_{name}_percent": worst}
