"""Layouts of Megatron-LM (megatron-core 0.16): its notation, its rules, and its arguments for layouts.

In ``--pipeline-model-parallel-layout`` ``E`` is the embedding, ``t`` a transformer layer, ``m`` a layer of
MTP, ``L`` the loss; a bar ends a stage, ``x*3`` repeats a letter or a bar and ``(...)*3`` a group, and commas
mean nothing. Empty stages are allowed. Without it all stages have as many layers, or the first and the last
have numbers of their own; MTP stands with the loss. Interleaved 1F1B takes micro-batches through a chunk in
groups, by default of as many as ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placements.trainers.layout import EMBEDDING, LAYER, LOSS, MTP, PARTS, LayoutError, PipelineLayout
from placements.trainers.words import given, known

_TYPES = {part: f"LayerType.{'decoder' if part == LAYER else kind}" for part, kind in PARTS.items()}
"""Names of the parts in Megatron-LM's messages."""

_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
"""A group that is repeated, and one letter; groups come first, and are not nested."""

_MAX_PARTS = 100_000
"""Parts that a layout may have; more are a mistake in a number."""

_PERIODS = [re.compile(rf"((?:[^|]*\|){{{size}}})\1+") for size in range(1, 17)]
"""Patterns of up to 16 stages, which are written once with the number of their repetitions."""

RANKS = "--pipeline-model-parallel-size"
LAYERS = "--num-layers"
MTP_LAYERS = "--mtp-num-layers"
LAYOUT = "--pipeline-model-parallel-layout"
CHUNK_LAYERS = "--num-layers-per-virtual-pipeline-stage"
CHUNKS = "--num-virtual-stages-per-pipeline-rank"
GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
_ENDS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"

_NUMBERS = (RANKS, LAYERS, MTP_LAYERS, CHUNK_LAYERS, CHUNKS, GROUP, FIRST, LAST)
DASHED = {name[:2] + name[2:].replace("-", "_"): name for name in (*_NUMBERS, *_ENDS, LAYOUT)}
"""Arguments of the pipeline by their names with underscores, as logs have them and no command line."""


class MegatronPipeline(NamedTuple):
    """The pipeline of a Megatron-LM command line.

    Attributes:
        layout: Its layout, as Megatron-LM accepts it.
        group: Micro-batches that go through a chunk before the next chunk; None for as many as ranks.
    """

    layout: PipelineLayout
    group: int | None = None


def read_notation(text: str, num_devices: int, where: str = "layout") -> PipelineLayout:
    """Return the layout of a text in Megatron-LM's notation; messages begin with ``where``.

    Raises:
        LayoutError: A letter is unknown, or the ranks do not divide the stages; as Megatron-LM says it, with
            a remedy.

    >>> read_notation("Et,(t*2|)*2,tL", 3).stages
    ('Ettt', 'tt', 'tL')
    """
    unrolled = text.replace(",", "")
    for pattern in _REPEATED:
        repeated = [len(match[1]) * int(match[2][:9]) for match in pattern.finditer(unrolled)]
        if len(unrolled) + sum(repeated) > _MAX_PARTS:
            raise LayoutError(
                f"{where}: has more than {_MAX_PARTS} parts; check the numbers behind its stars"
            )
        unrolled = pattern.sub(lambda match: match[1] * int(match[2]), unrolled)
    stages = tuple(unrolled.split("|"))
    for stage in stages:
        for letter in stage:
            if letter not in PARTS:
                shown = letter.strip() or repr(letter)
                raise LayoutError(
                    f"{where}: Megatron-LM: Invalid layer character: {shown} (stage={stage!r}), known layer "
                    f"characters: {list(PARTS)}; use these, with |, *n, ( ) and commas"
                )
    if num_devices < 1 or len(stages) % num_devices:
        raise LayoutError(
            f"{where}: Megatron-LM: pipeline_model_parallel_layout must be divisible by "
            f"pipeline_model_parallel_size (len(layout)={len(stages)}, "
            f"pipeline_model_parallel_size={num_devices}); change the number of stages or of ranks"
        )
    return PipelineLayout(num_devices, stages)


def write_notation(layout: PipelineLayout) -> str:
    """Return a layout in Megatron-LM's notation, repeated stages written once.

    >>> write_notation(PipelineLayout(2, ("Ettt", "tt", "tt", "tt", "tt", "L")))
    'Et*3|(tt|)*4,L'
    """
    *words, last = (
        re.sub(r"(.)\1{2,}", lambda run: f"{run[1]}*{len(run[0])}", stage) for stage in layout.stages
    )
    text, rest = "", "".join(f"{word}|" for word in words)
    while rest:
        runs = (run for period in _PERIODS if (run := period.match(rest)))
        run = max(runs, key=lambda run: run.end(), default=None)
        if run and len(repeated := f"({run[1]})*{run.end() // len(run[1])},") < run.end():
            text, rest = text + repeated, rest[run.end() :]
        else:
            word, bar, rest = rest.partition("|")
            text += word + bar
    return (text + last).removesuffix(",")


def check_megatron(
    layout: PipelineLayout, num_layers: int, num_mtp: int | None = None, where: str = "layout"
) -> PipelineLayout:
    """Return the layout if megatron-core accepts it with these numbers of layers and of MTP layers.

    Raises:
        LayoutError: megatron-core refuses the layout; with its message, and a remedy.
    """
    parts, first = layout.parts, layout.num_devices * (layout.num_chunks - 1)
    ends = [_TYPES.get(part, "nothing") for part in (parts[:1], parts[-1:])]
    problems = {  # in the order in which megatron-core looks at them
        f"The first layer must be embedding, but got {ends[0]}; begin with E": parts[:1] != EMBEDDING,
        f"The last layer must be loss, but got {ends[1]}; end with L": parts[-1:] != LOSS,
        "Embedding must be specified exactly once; leave out the other E": parts.count(EMBEDDING) != 1,
        "Loss must be specified exactly once; leave out the other L": parts.count(LOSS) != 1,
        f"Number of decoder layers {layout.num_layers}must match num_layers {num_layers}; change the number "
        "of t, or --num-layers": layout.num_layers != num_layers,
        "Number of mtp layers in layout must match mtp_num_layers; give --mtp-num-layers "
        f"{layout.num_mtp}, or as many m as it says": layout.num_mtp != (num_mtp or 0),
        "decoder layers must be placed before MTP layers; move m behind the last t": (
            LAYER in parts.partition(MTP)[2]
        ),
        "Currently we restrict that the MTP should be always in the last virtual pipeline stage of that "
        f"rank; move m to one of the last {layout.num_devices} stages": MTP in "".join(layout.stages[:first]),
        "All of the MTP layers must be in the same one virtual pipeline stage; put all m into one stage": (
            sum(MTP in stage for stage in layout.stages) > 1
        ),
    }
    for problem, is_wrong in problems.items():
        if is_wrong:
            raise LayoutError(f"{where}: Megatron-LM: {problem}")
    return layout


def pipeline_of(words: Sequence[str]) -> MegatronPipeline:
    """Return the pipeline of Megatron-LM's arguments; other arguments are not read.

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
        sources = (getattr(word, "unknown", "") for word in words)
        unknown = next((f", unless it is in {source}" for source in sources if source), "")
        raise LayoutError(f"{LAYERS}: is missing{unknown}; give the number of transformer layers")
    num_layers, num_mtp, ranks = numbers[LAYERS], numbers.get(MTP_LAYERS), numbers.get(RANKS, 1)
    if LAYOUT in flags:
        others = [name for name in (FIRST, LAST, *_ENDS, CHUNK_LAYERS, CHUNKS) if name in flags]
        if others:
            raise LayoutError(
                f"{LAYOUT}: Megatron-LM: pipeline_model_parallel_layout cannot be set with other pipeline "
                f"layout arguments; leave out {', '.join(others)}"
            )
        layout = read_notation(_value(LAYOUT, flags), ranks, LAYOUT)
        check_megatron(layout, num_layers, num_mtp, LAYOUT)
    else:
        stages = [LAYER * count for count in _layers_of_stages(numbers, [name in flags for name in _ENDS])]
        stages[0] = EMBEDDING + stages[0]
        stages[-1] += MTP * (num_mtp or 0) + LOSS
        layout = PipelineLayout(ranks, tuple(stages))
    return MegatronPipeline(layout, numbers.get(GROUP))


def arguments_of(layout: PipelineLayout, group: int | None = None) -> dict[str, object]:
    """Return the arguments for a layout, by their names; for its group see `MegatronPipeline`.

    Raises:
        LayoutError: Megatron-LM would refuse the layout.
    """
    check_megatron(layout, layout.num_layers, layout.num_mtp)
    arguments: dict[str, object] = {LAYERS: layout.num_layers, RANKS: layout.num_devices}
    arguments |= {MTP_LAYERS: layout.num_mtp} if layout.num_mtp else {}
    arguments |= {LAYOUT: write_notation(layout)} if len(layout.stages) > 1 else {}
    is_own = layout.num_chunks > 1 and group not in (None, layout.num_devices)
    return arguments | ({GROUP: group} if is_own else {})


def _value(name: str, flags: Mapping[str, Sequence[str]]) -> str:
    if not flags[name]:
        raise LayoutError(f"{name}: has no value; give one behind it")
    return known(name, flags[name][0])


def _number(name: str, text: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,5}", text):
        raise LayoutError(f"{name}: {text!r} is not a whole number above 0; write the number itself")
    return int(text)


def _layers_of_stages(numbers: Mapping[str, int], counts_ends: Sequence[bool]) -> list[int]:
    """Return the layers of each virtual stage without a layout; embedding and loss may count as layers."""
    ranks, num_layers = numbers.get(RANKS, 1), numbers[LAYERS]
    known = {rank: numbers[name] for name, rank in ((FIRST, 0), (LAST, ranks - 1)) if name in numbers}
    if any(counts_ends) and known:
        raise LayoutError(
            f"{FIRST}: Megatron-LM: num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage "
            f"cannot be set at the same time with {' and '.join(_ENDS)}; leave out one kind"
        )
    left, num_left = num_layers + sum(counts_ends) - sum(known.values()), ranks - len(known)
    per_rank, over = divmod(left, num_left) if num_left else (0, left)
    if left < 0 or over:
        raise LayoutError(
            f"{LAYERS}: Megatron-LM: {left} layers are not divisible by the {num_left} stages that have "
            f"them; change {LAYERS} or {RANKS}, or give {LAYOUT}"
        )
    of_rank = [known.get(rank, per_rank) for rank in range(ranks)]
    name, chunks, size = CHUNKS, numbers.get(CHUNKS, 1), 1
    if CHUNK_LAYERS in numbers and CHUNKS not in numbers:
        name, size = CHUNK_LAYERS, numbers[CHUNK_LAYERS]
        chunks = max(1, of_rank[0] // size)
    for count in of_rank:
        if count % chunks or count % size:
            raise LayoutError(
                f"{name}: Megatron-LM: num_layers_per_pipeline_rank {count} should be divisible by vp_size "
                f"{chunks}; change either, or give {LAYOUT}"
            )
    layers = [count // chunks for _ in range(chunks) for count in of_rank]
    layers[0] -= counts_ends[0]
    layers[-1] -= counts_ends[1]
    if min(layers) < 0:
        reason = "Megatron-LM: Not enough layers in the first virtual pipeline stage"
        raise LayoutError(f"{_ENDS[0]}: {reason}; leave it out")
    return layers


def group_size(num_devices: int, num_micro_batches: int) -> int:
    """Return the least group of micro-batches, at least as many as ranks, that Megatron-LM accepts.

    >>> group_size(4, 16), group_size(4, 18)
    (4, 6)
    """
    sizes = range(num_devices, num_micro_batches + 1)
    return next(size for size in sizes if not 0 < num_micro_batches % size < num_devices)
