"""Files of a plan or a layout for all trainers, with their limits, and the readers of these files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

from placements.forms.reading import Field, in_file, json_file
from placements.forms.texts import write_text
from placements.planners.hybrid.plan import Plan, PlanError
from placements.trainers import megatron, torchtitan
from placements.trainers.as_run import PlanExport, Planned, with_strategies
from placements.trainers.galvatron import to_galvatron
from placements.trainers.job import TrainerJob, plan_job
from placements.trainers.layout import LayoutError, PipelineLayout, layout_of_sizes
from placements.trainers.megatron_forks import write_flagscale, write_primus
from placements.trainers.megatron_layout import DASHED, MegatronPipeline, pipeline_of
from placements.trainers.stage_modes import ModeError
from placements.trainers.words import argument_words, given

_SYSTEMS: Mapping[str, tuple[str, Callable[[Planned], PlanExport]]] = {
    "Galvatron": ("galvatron_config.json", to_galvatron),
    "Megatron-LM": ("megatron.txt", megatron.to_megatron),
    "torchtitan": ("torchtitan.txt", torchtitan.to_torchtitan),
}
"""File of each system, and the function that exports a plan to it."""

TRAINERS: Mapping[str, tuple[str, str, Callable[[TrainerJob, Sequence[str]], str]]] = {
    "megatron": ("Megatron-LM", "megatron.txt", megatron.write),
    "flagscale": ("FlagScale", "flagscale.txt", write_flagscale),
    "primus": ("Primus", "primus.yaml", write_primus),
    "torchtitan": ("torchtitan", "torchtitan.txt", torchtitan.write),
}
"""Name of each trainer, its file, and the function that writes a job with modes to it."""


def job_files(trainer: str, job: TrainerJob, comments: Sequence[str]) -> dict[str, str]:
    """Return the files that say a job to one of `TRAINERS`.

    Raises:
        LayoutError: The trainer would refuse its stages; `ModeError` where it has no words for its modes.
    """
    _, name, write = TRAINERS[trainer]
    texts = {name: write(job, comments)}
    module = "torchtitan_layers.py"
    return texts | ({module: torchtitan.layers_text(job)} if module in texts[name] else {})


def read_any(path: str | Path) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says, or a script's.

    DeepSpeed has no file for it; we write and read its bounds as JSON.

    Raises:
        LayoutError: The file is unreadable, or the framework would refuse it; messages begin with the path.
    """
    if str(path).endswith(".json"):
        with json_file(path, "the path of a deepspeed.json", LayoutError) as whole:
            return MegatronPipeline(read_bounds(whole))
    with in_file(path, LayoutError):
        words = argument_words(path, (torchtitan.SECTION, *DASHED, *DASHED.values()))
        if any(word.startswith(torchtitan.SECTION) for word in words):
            return MegatronPipeline(torchtitan.layout_of_flags(given(words)))
        return pipeline_of(words)


def export(planned: Planned, directory: Path) -> list[str]:
    """Write a plan for other systems, perhaps with layers shared otherwise.

    Returns:
        A line on the files written, and a line on each other system with the reason.
    """
    texts, lines, systems = dict[str, str](), list[str](), list[str]()
    stages = None
    for system, (name, make) in _SYSTEMS.items():
        try:
            exported = make(planned)
        except PlanError as error:
            lines.append(f"not exported to {system}: {error}")
            continue
        its_ms = exported.run.time_ms
        is_slower = its_ms > 1.01 * planned.rated.time_ms
        systems.append(f"{system} (there {its_ms:,.0f} ms)" if is_slower else system)
        texts[name] = exported.text
        if exported.job is None:
            texts["galvatron_differs.txt"] = "".join(f"{line}\n" for line in exported.differs)
        else:
            stages = exported.job.stages
    if systems and planned.chunks is None and (forks := _forks(planned.plan)):
        texts, systems = texts | forks, [*systems, "FlagScale and Primus with recomputation by stage"]
    if stages is not None and stages.num_devices > 1:
        lines += _add("deepspeed.json", lambda: _bounds_text(stages), texts)
    for name, text in texts.items():
        write_text(directory / name, text)
    return [*([f"exported to {', '.join(systems)}: {directory}"] if systems else []), *lines]


def _forks(plan: Plan) -> dict[str, str]:
    """Return the files for forks of Megatron-LM, of a plan that recomputes by stage, else alike."""
    ways = [replace(strategy, recompute="none") for strategy in plan.strategies]
    try:
        job = plan_job(plan, plan.num_micro_batches, "Megatron-LM")
        megatron.mode_arguments(job)
    except ModeError:
        if with_strategies(plan, ways).is_uniform:
            return job_files("flagscale", job, ("FlagScale",)) | job_files("primus", job, ("Primus",))
    except PlanError:
        pass
    return {}


def layout_files(
    layout: PipelineLayout, num_micro_batches: int, group: int | None = None
) -> tuple[dict[str, str], list[str]]:
    """Return the files of all systems that can run a layout, and a line on each limit.

    For the group of micro-batches see `placements.trainers.megatron_layout.MegatronPipeline`.
    """
    job, m, p = TrainerJob(stages=layout, group=group), num_micro_batches, layout.num_devices
    batch = f"--global-batch-size has to be {m} times --micro-batch-size and data parallelism"
    local = f"training.local_batch_size has to be {m} times parallelism.pipeline_parallel_microbatch_size"
    texts, head = dict[str, str](), "Megatron-LM with megatron-core 0.16"
    lines = [
        *_add("megatron.txt", lambda: megatron.write(job, (head, batch)), texts),
        *_add("torchtitan.txt", lambda: torchtitan.write(job, ("torchtitan 0.3.0", local)), texts),
        *_add("deepspeed.json", lambda: _bounds_text(layout), texts),
    ]
    if "torchtitan.txt" in texts and layout.num_chunks > 1:
        try:
            torchtitan.check_interleaved(layout, m)
        except LayoutError as error:
            return texts, [*lines, f"torchtitan.txt: {error}"]
        if group not in (None, theirs := m // (m // p)):
            lines.append(
                f"torchtitan.txt: Interleaved1F1B of torch has groups of {theirs} micro-batches, and "
                f"the timed run has {group}"
            )
    return texts, lines


def _add(name: str, make: Callable[[], str], texts: dict[str, str]) -> list[str]:
    """Add the file of a system to `texts`; return lines on its limits, or on why it is not written."""
    try:
        texts[name] = make()
    except LayoutError as error:
        return [f"no {name}: {str(error).removeprefix('layout: ')}"]
    no_key = "DeepSpeed's config has no key for these bounds; set PipelineModule.parts in a subclass"
    return [f"{name}: {no_key}"] if name == "deepspeed.json" else []


def write_bounds(layout: PipelineLayout) -> list[int]:
    """Return the bounds of DeepSpeed's stages: the number of the first part of each, and of all.

    Raises:
        LayoutError: The layout has several stages on a rank.

    >>> write_bounds(PipelineLayout(2, ("Ett", "tL")))
    [0, 3, 5]
    """
    if layout.num_chunks > 1:
        raise LayoutError(
            f"layout: DeepSpeed: has one stage on each rank, and the layout {layout.num_chunks}; use "
            "num_chunks=1"
        )
    return list(accumulate(layout.sizes, initial=0))


def read_bounds(whole: Field) -> PipelineLayout:
    """Return the layout of ``deepspeed.json``: bounds of stages, and the parts of the model as letters.

    Raises:
        LayoutError: The bounds do not go from 0 to the number of parts without a step back.
    """
    whole.only(("num_stages", "parts", "layers"))
    bounds, layers = whole["parts"].typed(tuple[int, ...]), whole["layers"].text()
    sizes = tuple(end - first for first, end in pairwise(bounds))
    if len(sizes) != whole["num_stages"].value or sum(sizes) != len(layers) or min(bounds[0], *sizes) < 0:
        raise whole["parts"].wrong(
            f"0 to {len(layers)} without a step back",
            "give the first part of each stage, and the number of all",
        )
    return layout_of_sizes(len(sizes), layers, sizes)


def _bounds_text(layout: PipelineLayout) -> str:
    said = {"num_stages": layout.num_devices, "parts": write_bounds(layout), "layers": layout.parts}
    return json.dumps(said, indent=2) + "\n"
