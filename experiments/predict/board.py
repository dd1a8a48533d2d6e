"""The board of measured runs: errors by table, pairs in the measured order, our choice beside the best.

It knows nothing of models and costs: a run on it is its figures, its question and its layout.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

from experiments.predict.errors import error_of
from experiments.predict.run_prediction import RunPrediction

NOT_PREDICTED = "not predicted: "
"""Before the reason, in the note of a run without a prediction."""

LEFT_OUT = 0.01
"""Share by which two measured times differ at least where their order counts."""

_LAYOUT = {
    *("tp", "pp", "vp", "cp", "ep", "etp", "dp", "micro_batch", "context_sharing", "sequence_parallel"),
    *("zero", "shard_gpus", "reshard", "layout", "first_stage_layers", "last_stage_layers", "chunk_layers"),
    *("schedule", "recompute", "recompute_layers", "recompute_modules", "offload"),
}
"""Fields of `Run` that say how GPUs share the work: the choices of one question."""

_NO_QUESTION = ("run", "note", "refused", "measured_", "peer_", "tokens_per_s", "num_micro_batches")
"""Begins of the names of other fields in which such choices may differ; the global batch stands for the
micro-batches."""


@dataclass(frozen=True)
class BoardRun:
    """A run with its predictions, without its model.

    Attributes:
        table: Name of its table.
        run: Name of the run.
        question: Model, GPUs, global batch and all else besides the layout, in words.
        layout: How its GPUs share the work, in words.
        measured_ms: Time of an iteration; None where it is not known, as of all figures.
        predicted_ms: The same as we predict it.
        peer_ms: The same as another tool predicts it.
        measured_gib: Memory of the fullest GPU.
        predicted_gib: The same as we predict it.
        peer_gib: The same as another tool predicts it.
        gib_by_stage: Predicted memory of a GPU of each stage, in words.
        note: Note of its table, then remarks on the prediction, or why there is none.
        is_given: Whether the calibration is by it, so that it has no error.
        tokens_per_s_per_gpu: Predicted throughput; for it and the others see
            `placements.models.training_figures.TrainingFigures`.
    """

    table: str
    run: str
    question: str
    layout: str
    measured_ms: float | None
    predicted_ms: float | None
    peer_ms: float | None
    measured_gib: float | None
    predicted_gib: float | None
    peer_gib: float | None
    gib_by_stage: str = ""
    note: str = ""
    is_given: bool = False
    tokens_per_s_per_gpu: float | None = None
    mfu_percent: float | None = None
    j_per_token: float | None = None
    tokens_per_kwh: float | None = None

    @property
    def refusal(self) -> str:
        """Why it is not predicted; empty where it is."""
        return self.note.rpartition(NOT_PREDICTED)[2] if self.predicted_ms is None else ""

    @classmethod
    def of(cls, table: str, found: RunPrediction, is_given: bool = False) -> BoardRun:
        """Return a prediction of a row; words leave out what a row does not say."""
        run = found.run
        usual = {each.name: each.default for each in fields(run)}
        names = sorted(usual, key=lambda name: name != "model")
        said = {name: getattr(run, name) for name in names if getattr(run, name) != usual[name]}
        layout = {name: said[name] for name in said if name in _LAYOUT}
        others = [name for name in said if name not in layout and not name.startswith(_NO_QUESTION)]
        asked = {name: said[name] for name in others}
        if run.num_micro_batches:
            asked["global_batch"] = run.num_micro_batches * run.micro_batch * run.data_parallel
        times = run.measured_ms, found.predicted_ms, run.peer_ms
        memory = run.measured_gib, found.predicted_gib, run.peer_gib
        by_stage = ";".join(f"{gib:.2f}" for gib in found.gib_by_stage)
        texts = _in_words(asked), _in_words(layout)
        return cls(table, run.run, *texts, *times, *memory, by_stage, found.note, is_given, *found.figures)


def _in_words(values: dict[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def by_table(runs: Iterable[BoardRun]) -> dict[str, list[BoardRun]]:
    """Return runs by their tables, in order."""
    found = defaultdict[str, list[BoardRun]](list)
    for run in runs:
        found[run.table].append(run)
    return found


def refusals(runs: Iterable[BoardRun]) -> list[tuple[str, int]]:
    """Return the reasons for which runs are not predicted, with their numbers, the most frequent first."""
    return Counter(run.refusal for run in runs if run.refusal).most_common()


def errors(runs: Iterable[BoardRun], unit: str, by: str = "predicted") -> list[float]:
    """Return sizes of errors in percent of ``ms`` or ``gib``; the run of a calibration has none.

    They are by ``predicted`` of ours, by ``peer`` of another tool.
    """
    pairs = (
        (getattr(run, f"{by}_{unit}"), getattr(run, f"measured_{unit}")) for run in runs if not run.is_given
    )
    return [100 * abs(error) for pair in pairs if (error := error_of(*pair)) is not None]


def group_rows(runs: Iterable[BoardRun]) -> list[dict[str, Any]]:
    """Return a row for each question to which a table has layouts, by the names of its columns.

    Two or more different layouts are predicted and measured. The best one is the shortest that was measured,
    predicted or not; the chosen one has the shortest prediction. A pair of layouts counts where the measured
    times differ by `LEFT_OUT` or more; predicted as equal it is out of order.
    """
    groups = defaultdict[tuple[str, str], list[tuple[float, BoardRun]]](list)
    for run in runs:
        if run.measured_ms is not None:
            groups[run.table, run.question].append((run.measured_ms, run))
    rows = []
    for (table, question), some in groups.items():
        known = [(run.predicted_ms, ms, run) for ms, run in some if run.predicted_ms is not None]
        known.sort(key=lambda row: (row[0], -row[1]))  # of equal predictions the longest time is chosen
        if len({run.layout for _, _, run in known}) < 2:
            continue
        pairs = [
            shorter < longer and first_ms < then_ms
            for (shorter, first_ms, first), (longer, then_ms, then) in combinations(known, 2)
            if first.layout != then.layout and abs(first_ms - then_ms) >= LEFT_OUT * min(first_ms, then_ms)
        ]
        best_ms, best = min(some, key=lambda row: row[0])
        _, chosen_ms, chosen = known[0]
        rows.append(
            {
                "table": table,
                "question": question,
                "runs": len(some),
                "predicted": len(known),
                "best": best.layout,
                "best_ms": best_ms,
                "chosen": chosen.layout,
                "chosen_ms": chosen_ms,
                "longer_percent": round(100 * (chosen_ms / best_ms - 1), 4),
                "pairs": len(pairs),
                "pairs_in_order": sum(pairs),
            }
        )
    return rows


def board_rows(runs: Sequence[BoardRun]) -> list[dict[str, Any]]:
    """Return the row of each table; of several tables a last one of all."""
    rows = [board_row(table, some) for table, some in by_table(runs).items()]
    return [*rows, board_row("all tables", runs)] if len(rows) > 1 else rows


def board_row(table: str, runs: Sequence[BoardRun]) -> dict[str, Any]:
    """Return the figures of some runs by the names of columns; None where there is nothing to compare."""
    groups = group_rows(runs)
    row = {"table": table, "runs": len(runs), "refused": sum(bool(run.refusal) for run in runs)}
    for name, unit in (("time", "ms"), ("memory", "gib")):
        for prefix, by in (("", "predicted"), ("peer_", "peer")):
            found = errors(runs, unit, by)
            row |= {f"{prefix}{name}_runs": len(found)} | _mean_and_worst(f"{prefix}{name}_error", found)
    pairs, right = (sum(group[name] for group in groups) for name in ("pairs", "pairs_in_order"))
    row |= {"pairs": pairs, "pairs_in_order_percent": round(100 * right / pairs, 4) if pairs else None}
    row |= {"groups": len(groups)} | _mean_and_worst("longer", [group["longer_percent"] for group in groups])
    return row | {"refusals": "; ".join(f"{count} x {why}" for why, count in refusals(runs))}


def _mean_and_worst(name: str, percents: Sequence[float]) -> dict[str, Any]:
    mean, worst = (sum(percents) / len(percents), max(percents)) if percents else (None, None)
    return {
        f"{name}_percent": None if mean is None else round(mean, 4),
        f"worst_{name}_percent": None if worst is None else round(worst, 4),
    }
