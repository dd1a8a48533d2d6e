"""The layout that the arguments of a Megatron-LM command line say, and the arguments that say a layout.

Facts of Megatron-LM with megatron-core 0.16: without a layout of their own all stages have as many layers, or
the first and the last have numbers of their own, or embedding and loss count as a layer each; MTP stands with
the loss. Interleaved 1F1B takes micro-batches through a chunk in groups, by default of as many as ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placements.layouts.argument_words import given, known
from placements.layouts.layout import EMBEDDING, LAYER, LOSS, MTP, LayoutError, PipelineLayout
from placements.layouts.megatron_notation import check_megatron, read_notation, write_notation
from placements.layouts.shell_words import Word

RANKS = "--pipeline-model-parallel-size"
LAYERS = "--num-layers"
MTP_LAYERS = "--mtp-num-layers"
LAYOUT = "--pipeline-model-parallel-layout"
CHUNK_LAYERS = "--num-layers-per-virtual-pipeline-stage"
CHUNKS = "--num-virtual-stages-per-pipeline-rank"
GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"
FIRST = "--decoder-first-pipeline-num-layers"
LAST = "--decoder-last-pipeline-num-layers"
WITH_EMBEDDING = "--account-for-embedding-in-pipeline-split"
WITH_LOSS = "--account-for-loss-in-pipeline-split"

_NUMBERS = (RANKS, LAYERS, MTP_LAYERS, CHUNK_LAYERS, CHUNKS, GROUP, FIRST, LAST)
_SWITCHES = (WITH_EMBEDDING, WITH_LOSS)
DASHED = {name[:2] + name[2:].replace("-", "_"): name for name in (*_NUMBERS, *_SWITCHES, LAYOUT)}
"""Arguments of the pipeline by their names with underscores, which are those in logs."""
ARGUMENTS = (*DASHED, *DASHED.values())
"""All of them, also with underscores, which Megatron-LM does not know."""


class MegatronPipeline(NamedTuple):
    """The pipeline of a Megatron-LM command line.

    Attributes:
        layout: Its layout, as Megatron-LM accepts it.
        group: Micro-batches that go through a chunk before the next chunk; None for as many as ranks.
    """

    layout: PipelineLayout
    group: int | None = None


def pipeline_of(words: Sequence[str]) -> MegatronPipeline:
    """Return the pipeline that arguments say; others than those of the pipeline are not read.

    Raises:
        LayoutError: Megatron-LM would refuse them; the message names the argument.

    >>> pipeline_of(["--num-layers", "4", "--pipeline-model-parallel-size=2"]).layout.stages
    ('Ett', 'ttL')
    """
    flags = given(words)
    for name in flags:
        if name in DASHED:
            raise LayoutError(f"{name}: is unknown to Megatron-LM; write {DASHED[name]}")
    numbers = {name: _number(name, _value(name, flags)) for name in _NUMBERS if name in flags}
    if LAYERS not in numbers:
        unknown = next((word.unknown for word in words if isinstance(word, Word) and word.unknown), "")
        where = f", unless it is in {unknown}" if unknown else ""
        raise LayoutError(f"{LAYERS}: is missing{where}; give the number of transformer layers")
    num_layers, num_mtp = numbers[LAYERS], numbers.get(MTP_LAYERS)
    others = [name for name in (FIRST, LAST, *_SWITCHES, CHUNK_LAYERS, CHUNKS) if name in flags]
    if LAYOUT in flags:
        if others:
            raise LayoutError(
                f"{LAYOUT}: Megatron-LM: pipeline_model_parallel_layout cannot be set with other pipeline "
                f"layout arguments; leave out {', '.join(others)}"
            )
        layout = read_notation(_value(LAYOUT, flags), numbers.get(RANKS, 1), LAYOUT)
        return MegatronPipeline(check_megatron(layout, num_layers, num_mtp, LAYOUT), numbers.get(GROUP))
    layers = _layers_of_stages(numbers, {name for name in _SWITCHES if name in flags})
    stages = [LAYER * count for count in layers]
    stages[0] = EMBEDDING + stages[0]
    stages[-1] += MTP * (num_mtp or 0) + LOSS
    return MegatronPipeline(PipelineLayout(numbers.get(RANKS, 1), tuple(stages)), numbers.get(GROUP))


def arguments_of(layout: PipelineLayout, group: int | None = None) -> dict[str, object]:
    """Return the arguments that say a layout, by their names.

    Args:
        layout: Any that Megatron-LM accepts.
        group: See `MegatronPipeline`.

    Raises:
        LayoutError: Megatron-LM would refuse it.
    """
    check_megatron(layout, layout.num_layers, layout.num_mtp)
    found: dict[str, object] = {LAYERS: layout.num_layers, RANKS: layout.num_devices}
    found |= {MTP_LAYERS: layout.num_mtp} if layout.num_mtp else {}
    found |= {LAYOUT: write_notation(layout)} if len(layout.stages) > 1 else {}
    is_own = layout.num_chunks > 1 and group not in (None, layout.num_devices)
    return found | ({GROUP: group} if is_own else {})


def _value(name: str, flags: Mapping[str, Sequence[str]]) -> str:
    if not flags[name]:
        raise LayoutError(f"{name}: has no value; give one behind it")
    return known(name, flags[name][0])


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text) > 0):
        raise LayoutError(f"{name}: {text!r} is not a whole number above 0; write the number itself")
    return int(text)


def _layers_of_stages(numbers: Mapping[str, int], switches: set[str]) -> list[int]:
    """Return the transformer layers of each virtual stage, where no layout says them."""
    ranks, num_layers = numbers.get(RANKS, 1), numbers[LAYERS]
    if switches and {FIRST, LAST} & set(numbers):
        raise LayoutError(
            f"{FIRST}: Megatron-LM: num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage "
            "cannot be set at the same time with account_for_embedding_in_pipeline_split and "
            "account_for_loss_in_pipeline_split; leave out one kind"
        )
    counts = {0: numbers.get(FIRST), ranks - 1: numbers.get(LAST)}
    known = {rank: count for rank, count in counts.items() if count is not None}
    left, num_left = num_layers + len(switches) - sum(known.values()), ranks - len(known)
    if left < 0 or (num_left and left % num_left) or (left and not num_left):
        raise LayoutError(
            f"{LAYERS}: Megatron-LM: {left} layers are not divisible by the {num_left} stages that have "
            f"them; change {LAYERS} or {RANKS}, or give {LAYOUT}"
        )
    of_rank = [known.get(rank, left // num_left if num_left else 0) for rank in range(ranks)]
    if CHUNKS in numbers:
        chunks = numbers[CHUNKS]
    else:
        chunks = max(1, of_rank[0] // numbers[CHUNK_LAYERS]) if CHUNK_LAYERS in numbers else 1
    for count in of_rank:
        if count % chunks or (
            CHUNK_LAYERS in numbers and CHUNKS not in numbers and count % numbers[CHUNK_LAYERS]
        ):
            raise LayoutError(
                f"{CHUNKS if CHUNKS in numbers else CHUNK_LAYERS}: Megatron-LM: num_layers_per_pipeline_rank "
                f"{count} should be divisible by vp_size {chunks}; change either, or give {LAYOUT}"
            )
    layers = [count // chunks for _ in range(chunks) for count in of_rank]
    layers[0] -= WITH_EMBEDDING in switches
    layers[-1] -= WITH_LOSS in switches
    if min(layers) < 0:
        raise LayoutError(
            f"{WITH_EMBEDDING}: Megatron-LM: Not enough layers in the first virtual pipeline stage; "
            "leave it out"
        )
    return layers


def group_size(num_devices: int, num_micro_batches: int) -> int:
    """Return the least group of micro-batches that Megatron-LM accepts; see `MegatronPipeline`.

    Args:
        num_devices: Pipeline ranks.
        num_micro_batches: Micro-batches of an iteration, at least as many.

    >>> group_size(4, 16), group_size(4, 18)
    (4, 6)
    """
    sizes = range(num_devices, num_micro_batches + 1)
    return next(size for size in sizes if not 0 < num_micro_batches % size < num_devices)
