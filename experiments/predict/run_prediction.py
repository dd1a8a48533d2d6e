"""Time and memory of runs by their model, their GPUs and their degrees.

The memory of the fullest stage is listed by tensor, at its peak. Sizes are from `placements.models.costing`,
orders from the run's schedule.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

from experiments.predict.board import NOT_PREDICTED, BoardRun, StageTensor
from experiments.predict.modelled_run import Calibration, as_modelled
from experiments.predict.run_table import RunFolder
from experiments.predict.runs.run import Run
from placements import Kind
from placements.models.costing.layer_costs import layer_memory
from placements.models.memory import STATE_KINDS, Framework, MemoryItem
from placements.models.training_figures import IterationWork
from schedsearch.comparison.rows import joined
from schedsearch.metrics import modelled_energy_mj
from schedsearch.planning.uniform_run import UniformRun

_LAYOUT = {
    *("tp", "pp", "vp", "cp", "ep", "etp", "dp", "micro_batch", "context_sharing", "sequence_parallel"),
    *("zero", "shard_gpus", "reshard", "layout", "first_stage_layers", "last_stage_layers", "chunk_layers"),
    *("schedule", "recompute", "recompute_layers", "recompute_modules", "offload"),
}
"""Columns that say how GPUs share the work: the choices of one question."""

_NO_QUESTION = ("run", "note", "refused", "measured_", "peer_", "tokens_per_s", "num_micro_batches")
"""Begins of the names of other columns in which such choices may differ; the global batch stands for the
micro-batches."""

_KINDS = (*STATE_KINDS, "kept", "backward", "buffer")
"""Kinds of tensors, in the order of the table."""


def predict_run(
    folder: RunFolder, run: Run, framework: Framework, calibration: Calibration | None = None, table: str = ""
) -> BoardRun:
    """Predict one run, with the factors of its GPU; where it cannot be, the note says why."""
    names = ("run", "measured_ms", "peer_ms", "measured_gib", "peer_gib", "note")
    question, layout = _question_and_layout(run)
    row = BoardRun(
        table=table,
        question=question,
        layout=layout,
        **{name: getattr(run, name) for name in names},
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
        gib_by_stage=";".join(f"{stage_gib:.2f}" for stage_gib in gib),
        note=joined(run.note, *remarks),
        **work.figures(model.iteration_ms, energy_mj)._asdict(),
        memory=tuple(stage_memory(model, fullest, run.run)),
    )


def _question_and_layout(run: Run) -> tuple[str, str]:
    """Return the question (model, GPUs, batch) and the layout of a run in words, without defaults."""
    usual = {field.name: field.default for field in fields(run)}
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


def stage_memory(run: UniformRun, stage: int, name: str = "") -> list[StageTensor]:
    """Return the tensors of a stage by kind, largest first in each; the run has this name.

    What its chunks keep is counted for as many micro-batches as each holds when the stage holds most.
    Where that is in a backward, layers whose backward has run already keep nothing of its micro-batch.
    """
    plan, held, running = run.plan, *_at_peak(run, stage)
    where = plan.micro_batch_size, plan.num_micro_batches, plan.group(stage), run.costs.options
    tensors = dict[tuple[str, ...], StageTensor]()
    for chunk in run.chunks_on(stage):
        layers = [layer_memory(layer, how, *where) for layer, how in run.layers_in(run.chunks[chunk])]
        last = _last_at_peak(layers) if chunk == running else -1
        for i, items in enumerate(layers):
            for kind, tensor, num_bytes, rule in items:
                count = held[chunk] + (i <= last) if kind == "kept" else 1
                if not count * num_bytes or (kind == "backward" and i != last):
                    continue
                empty = StageTensor(name, stage, kind, tensor, 0.0, 0, rule)
                same = tensors.get((kind, tensor, rule), empty)
                gib = (same.gib if kind != "buffer" else 0.0) + count * num_bytes / 2**30
                tensors[kind, tensor, rule] = same._replace(gib=gib, held=max(same.held, count))
    ordered = sorted(tensors.values(), key=lambda row: (_KINDS.index(row.kind), -row.gib))
    return [row._replace(gib=round(row.gib, 6)) for row in ordered]


def _at_peak(run: UniformRun, stage: int) -> tuple[Counter[int], int | None]:
    """Return the micro-batches that each chunk of a stage holds at the stage's memory peak.

    Returns:
        Micro-batches whose tensors each chunk keeps, without the one whose backward runs; and the chunk
        of this backward, None if a forward runs.
    """
    held, most = Counter[int](), -1.0
    peak: tuple[Counter[int], int | None] = Counter(), None
    for name, _ in run.schedule.order(stage):
        kind, chunk = run.placement.by_name[name].kind, int(name[1:])
        if kind in (Kind.O, Kind.I):
            continue
        cost, is_backward = run.pieces[chunk].cost, kind is not Kind.F
        held[chunk] += -1 if is_backward else 1
        total = sum(count * run.pieces[i].cost.kept_bytes for i, count in held.items())
        total += cost.backward_peak_bytes if is_backward else cost.forward_bytes
        if total > most:
            most, peak = total, (Counter(held), chunk if is_backward else None)
    return peak


def _last_at_peak(layers: list[tuple[MemoryItem, ...]]) -> int:
    """Return the layer whose backward has the chunk's memory peak; see `Cost.backward_peak_bytes`."""
    kept, peaks = 0.0, list[float]()
    for items in layers:
        kept += sum(item.num_bytes for item in items if item.kind == "kept")
        peaks.append(kept + sum(item.num_bytes for item in items if item.kind == "backward"))
    return peaks.index(max(peaks))
