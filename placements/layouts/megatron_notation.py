"""The notation of Megatron-LM's ``--pipeline-model-parallel-layout`` (megatron-core 0.16), and its rules.

``E`` is the embedding, ``t`` a transformer layer, ``m`` a layer of MTP, ``L`` the loss; a bar ends a stage,
``x*3`` repeats a letter or a bar and ``(...)*3`` a group, and commas mean nothing. Empty stages are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from placements.layouts.layout import (
    EMBEDDING,
    LAYER,
    LOSS,
    MAX_PARTS,
    MTP,
    PARTS,
    LayoutError,
    PipelineLayout,
)

_TYPES = {
    EMBEDDING: "LayerType.embedding",
    LAYER: "LayerType.decoder",
    MTP: "LayerType.mtp",
    LOSS: "LayerType.loss",
}
"""What the messages of Megatron-LM call the parts."""

_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
"""A group that is repeated, and one letter; groups come first, and are not nested."""

_MAX_PERIOD = 16
"""Stages of a pattern that is written once with the number of its repetitions."""


def read_notation(text: str, num_devices: int, where: str = "layout") -> PipelineLayout:
    """Return the layout that a text says.

    Args:
        text: In Megatron-LM's notation.
        num_devices: Pipeline ranks.
        where: Name of the text in messages.

    Raises:
        LayoutError: A letter is unknown, or the ranks do not divide the stages; as Megatron-LM says it, with
            a remedy.

    >>> read_notation("Et,(t*2|)*2,tL", 3).stages
    ('Ettt', 'tt', 'tL')
    """
    stages = notation_stages(text, where)
    if num_devices < 1 or len(stages) % num_devices:
        raise LayoutError(
            f"{where}: Megatron-LM: pipeline_model_parallel_layout must be divisible by "
            f"pipeline_model_parallel_size (len(layout)={len(stages)}, "
            f"pipeline_model_parallel_size={num_devices}); change the number of stages or of ranks"
        )
    return PipelineLayout(num_devices, stages)


def notation_stages(text: str, where: str = "layout") -> tuple[str, ...]:
    """Return the parts of each stage that a text says; see `read_notation`."""
    unrolled = text.replace(",", "")
    for pattern in _REPEATED:
        length = len(unrolled)
        for found in pattern.finditer(unrolled):
            length += len(found[1]) * int(found[2][:9])
        if length > MAX_PARTS:
            raise LayoutError(f"{where}: has more than {MAX_PARTS} parts; check the numbers behind its stars")
        unrolled = pattern.sub(lambda found: found[1] * int(found[2]), unrolled)
    for stage in unrolled.split("|"):
        for letter in stage:
            if letter not in PARTS:
                shown = letter.strip() or repr(letter)
                raise LayoutError(
                    f"{where}: Megatron-LM: Invalid layer character: {shown} (stage={stage!r}), known layer "
                    f"characters: {list(_TYPES)}; use these, with |, *n, ( ) and commas"
                )
    return tuple(unrolled.split("|"))


def write_notation(layout: PipelineLayout) -> str:
    """Return a layout in Megatron-LM's notation, repeated stages written once.

    >>> write_notation(PipelineLayout(2, ("Ettt", "tt", "tt", "tt", "tt", "L")))
    'Et*3|(tt|)*4,L'
    """
    words = [_stage_text(stage) for stage in layout.stages]
    *ended, last = words
    text, at = "", 0
    while at < len(ended):
        period, times = _longest_pattern(ended, at)
        pattern = "".join(f"{word}|" for word in ended[at : at + period])
        if times > 1 and len(f"({pattern})*{times},") < times * len(pattern):
            text += f"({pattern})*{times},"
            at += period * times
        else:
            text += f"{ended[at]}|"
            at += 1
    return (text + last).removesuffix(",")


def _stage_text(stage: str) -> str:
    runs = [(letter, len(list(run))) for letter, run in groupby(stage)]
    return "".join(letter * count if count < 3 else f"{letter}*{count}" for letter, count in runs)


def _longest_pattern(words: list[str], at: int) -> tuple[int, int]:
    """Return the stages of a pattern that begins at one, and how often it comes: so that most are covered."""
    best = (1, 1)
    for period in range(1, min(_MAX_PERIOD, len(words) - at) + 1):
        times, pattern = 1, words[at : at + period]
        while words[at + period * times : at + period * (times + 1)] == pattern:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


def check_megatron(
    layout: PipelineLayout, num_layers: int, num_mtp: int | None = None, where: str = "layout"
) -> PipelineLayout:
    """Return a layout that megatron-core 0.16 accepts.

    Args:
        layout: Any.
        num_layers: Its ``--num-layers``.
        num_mtp: Its ``--mtp-num-layers``; None where it is not given.
        where: Name of the layout in messages.

    Raises:
        LayoutError: It does not; with the message that it gives, and a remedy.
    """
    for reason, remedy in _problems(layout, num_layers, num_mtp):
        raise LayoutError(f"{where}: Megatron-LM: {reason}; {remedy}")
    return layout


def _problems(layout: PipelineLayout, num_layers: int, num_mtp: int | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, in the order in which megatron-core looks at it, and what to do."""
    parts, last_chunk = layout.parts, layout.num_devices * (layout.num_chunks - 1)
    if not parts or parts[0] != EMBEDDING:
        yield f"The first layer must be embedding, but got {_type(parts[:1])}", "begin with E"
    if parts[-1] != LOSS:
        yield f"The last layer must be loss, but got {_type(parts[-1])}", "end with L"
    if parts.count(EMBEDDING) != 1:
        yield "Embedding must be specified exactly once", "leave out the other E"
    if parts.count(LOSS) != 1:
        yield "Loss must be specified exactly once", "leave out the other L"
    if layout.num_layers != num_layers:
        yield (
            f"Number of decoder layers {layout.num_layers}must match num_layers {num_layers}",
            "change the number of t, or --num-layers",
        )
    if layout.num_mtp != (num_mtp or 0):
        yield (
            "Number of mtp layers in layout must match mtp_num_layers",
            f"give --mtp-num-layers {layout.num_mtp}, or as many m as it says",
        )
    if MTP in parts and LAYER in parts[parts.index(MTP) :]:
        yield "decoder layers must be placed before MTP layers", "move m behind the last t"
    if any(MTP in stage for stage in layout.stages[:last_chunk]):
        yield (
            "Currently we restrict that the MTP should be always in the last virtual pipeline stage of "
            "that rank",
            f"move m to one of the last {layout.num_devices} stages",
        )
    if any(MTP in stage and stage.count(MTP) != layout.num_mtp for stage in layout.stages):
        yield (
            "All of the MTP layers must be in the same one virtual pipeline stage",
            "put all m into one stage",
        )


def _type(letter: str) -> str:
    return _TYPES.get(letter, "nothing")
