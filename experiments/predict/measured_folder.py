"""Plans of a folder of profiles and links, as they were run and as they are predicted.

The folder's form is in `docs/commands/predict.md`. The order of the blocks is that of DeepSpeed's pipeline
engine: 1F1B whose transfers occupy both of their ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from experiments.predict.board import NOT_PREDICTED, BoardRun
from placements import Kind, Placement
from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.measured.layer_profile import NotProfiledError, read_layer_profiles
from placements.measured.link_fit import read_links
from placements.measured.measured_placement import place_measured
from placements.measured.plan_file import ReplicatedPlan, read_replicated_plan
from placements.measured.profile_folder import ProfiledModel
from schedsearch.comparison.rows import joined
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.validate import validate

TABLE = "plans.csv"

_MAX_BLOCKS = 2_000_000
"""Blocks of a schedule; more would take minutes and gigabytes."""


class MeasuredFolderError(ValueError):
    """A folder of plans is wrong; the message names the file, the value and the remedy in one line."""


@dataclass(frozen=True)
class MeasuredPlanRow:
    """A row of the table of plans; other columns are not read."""

    plan: Annotated[str, Meaning("name of the plan's file")]
    model: Annotated[str, Meaning("name of the model's folder")]
    real_s: Annotated[float | None, Meaning("measured time of an iteration", "s", above=0)] = None
    max_memory_bytes: Annotated[
        float | None, Meaning("measured memory, the most of all GPUs", "bytes", above=0, key="max_mem_B")
    ] = None
    note: Annotated[str, Meaning("remark, which the predictions repeat")] = ""


class MeasuredPlan(NamedTuple):
    """A plan that was run, its row, and its model with the costs of its layers.

    A plan with a note is predicted, but not counted.
    """

    row: MeasuredPlanRow
    plan: ReplicatedPlan
    model: ProfiledModel


def read_measured_folder(folder: str | Path) -> list[MeasuredPlan]:
    """Read a folder; without a profile of a model or a type of GPU, plans on it just have no prediction.

    Raises:
        ValueError: A file is missing or wrong; the message begins with its path.
    """
    folder = Path(folder)
    path, links, plans = folder / TABLE, read_links(folder / "bandwidth"), []
    models = dict[str, ProfiledModel]()
    with in_file(path, MeasuredFolderError):
        rows = csv_records(path, "plan", MeasuredFolderError, MeasuredPlanRow, others=True, once=("plan",))
        for line, row in rows:
            for column, name in (("plan", row.plan), ("model", row.model)):
                if name.startswith(".") or any(mark in name for mark in "/\\\0"):
                    wrong = f"line {line}, column {column}: {name!r} is not the name of a file"
                    raise MeasuredFolderError(f"{wrong}; give one without folders")
            if row.model not in models:
                is_known = (folder / f"memory/{row.model}.json").is_file()
                profiles = read_layer_profiles(folder, row.model) if is_known else {}
                models[row.model] = ProfiledModel(row.model, profiles, links)
            plan = read_replicated_plan(folder / "plans" / f"{row.plan}.json")
            plans.append(MeasuredPlan(row, plan, models[row.model]))
    return plans


def predict_plan(measured: MeasuredPlan, context_mib: float, compute_slowdown: float) -> BoardRun:
    """Predict one plan; where it cannot be, the note says why. It comes first of all with the table's note.

    Context and slowdown are those of `placements.measured.measured_placement.place_measured`.
    """
    row, plan, model = measured
    question = f"model {row.model}, gpus {plan.num_gpus}, global batch {plan.global_batch_size}"
    measured_ms = None if row.real_s is None else 1000 * row.real_s
    measured_gib = None if row.max_memory_bytes is None else row.max_memory_bytes / 2**30
    names = TABLE, row.plan, question, row.plan
    run = BoardRun(*names, measured_ms, measured_gib=measured_gib, note=row.note)
    try:
        if not model.profiles:
            raise NotProfiledError(f"{row.model} lacks a file in memory/ or in profiles/")
        placement = place_measured(plan, model, context_mib, compute_slowdown)
        if (count := len(placement.blocks) * plan.num_micro_batches) > _MAX_BLOCKS:
            raise NotProfiledError(f"{count} blocks are more than the {_MAX_BLOCKS} that are simulated")
        schedule = validate(blocking_one_f_one_b(placement, plan.num_micro_batches))
    except NotProfiledError as why:
        return replace(run, note=joined(row.note, f"{NOT_PREDICTED}{why}"))
    gib = placement.mib(int(peak_memory(schedule).max())) / 1024
    note = joined(row.note, *_remarks(plan, model))
    return replace(run, predicted_ms=placement.ms(schedule.makespan), predicted_gib=gib, note=note)


def blocking_one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B in which each device takes its transfers in the order of the runtime.

    The engine counts steps. In steps of one parity a stage runs forward, in the others backward, and its
    neighbours do the opposite. It begins a forward step with what it exchanges with the stage before it, and
    a backward step with what it exchanges with the one after it: first the gradient, then the activation. So
    two stages always agree on what comes next, and where transfers take no time this is 1F1B.

    The placement is one of `placements.measured.measured_placement`. Every block starts as soon as this order
    and its inputs let it.
    """
    num_stages = sum(block.kind is Kind.O for block in placement.blocks)
    orders = [list(_order(stage, num_stages, num_micro_batches)) for stage in range(num_stages)]
    return as_soon_as_possible(placement, num_micro_batches, orders)


def _order(stage: int, num_stages: int, num_micro_batches: int) -> Iterator[Instance]:
    before = -1
    for step in range(2 * (num_micro_batches + num_stages - 1)):
        is_forward = step % 2 == stage % 2
        now = (step - stage if is_forward else step - 2 * num_stages + stage + 1) // 2
        exchange = [(f"G{stage - 1}", before), (f"A{stage - 1}", now)]
        if not is_forward:
            exchange = [(f"G{stage}", now), (f"A{stage}", before)]
        neighbour = stage - 1 if is_forward else stage + 1
        block = (f"{'F' if is_forward else 'B'}{stage}", now)
        blocks = [*(exchange if 0 <= neighbour < num_stages else []), block]
        yield from (instance for instance in blocks if 0 <= instance[1] < num_micro_batches)
        before = now


def _remarks(plan: ReplicatedPlan, model: ProfiledModel) -> list[str]:
    """Return remarks on layers and sizes that are odd, or not as measured, in a plan that is predicted."""
    size = plan.micro_batch_size
    groups = {group for stage in plan.stages for group in stage.replicas}
    others = [group for group in groups if (size, group.size) not in model.profiles[group.gpu].layers]
    between = sorted(f"{group.gpu} with tensor parallelism {group.size}" for group in others)
    named = Counter(layer for stage in plan.stages for layer in stage.layers)
    missing = sorted(set(range(next(iter(model.profiles.values())).num_layers)) - {*named})
    repeated = sorted(layer for layer, count in named.items() if count > 1)
    remarks = {
        f"micro-batches of {size} interpolated on ": ", ".join(dict.fromkeys(between)),
        "layers in no stage: ": " ".join(map(str, missing)),
        "layers named more than once: ": " ".join(map(str, repeated)),
    }
    return [f"{words}{names}" for words, names in remarks.items() if names]
