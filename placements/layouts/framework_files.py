"""The files of each framework for a layout, read back when they are written, and what they cannot say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from placements.layouts.argument_words import argument_text, argument_words
from placements.layouts.deepspeed_parts import FIELD, read_bounds, write_bounds
from placements.layouts.layout import LayoutError, PipelineLayout
from placements.layouts.megatron_arguments import (
    ARGUMENTS,
    MegatronPipeline,
    arguments_of,
    pipeline_of,
    read_arguments,
)
from placements.layouts.torchtitan_parts import SECTION, read_job, read_parts, write_job, write_parts


class FrameworkFiles(NamedTuple):
    """A layout in the terms of all frameworks.

    Attributes:
        texts: The text of each file by its name.
        lines: What a framework does not say or run so, a line each.
    """

    texts: dict[str, str]
    lines: tuple[str, ...]


def framework_files(
    layout: PipelineLayout, num_micro_batches: int, group: int | None = None
) -> FrameworkFiles:
    """Return the files of all frameworks that can run a layout.

    Args:
        layout: Any.
        num_micro_batches: Micro-batches of an iteration.
        group: See `placements.layouts.megatron_arguments.MegatronPipeline`.
    """
    texts, lines = dict[str, str](), list[str]()
    makers: dict[str, Callable[[], str]] = {
        "megatron.txt": lambda: _megatron(layout, num_micro_batches, group),
        "torchtitan.txt": lambda: _torchtitan(layout, num_micro_batches),
        "deepspeed.json": lambda: _deepspeed(layout),
    }
    for name, make in makers.items():
        try:
            texts[name] = make()
        except LayoutError as error:
            lines.append(f"no {name}: {str(error).removeprefix('layout: ')}")
    return FrameworkFiles(texts, (*lines, *_otherwise(layout, num_micro_batches, group, texts)))


def _megatron(layout: PipelineLayout, num_micro_batches: int, group: int | None) -> str:
    options = arguments_of(layout, group)
    words = [str(word) for pair in options.items() for word in pair]
    assert pipeline_of(words).layout == layout, "it is read back"
    batch = f"--global-batch-size has to be {num_micro_batches} times --micro-batch-size and data parallelism"
    return argument_text(options, ("Megatron-LM with megatron-core 0.16", batch))


def _torchtitan(layout: PipelineLayout, num_micro_batches: int) -> str:
    options = write_job(layout)
    assert read_parts(write_parts(layout), layout.num_devices) == layout, "it is read back"
    batch = (
        f"training.local_batch_size has to be {num_micro_batches} times "
        "parallelism.pipeline_parallel_microbatch_size"
    )
    return argument_text(options, ("torchtitan 0.3.0", batch))


def _deepspeed(layout: PipelineLayout) -> str:
    bounds = write_bounds(layout)
    assert read_bounds(bounds, layout.parts) == layout, "it is read back"
    return json.dumps({"num_stages": layout.num_devices, FIELD: bounds}, indent=2) + "\n"


def _otherwise(
    layout: PipelineLayout, num_micro_batches: int, group: int | None, texts: dict[str, str]
) -> Iterator[str]:
    if "deepspeed.json" in texts:
        yield (
            "deepspeed.json: DeepSpeed's config has no key for these bounds; set PipelineModule.parts in a "
            "subclass"
        )
    if layout.num_chunks > 1 and "torchtitan.txt" in texts:
        rounds = max(1, num_micro_batches // layout.num_devices)
        if num_micro_batches % rounds:
            yield (
                f"torchtitan.txt: Interleaved1F1B of torch refuses {num_micro_batches} micro-batches on "
                f"{layout.num_devices} ranks; use a multiple of {layout.num_devices}"
            )
        elif group not in (None, num_micro_batches // rounds):
            yield (
                f"torchtitan.txt: Interleaved1F1B of torch has groups of {num_micro_batches // rounds} "
                f"micro-batches, and what was timed has {group}"
            )


def read_any(path: str) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says.

    Raises:
        LayoutError: It is wrong; the message begins with the path.
    """
    words = argument_words(path, "Megatron-LM's or torchtitan's arguments", (SECTION, *ARGUMENTS))
    if any(word.startswith(SECTION) for word in words):
        return MegatronPipeline(read_job(path))
    return read_arguments(path)
