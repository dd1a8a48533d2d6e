"""The files of all systems for a plan or a layout, and what they cannot say; the layout that a file says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from placements.files import write_text
from placements.plain_data import in_file
from placements.planners.hybrid.plan import PlanError
from placements.trainers import megatron, torchtitan
from placements.trainers.as_run import PlanExport, Planned
from placements.trainers.deepspeed import FIELD, write_bounds
from placements.trainers.galvatron import to_galvatron
from placements.trainers.job import TrainerJob
from placements.trainers.layout import LayoutError, PipelineLayout
from placements.trainers.megatron_layout import DASHED, MegatronPipeline, pipeline_of
from placements.trainers.words import argument_words, given

_SYSTEMS: Mapping[str, tuple[str, Callable[[Planned], PlanExport]]] = {
    "Galvatron": ("galvatron_config.json", to_galvatron),
    "Megatron-LM": ("megatron.txt", megatron.to_megatron),
    "torchtitan": ("torchtitan.txt", torchtitan.to_torchtitan),
}
"""File of each system, and what makes its form of a plan."""


def read_any(path: str | Path) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says, or a script's.

    Raises:
        LayoutError: It cannot be read, or the framework would refuse it; the message begins with the path.
    """
    with in_file(path, LayoutError):
        words = argument_words(path, (torchtitan.SECTION, *DASHED, *DASHED.values()))
        if any(word.startswith(torchtitan.SECTION) for word in words):
            return MegatronPipeline(torchtitan.layout_of_flags(given(words)))
        return pipeline_of(words)


def export(planned: Planned, directory: Path) -> list[str]:
    """Write a plan for other systems, perhaps with layers shared otherwise.

    Returns:
        A line of what was written, and one of each other system with the reason.
    """
    texts, lines, systems = dict[str, str](), list[str](), list[str]()
    stages = None
    for system, (name, make) in _SYSTEMS.items():
        try:
            exported = make(planned)
        except PlanError as error:
            lines.append(f"not exported to {system}: {error}")
            continue
        systems.append(system)
        texts[name] = exported.text
        if exported.job is None:
            texts["galvatron_differs.txt"] = "".join(f"{line}\n" for line in exported.differs)
        else:
            stages = exported.job.stages
    if stages is not None and stages.num_devices > 1:
        lines += _deepspeed(stages, texts)
    for name, text in texts.items():
        write_text(directory / name, text)
    return [*([f"exported to {', '.join(systems)}: {directory}"] if systems else []), *lines]


def layout_files(
    layout: PipelineLayout, num_micro_batches: int, group: int | None = None
) -> tuple[dict[str, str], list[str]]:
    """Return the files of all systems that can run a layout, and what they do not say or run so.

    For the group of micro-batches see `placements.trainers.megatron_layout.MegatronPipeline`.
    """
    texts, lines = dict[str, str](), list[str]()
    job, m, p = TrainerJob(stages=layout, group=group), num_micro_batches, layout.num_devices
    batch = f"--global-batch-size has to be {m} times --micro-batch-size and data parallelism"
    local = f"training.local_batch_size has to be {m} times parallelism.pipeline_parallel_microbatch_size"
    for name, write, comments in (
        ("megatron.txt", megatron.write, ("Megatron-LM with megatron-core 0.16", batch)),
        ("torchtitan.txt", torchtitan.write, ("torchtitan 0.3.0", local)),
    ):
        try:
            texts[name] = write(job, comments)
        except LayoutError as error:
            lines.append(f"no {name}: {str(error).removeprefix('layout: ')}")
    lines += _deepspeed(layout, texts)
    if "torchtitan.txt" in texts:
        try:
            torchtitan.check_interleaved(layout, m)
            theirs = m // max(1, m // p)
            if layout.num_chunks > 1 and group not in (None, theirs):
                lines.append(
                    f"torchtitan.txt: Interleaved1F1B of torch has groups of {theirs} micro-batches, and "
                    f"what was timed has {group}"
                )
        except LayoutError as error:
            lines.append(f"torchtitan.txt: {error}")
    return texts, lines


def _deepspeed(layout: PipelineLayout, texts: dict[str, str]) -> list[str]:
    """Add the file of DeepSpeed; return what it does not say."""
    try:
        bounds = write_bounds(layout)
    except LayoutError as error:
        return [f"no deepspeed.json: {str(error).removeprefix('layout: ')}"]
    texts["deepspeed.json"] = json.dumps({"num_stages": layout.num_devices, FIELD: bounds}, indent=2) + "\n"
    return [
        "deepspeed.json: DeepSpeed's config has no key for these bounds; set PipelineModule.parts in a "
        "subclass"
    ]
