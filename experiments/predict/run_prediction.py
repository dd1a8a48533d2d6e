"""Time and memory of runs by their model, their GPUs and their degrees."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

from experiments.predict.board import NOT_PREDICTED, BoardRun, joined
from experiments.predict.calibration import Calibration
from experiments.predict.modelled_run import as_modelled
from experiments.predict.run_table import RunFolder
from experiments.predict.runs.run import Run
from experiments.predict.stage_memory import stage_memory
from placements.models.memory import Framework
from placements.models.training_figures import IterationWork
from schedsearch.metrics import modelled_energy_mj

_LAYOUT = {
    *("tp", "pp", "vp", "cp", "ep", "etp", "dp", "micro_batch", "context_sharing", "sequence_parallel"),
    *("zero", "shard_gpus", "reshard", "layout", "first_stage_layers", "last_stage_layers", "chunk_layers"),
    *("schedule", "recompute", "recompute_layers", "recompute_modules", "offload"),
}
"""Columns that say how GPUs share the work: the choices of one question."""

_NO_QUESTION = ("run", "note", "refused", "measured_", "peer_", "tokens_per_s", "num_micro_batches")
"""Begins of the names of other columns in which such choices may differ; the global batch stands for the
micro-batches."""


def predict_run(
    folder: RunFolder,
    run: Run,
    framework: Framework,
    calibration: Calibration | None = None,
    table: str = "",
) -> BoardRun:
    """Predict one run, with the factors of its GPU; where it cannot be, the note says why."""
    row = BoardRun(
        *(table, run.run, *_question_and_layout(run), run.measured_ms, None, run.peer_ms),
        *(run.measured_gib, None, run.peer_gib),
        note=run.note,
        is_given=calibration is not None and run in calibration.runs,
    )
    try:
        model = as_modelled(folder, run, framework)
        if calibration is not None and calibration.gpu == run.gpu:
            model = replace(model, options=calibration.of(model.options))
        gib = model.gib_by_stage
    except ValueError as why:
        return replace(row, note=joined(run.note, f"{NOT_PREDICTED}{str(why).splitlines()[0]}"))
    remarks, limit_gib = list[str](), model.cluster.whole.memory_gib
    if not model.costs.options.rates_on(model.cluster.whole.gpu).is_measured:
        of_precision = f" in {run.precision}" if run.gpu in folder.machines else ""
        remarks.append(f"rates of {run.gpu}{of_precision} assumed, not measured")
    if max(gib) > limit_gib:
        remarks.append(f"does not fit: {max(gib):.1f} GiB of {limit_gib:g}")
    fullest, gpus = gib.index(max(gib)), model.plan.stage_gpus
    stage = {"fullest": fullest, "first": 0, "last": -1}[run.measured_stage]
    work = IterationWork.of(model.model, sum(gpus, Counter()), model.plan.global_batch_size)
    energy_mj = modelled_energy_mj(model.schedule, gpus, model.iteration_ms)
    return replace(
        row,
        predicted_ms=model.iteration_ms,
        predicted_gib=gib[stage],
        gib_by_stage=";".join(f"{each:.2f}" for each in gib),
        note=joined(run.note, *remarks),
        **work.figures(model.iteration_ms, energy_mj)._asdict(),
        memory=tuple(stage_memory(model, fullest, run.run)),
    )


def _question_and_layout(run: Run) -> tuple[str, str]:
    """Return all besides the layout, and the layout, in words without what a row does not say."""
    usual = {each.name: each.default for each in fields(run)}
    names = sorted(usual, key=lambda name: name != "model")
    said = {name: value for name in names if (value := getattr(run, name)) != usual[name]}
    others = {name: said[name] for name in said if not name.startswith(_NO_QUESTION) and name not in _LAYOUT}
    if run.num_micro_batches:
        others["global_batch"] = run.num_micro_batches * run.micro_batch * run.data_parallel
    layout = {name: said[name] for name in said if name in _LAYOUT}
    question, words = (
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
        for values in (others, layout)
    )
    return question, words
